//! Decodes the bytes of a peer.

use std::rc::Rc;

use super::connection::{Channel, Closed};
use super::frame::{Decoder, Frame};
use crate::protocol::read_budget::{BY_FRAME, BY_REQUEST};

/// Handles input up to the cost `most`. Returns the cost of handling it, in addition to its bytes.
pub(super) fn take(
    decoder: &mut Decoder,
    channel: &Rc<Channel>,
    bytes: &mut &[u8],
    most: usize,
) -> Result<usize, Closed> {
    let core = &mut *channel.core.borrow_mut();
    let mut cost = 0;
    let mut now = None;
    // Requests begin when this returns. A request whose reset was already read does not begin, so resets are
    // handled even beyond the cost limit.
    while (cost < most || decoder.is_reset_next(bytes))
        && let Some(frame) = decoder.next(bytes)?
    {
        cost += match frame {
            Frame::Head { .. } => BY_REQUEST,
            _ => BY_FRAME,
        };
        core.take(channel, frame, &mut now)?;
    }
    Ok(cost)
}
