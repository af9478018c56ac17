//! What differs from the mesh transport.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, Version};
use tokio::time::Instant;

use super::closed::Failed;
use super::connection::{Admission, Channel, Closed, Core, Http2, More, Opening, Role, State};
use super::frame::{self, MAX_PAYLOAD, flag, kind};
use super::inbox::Inbox;
use super::reason::{Malformed, Reason};
use super::{CONNECTION_WINDOW, hpack};
use crate::os::memory;
use crate::protocol::fields::{CONNECTION_FIELDS, Fields, Known};
use crate::protocol::outbox::Outbox;
use crate::protocol::streams::{End, Protocol};

/// Window in bytes below which a new upload may have to wait for uploads that hold the rest.
const LOW_WINDOW: u32 = 16 * 1024;

impl Protocol for Http2 {
    type Malformed = Malformed;
    type Failed = Failed;
    type Reason = Reason;
    type Opening = Opening;
    type Admission = Admission;
    type More = More;
    type Inbox = Inbox;

    const VERSION: Version = Version::HTTP_2;
    const LAST_STREAM: u32 = frame::LAST_STREAM;
    const CONNECTION_WINDOW: u32 = CONNECTION_WINDOW;
    const MAX_PAYLOAD: usize = MAX_PAYLOAD;
    /// Streams that wait for credit take turns.
    const PIECE: usize = 16 * 1024;
    const CHECKS_IDLE_CLIENTS: bool = true;

    const NO_ERROR: Reason = Reason::NoError;
    const CANCELLED: Reason = Reason::Cancel;
    const FAILED: Reason = Reason::Internal;
    const VIOLATION: Reason = Reason::Protocol;

    fn take(
        inbox: &mut Inbox,
        channel: &Rc<Channel>,
        bytes: &mut &[u8],
        most: usize,
    ) -> Result<usize, Closed> {
        inbox.take(channel, bytes, most)
    }

    fn encode_ping(out: &mut BytesMut) {
        frame::encode_words(kind::PING, 0, &[0, 0], out);
    }

    fn encode_credit(stream: u32, bytes: u32, out: &mut BytesMut) {
        frame::encode_words(kind::WINDOW_UPDATE, stream, &[bytes], out);
    }

    fn encode_reset(stream: u32, reason: Reason, out: &mut BytesMut) {
        frame::encode_words(kind::RST_STREAM, stream, &[reason as u32], out);
    }

    fn encode_goaway(last: u32, reason: Reason, out: &mut BytesMut) {
        frame::encode_words(kind::GOAWAY, 0, &[last, reason as u32], out);
    }

    fn encode_data(stream: u32, piece: Bytes, end: bool, out: &mut Outbox) {
        let flags = if end { flag::END_STREAM } else { 0 };
        let header = frame::header(piece.len(), kind::DATA, flags, stream);
        out.data(&header, piece);
    }

    fn encode_head(core: &mut Core, stream: u32, status: StatusCode, fields: &Fields, end: bool) {
        core.encode_block(stream, end, |out| {
            hpack::status(status, out);
            for (known, name, value) in fields.iter() {
                if known == Known::Other || !CONNECTION_FIELDS.contains(&known) {
                    hpack::field(known, name, value.trim_ascii(), out);
                }
            }
        });
    }

    fn encode_trailers(core: &mut Core, stream: u32, trailers: &HeaderMap) {
        core.encode_block(stream, true, |out| {
            for (name, value) in trailers {
                let name = name.as_str().as_bytes();
                hpack::field(Known::of(name), name, value.as_bytes().trim_ascii(), out);
            }
        });
    }

    fn reason(closed: Closed, is_client: bool) -> Option<Reason> {
        match closed {
            Closed::Malformed(malformed) => Some(malformed.reason),
            Closed::Flood => Some(Reason::EnhanceYourCalm),
            Closed::HeadTimeout | Closed::Unresponsive => Some(Reason::NoError),
            Closed::Quiet if is_client => Some(Reason::NoError),
            Closed::Backlog | Closed::ByPeer | Closed::Io(_) | Closed::Quiet => None,
        }
    }

    fn dropped(state: &State) -> Reason {
        match state.local_ended {
            _ if state.answer.is_some() => Reason::Cancel,
            // RFC 9113 §8.1: the rest of the request is not needed.
            true => Reason::NoError,
            false if memory::is_resetting() => Reason::EnhanceYourCalm,
            false => Reason::Internal,
        }
    }

    fn abandoned(_reason: Reason) -> Failed {
        Failed::Gone
    }

    fn lost(state: &State, closed: Closed) -> Option<Failed> {
        match &state.answer {
            Some(_) if state.remote_ended => None,
            Some(_) => Some(Failed::Closed(closed)),
            None => Some(Failed::Gone),
        }
    }

    fn ended(core: &mut Core, stream: u32, end: End) {
        core.more.past.add(stream, end);
    }

    fn admit_waiting(core: &mut Core) {
        if let Role::Client(opening) = &mut core.role {
            opening.waiting.drain(..).for_each(std::task::Waker::wake);
        }
    }

    /// Records whether the connection window for sending is nearly used up.
    fn note_window(core: &mut Core) {
        if core.send_window >= LOW_WINDOW {
            core.more.low_since = None;
        } else if core.more.low_since.is_none() && core.is_client() {
            core.more.low_since = Some(Instant::now());
        }
    }
}

impl Core {
    /// Appends a field block to the output. `write` appends the block to its argument.
    pub(super) fn encode_block(
        &mut self,
        stream: u32,
        end: bool,
        write: impl FnOnce(&mut BytesMut),
    ) {
        let reduced = std::mem::take(&mut self.more.table_reduced);
        let block = |out: &mut BytesMut| {
            if reduced {
                // Sets the table size to 0, which is all that the encoder uses (RFC 7541, section 6.3).
                out.extend_from_slice(&[0x20]);
            }
            write(out);
        };
        self.output.text(MAX_PAYLOAD, block, |length, first, last| {
            let (kind, end) = match first {
                true => (kind::HEADERS, end),
                false => (kind::CONTINUATION, false),
            };
            let end = if end { flag::END_STREAM } else { 0 };
            let last = if last { flag::END_HEADERS } else { 0 };
            frame::header(length, kind, end | last, stream)
        });
    }
}
