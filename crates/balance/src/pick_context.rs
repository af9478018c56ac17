//! The inputs of a policy besides the view.

use std::ops::Deref;

use smallvec::SmallVec;

use crate::Time;
use crate::index::Index;

/// The inputs of a pick besides the view.
#[derive(Clone, Copy, Debug)]
pub struct PickCtx<'a> {
    /// The time of the pick.
    pub now: Time,
    /// The hash of the request's key, for hash policies; `None` = hash policies draw a random one.
    pub hash: Option<u64>,
    /// The endpoints of this view that the request has already attempted.
    pub excluded: &'a [Index],
}

impl PickCtx<'static> {
    /// Creates the context of a first attempt without a key.
    #[must_use]
    pub const fn new(now: Time) -> Self {
        Self {
            now,
            hash: None,
            excluded: &[],
        }
    }
}

impl<'a> PickCtx<'a> {
    /// Sets the hash of the request's key.
    #[must_use]
    pub const fn with_hash(self, hash: u64) -> Self {
        Self {
            hash: Some(hash),
            ..self
        }
    }

    /// Sets the endpoints that the request has already attempted.
    #[must_use]
    pub const fn excluding<'b>(self, excluded: &'b [Index]) -> PickCtx<'b>
    where
        'a: 'b,
    {
        PickCtx {
            now: self.now,
            hash: self.hash,
            excluded,
        }
    }
}

/// The endpoints that a request has attempted. The list is stored in place and allocates only beyond eight.
#[derive(Clone, Debug, Default)]
pub struct Excluded(SmallVec<[Index; 8]>);

impl Excluded {
    /// Creates an empty list; does not allocate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an endpoint; adding it twice changes nothing.
    pub fn insert(&mut self, index: Index) {
        if !self.0.contains(&index) {
            self.0.push(index);
        }
    }
}

impl Deref for Excluded {
    type Target = [Index];

    #[inline]
    fn deref(&self) -> &[Index] {
        &self.0
    }
}
