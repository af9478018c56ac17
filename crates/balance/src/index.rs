//! The identification of an endpoint inside a view.

/// The position of an endpoint in [`View::endpoints`](crate::View::endpoints), which has a meaning only for that view.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Index(u32);

impl Index {
    /// Creates the index of position `at`; positions beyond 2^32 − 1 saturate and belong to no
    /// view.
    #[must_use]
    #[inline]
    pub const fn new(at: usize) -> Self {
        Self(if at > u32::MAX as usize {
            u32::MAX
        } else {
            at as u32
        })
    }

    /// Returns the position.
    #[must_use]
    #[inline]
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}
