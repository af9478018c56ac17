//! Decodes the bytes of a peer.

use std::rc::Rc;

use super::connection::{Channel, Closed};
use super::dispatch::Batch;
use super::{frame, hpack};

/// Decodes bytes and applies their frames.
#[derive(Debug)]
pub(crate) struct Inbox {
    frames: frame::Decoder,
    hpack: hpack::Decoder,
}

impl Inbox {
    pub(super) fn new(block_limit: usize) -> Self {
        Self {
            frames: frame::Decoder::new(block_limit),
            hpack: hpack::Decoder::default(),
        }
    }

    /// Creates the decoder of a server's data.
    pub(super) fn of_server(block_limit: usize) -> Self {
        Self {
            frames: frame::Decoder::of_server(block_limit),
            hpack: hpack::Decoder::default(),
        }
    }

    /// Returns whether the preface, or the rest of a head, is missing.
    pub(super) fn is_in_head(&self) -> bool {
        self.frames.is_in_head()
    }

    /// Handles input up to the cost `most`. Returns the cost of handling it, in addition to its bytes.
    pub(super) fn take(
        &mut self,
        channel: &Rc<Channel>,
        bytes: &mut &[u8],
        most: usize,
    ) -> Result<usize, Closed> {
        let core = &mut *channel.core.borrow_mut();
        let mut batch = Batch::new(channel, &mut self.hpack);
        // Requests begin when this returns. A request whose reset was already read does not begin, so resets are
        // handled even beyond the cost limit.
        while (batch.cost < most || self.frames.is_reset_next(bytes))
            && let Some(frame) = self.frames.next(bytes)?
        {
            core.take(&mut batch, frame)?;
        }
        Ok(batch.cost)
    }
}
