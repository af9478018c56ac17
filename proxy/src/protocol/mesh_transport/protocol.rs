//! What differs from HTTP/2.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, Version};

use super::closed::Failed;
use super::connection::{Admission, Channel, Closed, Core, MeshTransport, Opening, State};
use super::frame::{self, Decoder, MAX_PAYLOAD, Malformed, Reason, flag, kind};
use super::{CONNECTION_WINDOW, inbox};
use crate::protocol::fields::Fields;
use crate::protocol::http1;
use crate::protocol::outbox::Outbox;
use crate::protocol::streams::{Protocol, STREAM_WINDOW};

impl Protocol for MeshTransport {
    type Malformed = Malformed;
    type Failed = Failed;
    type Reason = Reason;
    type Opening = Opening;
    type Admission = Admission;
    type More = ();
    type Inbox = Decoder;

    const VERSION: Version = Version::HTTP_11;
    const LAST_STREAM: u32 = u32::MAX;
    const CONNECTION_WINDOW: u32 = CONNECTION_WINDOW;
    const MAX_PAYLOAD: usize = MAX_PAYLOAD;
    const PIECE: usize = STREAM_WINDOW as usize;
    const CHECKS_IDLE_CLIENTS: bool = false;

    const NO_ERROR: Reason = Reason::Done;
    const CANCELLED: Reason = Reason::Cancelled;
    const FAILED: Reason = Reason::Failed;
    const VIOLATION: Reason = Reason::Protocol;

    fn take(
        decoder: &mut Decoder,
        channel: &Rc<Channel>,
        bytes: &mut &[u8],
        most: usize,
    ) -> Result<usize, Closed> {
        inbox::take(decoder, channel, bytes, most)
    }

    fn encode_ping(out: &mut BytesMut) {
        frame::encode_words(kind::PING, 0, &[0, 0], out);
    }

    fn encode_credit(stream: u32, bytes: u32, out: &mut BytesMut) {
        frame::encode_words(kind::WINDOW, stream, &[bytes], out);
    }

    fn encode_reset(stream: u32, reason: Reason, out: &mut BytesMut) {
        frame::encode_words(kind::RESET, stream, &[reason as u32], out);
    }

    fn encode_goaway(last: u32, reason: Reason, out: &mut BytesMut) {
        frame::encode_words(kind::GOAWAY, 0, &[last, reason as u32], out);
    }

    fn encode_data(stream: u32, piece: Bytes, end: bool, out: &mut Outbox) {
        let flags = if end { flag::END } else { 0 };
        let header = frame::header(piece.len(), kind::DATA, flags, stream);
        out.data(&header, piece);
    }

    fn encode_head(core: &mut Core, stream: u32, status: StatusCode, fields: &Fields, end: bool) {
        let flags = if end { flag::END } else { 0 };
        encode_text(&mut core.output, kind::HEAD, flags, stream, |out| {
            http1::encode_response(status, fields, out);
            out.extend_from_slice(b"\r\n");
        });
    }

    fn encode_trailers(core: &mut Core, stream: u32, trailers: &HeaderMap) {
        encode_text(&mut core.output, kind::TRAILERS, flag::END, stream, |out| {
            http1::encode_trailers(trailers, out);
            out.extend_from_slice(b"\r\n");
        });
    }

    fn reason(closed: Closed, _is_client: bool) -> Option<Reason> {
        match closed {
            Closed::Malformed(_) => Some(Reason::Protocol),
            Closed::Flood => Some(Reason::Calm),
            _ => None,
        }
    }

    fn dropped(state: &State) -> Reason {
        match state.answer {
            Some(_) if state.remote_ended => Reason::Done,
            Some(_) => Reason::Cancelled,
            None if state.local_ended => Reason::Done,
            None => Reason::Failed,
        }
    }

    fn abandoned(reason: Reason) -> Failed {
        match reason {
            Reason::Cancelled => Failed::Sender,
            reason => Failed::Reset(reason),
        }
    }

    fn lost(state: &State, _closed: Closed) -> Option<Failed> {
        (!state.remote_ended).then_some(Failed::Closed)
    }
}

/// Adds a text in as many frames as needed. `write` appends the text to its argument.
pub(super) fn encode_text(
    output: &mut Outbox,
    kind: u8,
    flags: u8,
    stream: u32,
    write: impl FnOnce(&mut BytesMut),
) {
    output.text(MAX_PAYLOAD, write, |length, _, last| {
        let more = if last { 0 } else { flag::MORE };
        frame::header(length, kind, flags | more, stream)
    });
}
