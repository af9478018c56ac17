//! The explanation of a syntax error.

/// An explanation of an error, with its line.
pub(super) struct Explanation {
    /// The line, from 0.
    pub(super) line: usize,
    /// The number of characters before it.
    pub(super) column: usize,
    pub(super) length: usize,
    pub(super) message: String,
    pub(super) help: String,
}
