//! Streams that have ended. How late frames are handled depends on how their stream ended (RFC 9113, section 5.1).

use std::collections::VecDeque;

use crate::protocol::streams::End;

/// The most recently ended streams of each kind.
#[derive(Debug, Default)]
pub(super) struct Past {
    over: Ring<32>,
    reset_by_peer: Ring<64>,
    reset_here: Ring<1024>,
}

#[derive(Debug, Default)]
struct Ring<const MOST: usize>(VecDeque<u32>);

impl<const MOST: usize> Ring<MOST> {
    fn push(&mut self, stream: u32) {
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back(stream);
    }

    fn contains(&self, stream: u32) -> bool {
        self.0.iter().rev().any(|one| *one == stream)
    }
}

impl Past {
    pub(super) fn add(&mut self, stream: u32, end: End) {
        match end {
            End::Over => self.over.push(stream),
            End::ResetByPeer => self.reset_by_peer.push(stream),
            End::ResetHere => self.reset_here.push(stream),
        }
    }

    /// Returns how a stream has ended; `None` if it ended long ago or was never begun.
    pub(super) fn end(&self, stream: u32) -> Option<End> {
        if self.reset_here.contains(stream) {
            Some(End::ResetHere)
        } else if self.over.contains(stream) {
            Some(End::Over)
        } else if self.reset_by_peer.contains(stream) {
            Some(End::ResetByPeer)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_known_and_memory_is_bounded() {
        let mut past = Past::default();
        for stream in (1..20_000).step_by(2) {
            past.add(stream, End::ResetHere);
            past.add(stream + 1, End::Over);
        }
        past.add(7, End::ResetByPeer);
        assert_eq!(past.end(19_999), Some(End::ResetHere));
        assert_eq!(past.end(19_999 - 2 * 1023), Some(End::ResetHere));
        assert_eq!(past.end(19_999 - 2 * 1024), None);
        assert_eq!(past.end(20_000), Some(End::Over));
        assert_eq!(past.end(20_000 - 2 * 32), None);
        assert_eq!(past.end(7), Some(End::ResetByPeer));
        assert!(past.reset_here.0.capacity() <= 2048);
    }
}
