//! Stories in the order of their requests' ends, within a number of bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use maglor_balance::Time;

use super::KEPT;

/// What a story costs besides its text: its place here, and what the allocator rounds up.
const OVERHEAD: usize = 96;

/// A ring of stories.
#[derive(Debug)]
pub(super) struct Ring {
    kept: VecDeque<(Time, Arc<[u8]>)>,
    bytes: usize,
    most: usize,
}

impl Ring {
    pub(super) fn new(most: usize) -> Self {
        Self {
            kept: VecDeque::new(),
            bytes: 0,
            most,
        }
    }

    /// Adds a story; returns how many others had to go although they were not too old.
    pub(super) fn push(&mut self, text: Arc<[u8]>, now: Time) -> u64 {
        self.expire(now);
        self.bytes += text.len() + OVERHEAD;
        self.kept.push_back((now, text));
        let mut dropped = 0;
        while self.bytes > self.most && self.pop() {
            dropped += 1;
        }
        dropped
    }

    /// Removes the stories that are too old.
    pub(super) fn expire(&mut self, now: Time) {
        while self
            .kept
            .front()
            .is_some_and(|(at, _)| now.saturating_since(*at) > KEPT)
        {
            self.pop();
        }
    }

    pub(super) fn clear(&mut self) {
        self.kept = VecDeque::new();
        self.bytes = 0;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Time, Arc<[u8]>)> {
        self.kept.iter().cloned()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn pop(&mut self) -> bool {
        let Some((_, text)) = self.kept.pop_front() else {
            return false;
        };
        self.bytes -= text.len() + OVERHEAD;
        true
    }
}
