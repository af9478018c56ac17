//! Applies each frame to its stream and to the connection (RFC 9113, sections 5.1 and 6).

use std::rc::Rc;

use tokio::time::Instant;

use super::answer;
use super::connection::{Channel, Closed, Core, FrameOutcome, Http2, Role};
use super::frame::{self, Frame, kind};
use super::head;
use super::hpack::Decoder;
use super::reason::{Malformed, Reason};
use super::settings;
use crate::protocol::read_budget::{BY_FRAME, BY_REQUEST};
use crate::protocol::streams::{End, Protocol as _};

/// State of handling frames that were read together.
pub(super) struct Batch<'a> {
    pub(super) channel: &'a Rc<Channel>,
    pub(super) hpack: &'a mut Decoder,
    /// Time at which the frames were read; `None` until it is needed.
    now: Option<Instant>,
    /// Cost of handling the frames, in addition to their bytes.
    pub(super) cost: usize,
}

impl<'a> Batch<'a> {
    pub(super) fn new(channel: &'a Rc<Channel>, hpack: &'a mut Decoder) -> Self {
        Self {
            channel,
            hpack,
            now: None,
            cost: 0,
        }
    }

    pub(super) fn now(&mut self) -> Instant {
        *self.now.get_or_insert_with(Instant::now)
    }
}

impl Core {
    /// # Errors
    /// If the peer may not send such a frame now; the connection must then end.
    pub(super) fn take(&mut self, batch: &mut Batch<'_>, frame: Frame<'_>) -> Result<(), Closed> {
        batch.cost += BY_FRAME;
        match frame {
            Frame::Data {
                stream,
                bytes,
                padding,
                end,
            } => {
                match (bytes, end) {
                    ([_, ..], _) => self.flood.data_received(),
                    (_, true) => {}
                    (_, false) => calm(self.flood.allows_empty())?,
                }
                self.data(batch, stream, bytes, (padding, end))
            }
            Frame::Headers {
                stream,
                block,
                end,
                circular,
            } => {
                // A response belongs to a request that was counted when it arrived.
                if let Role::Server(_) = self.role {
                    batch.cost += BY_REQUEST;
                }
                self.headers(batch, stream, block, (end, circular))
            }
            Frame::Reset { stream, reason } => {
                if let Role::Server(_) = self.role {
                    let now = batch.now();
                    calm(self.flood.allows_reset(stream, now))?;
                }
                self.check_begun(stream)?;
                if let Some(found) = self.take_stream(stream, End::ResetByPeer) {
                    found.given_up(reason);
                }
                Ok(())
            }
            Frame::Part { empty: true } => calm(self.flood.allows_empty()),
            frame => {
                calm(self.flood.allows_control())?;
                self.control(batch, frame)
            }
        }
    }

    fn control(&mut self, batch: &mut Batch<'_>, frame: Frame<'_>) -> Result<(), Closed> {
        match frame {
            Frame::Window { stream, increment } => return self.credit(batch, stream, increment),
            Frame::Priority { stream, wrong } => {
                if let Some(reason) = wrong {
                    // A stream that was never begun cannot be reset.
                    match self.streams.contains_key(&stream) {
                        true => return self.blame(batch, stream, reason),
                        false => {
                            return Err(Malformed::new(reason, "a malformed PRIORITY frame").into());
                        }
                    }
                }
            }
            Frame::Ping(bytes) => {
                let header = frame::header(bytes.len(), kind::PING, frame::flag::ACK, 0);
                self.output.tail().extend_from_slice(&header);
                self.output.tail().extend_from_slice(&bytes);
            }
            Frame::Settings(payload) => self.settings(payload)?,
            Frame::Goaway { last, reason } => self.gone(last, reason),
            // The last three do not concern the connection.
            Frame::Part { .. }
            | Frame::Pong
            | Frame::SettingsTaken
            | Frame::Unknown
            | Frame::Data { .. }
            | Frame::Headers { .. }
            | Frame::Reset { .. } => {}
        }
        Ok(())
    }

    /// Records that the peer is closing the connection.
    fn gone(&mut self, last: u32, reason: Reason) {
        self.leaving = true;
        let Role::Client(opening) = &mut self.role else {
            return;
        };
        opening.gone = true;
        let unseen = self.streams.extract_if(|stream, _| *stream > last);
        for (stream, found) in unseen {
            self.more.past.add(stream, End::ResetHere);
            found.turned_away(reason);
        }
        Http2::admit_waiting(self);
    }

    fn settings(&mut self, payload: &[u8]) -> Result<(), Malformed> {
        let settings = settings::parse(payload)?;
        if let Role::Client(opening) = &mut self.role {
            opening.allow(settings.max_streams);
        }
        if let Some(table) = settings.table {
            self.more.table_reduced |= table < self.more.table;
            self.more.table = table;
        }
        if let Some(window) = settings.window {
            let change = i64::from(window) - i64::from(self.more.stream_window);
            self.more.stream_window = window;
            for stream in self.streams.values() {
                if !stream.resize(change) {
                    return Err(TOO_LARGE);
                }
            }
        }
        settings::acknowledge(self.output.tail());
        Ok(())
    }

