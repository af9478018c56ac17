//! The explanation of a syntax error.

/// An explanation of an error, with its position.
pub(super) struct Explanation {
    /// The line, from 0.
    pub(super) line: usize,
    /// The number of characters before the position in the line.
    pub(super) column: usize,
    pub(super) length: usize,
    pub(super) message: String,
    pub(super) help: String,
}