    fn credit(&mut self, batch: &mut Batch<'_>, stream: u32, increment: u32) -> Result<(), Closed> {
        if stream == 0 {
            if increment == 0 {
                return Err(Malformed::protocol("a WINDOW_UPDATE with an increment of 0").into());
            }
            return match self.grow(increment) {
                true => Ok(()),
                false => Err(TOO_LARGE.into()),
            };
        }
        self.check_begun(stream)?;
        let Some(found) = self.streams.get(&stream) else {
            return Ok(());
        };
        if increment == 0 {
            return self.blame(batch, stream, Reason::Protocol);
        }
        match found.resize(increment.into()) {
            true => Ok(()),
            false => self.blame(batch, stream, Reason::FlowControl),
        }
    }

    fn data(
        &mut self,
        batch: &mut Batch<'_>,
        stream: u32,
        bytes: &[u8],
        (padding, end): (u32, bool),
    ) -> Result<(), Closed> {
        self.check_begun(stream)?;
        // A frame is at most 16 kB long.
        if !self.arrived(bytes.len() as u32 + padding) {
            return Err(Malformed::flow("more bytes than the flow-control window allows").into());
        }
        let Some(found) = self.streams.get(&stream) else {
            return match self.more.past.end(stream) {
                Some(End::ResetHere) => Ok(()),
                Some(End::ResetByPeer) => self.blame(batch, stream, Reason::StreamClosed),
                // This side has reset it long ago, or the server has begun no stream for very long.
                None if self.is_client() => Ok(()),
                Some(End::Over) | None => Err(ENDED.into()),
            };
        };
        match found.data(bytes, padding, end, self.output.tail()) {
            FrameOutcome::Open => Ok(()),
            FrameOutcome::Closed => {
                self.over(stream);
                Ok(())
            }
            FrameOutcome::Violation(reason) => self.blame(batch, stream, reason),
        }
    }

    fn headers(
        &mut self,
        batch: &mut Batch<'_>,
        stream: u32,
        block: &[u8],
        (end, circular): (bool, bool),
    ) -> Result<(), Closed> {
        if stream.is_multiple_of(2) {
            return Err(Malformed::protocol("a request on an even-numbered stream").into());
        }
        let now = batch.now();
        let limits = match &self.role {
            Role::Server(accepting) if stream > accepting.last => {
                self.flood.opened(stream, now);
                return self.accept(batch, stream, block, (end, circular));
            }
            Role::Server(accepting) => accepting.admission.limits.head,
            Role::Client(_) => {
                self.check_begun(stream)?;
                self.flood.opened(stream, now);
                answer::LIMITS
            }
        };
        let Some(found) = self.streams.get(&stream).map(Rc::clone) else {
            batch.hpack.skip(block)?;
            return match self.more.past.end(stream) {
                Some(End::ResetHere) => Ok(()),
                Some(End::ResetByPeer) => self.blame(batch, stream, Reason::StreamClosed),
                Some(End::Over) => Err(ENDED.into()),
                None if self.is_client() => Ok(()),
                None => Err(Malformed::protocol(
                    "a stream number that is not higher than those before",
                )
                .into()),
            };
        };
        let outcome = if found.awaits_head() {
            let head = head::response(batch.hpack, block, limits)?;
            match circular {
                true => FrameOutcome::Violation(Reason::Protocol),
                false => found.answered(head, end),
            }
        } else {
            let trailers = head::trailers(batch.hpack, block, limits, self.is_client())?;
            match circular {
                true => FrameOutcome::Violation(Reason::Protocol),
                false => found.trailers(trailers, end),
            }
        };
        match outcome {
            FrameOutcome::Open => Ok(()),
            FrameOutcome::Closed => {
                self.over(stream);
                Ok(())
            }
            FrameOutcome::Violation(reason) => self.blame(batch, stream, reason),
        }
    }

    /// Resets a stream because of a fault of the peer. This counts as if the peer had reset the stream itself:
    /// otherwise a peer could begin any number of streams and have them reset.
    pub(super) fn blame(
        &mut self,
        batch: &mut Batch<'_>,
        stream: u32,
        reason: Reason,
    ) -> Result<(), Closed> {
        let now = batch.now();
        calm(self.flood.allows_reset(stream, now))?;
        if let Some(found) = self.streams.get(&stream) {
            found.break_off();
        }
        self.reset(stream, reason);
        Ok(())
    }

    /// Checks that a request has begun the stream (section 5.1, idle).
    fn check_begun(&self, stream: u32) -> Result<(), Malformed> {
        let begun = !stream.is_multiple_of(2)
            && match &self.role {
                Role::Server(accepting) => stream <= accepting.last,
                Role::Client(opening) => stream < opening.next,
            };
        begun
            .then_some(())
            .ok_or(Malformed::protocol("a frame on an idle stream"))
    }
}

const TOO_LARGE: Malformed = Malformed::flow("a flow-control window above 2^31-1");
const ENDED: Malformed = Malformed::new(Reason::StreamClosed, "a frame on a closed stream");

fn calm(allowed: bool) -> Result<(), Closed> {
    allowed.then_some(()).ok_or(Closed::Flood)
}

#[cfg(test)]
#[path = "dispatch_tests.rs"]
mod tests;
