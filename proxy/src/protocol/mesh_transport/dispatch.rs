//! Applies each frame to its stream and to the connection.

use std::rc::Rc;

use tokio::time::Instant;

use super::connection::{Channel, Closed, Core, FrameOutcome, Role, Stream};
use super::frame::{Frame, Malformed, encode_words, kind};
use crate::protocol::streams::End;

impl Core {
    /// # Errors
    /// If the peer may not send such a frame now; the connection must then end.
    pub(super) fn take(
        &mut self,
        channel: &Rc<Channel>,
        frame: Frame<'_>,
        now: &mut Option<Instant>,
    ) -> Result<(), Closed> {
        self.bound(&frame, now)?;
        match frame {
            Frame::Data { stream, bytes, end } => self.data(stream, bytes, end)?,
            Frame::Head {
                stream,
                text,
                end,
                http2,
            } => match &self.role {
                Role::Server(_) => {
                    let arrived = *now.get_or_insert_with(Instant::now);
                    self.accept(channel, stream, text, (end, http2), arrived)?;
                }
                Role::Client(_) => self.deliver(stream, kind::HEAD, |s| s.head(text, end))?,
            },
            Frame::Trailers { stream, text } => {
                self.deliver(stream, kind::TRAILERS, |s| s.trailers(text))?;
            }
            Frame::Reset { stream, reason } => {
                self.check_known(stream, kind::RESET)?;
                if let Some(found) = self.take_stream(stream, End::ResetByPeer) {
                    found.given_up(reason);
                }
            }
            Frame::Window { stream, increment } => self.credit(stream, increment)?,
            Frame::Ping(number) => {
                let words = [(number >> 32) as u32, number as u32];
                encode_words(kind::PONG, 0, &words, self.output.tail());
            }
            Frame::Goaway { last, .. } => self.gone(last),
            Frame::Settings { max_streams } => {
                if let Role::Client(opening) = &mut self.role {
                    opening.max_streams = max_streams;
                }
            }
            Frame::Pong(_) | Frame::Silent => {}
        }
        Ok(())
    }

    /// Applies the limits on frames that are cheap to send.
    fn bound(&mut self, frame: &Frame<'_>, now: &mut Option<Instant>) -> Result<(), Closed> {
        // The clock is read once for all frames that were read together.
        let mut now = || *now.get_or_insert_with(Instant::now);
        let is_server = matches!(self.role, Role::Server(_));
        let allowed = match *frame {
            Frame::Data { .. } => {
                self.flood.data_received();
                true
            }
            Frame::Head { stream, .. } => {
                self.flood.opened(stream, now());
                true
            }
            Frame::Reset { stream, .. } => !is_server || self.flood.allows_reset(stream, now()),
            Frame::Trailers { .. } => true,
            _ => self.flood.allows_control(),
        };
        allowed.then_some(()).ok_or(Closed::Flood)
    }

    fn data(&mut self, stream: u32, bytes: &[u8], end: bool) -> Result<(), Malformed> {
        // A frame is at most 16 kB long.
        if !self.arrived(bytes.len() as u32) {
            return Err(Malformed::FlowControl);
        }
        self.deliver(stream, kind::DATA, |s| s.data(bytes, end))
    }

    /// Passes a frame to a stream, if the stream still exists.
    fn deliver(
        &mut self,
        stream: u32,
        kind: u8,
        deliver: impl FnOnce(&Stream) -> Result<FrameOutcome, Malformed>,
    ) -> Result<(), Malformed> {
        let Some(found) = self.streams.get(&stream) else {
            return self.check_known(stream, kind);
        };
        match deliver(found)? {
            FrameOutcome::Open => {}
            FrameOutcome::Closed => self.over(stream),
            FrameOutcome::Violation(reason) => self.reset(stream, reason),
        }
        Ok(())
    }

    /// Checks that a missing stream existed earlier.
    fn check_known(&self, stream: u32, kind: u8) -> Result<(), Malformed> {
        let known = match &self.role {
            Role::Client(opening) => stream < opening.next,
            Role::Server(accepting) => stream <= accepting.last,
        };
        known.then_some(()).ok_or(Malformed::Stream(kind))
    }

    fn credit(&mut self, stream: u32, increment: u32) -> Result<(), Malformed> {
        if stream == 0 {
            return match self.grow(increment) {
                true => Ok(()),
                false => Err(Malformed::FlowControl),
            };
        }
        self.deliver(stream, kind::WINDOW, |s| match s.resize(increment.into()) {
            true => Ok(FrameOutcome::Open),
            false => Err(Malformed::FlowControl),
        })
    }

    fn gone(&mut self, last: u32) {
        let Role::Client(opening) = &mut self.role else {
            return;
        };
        opening.gone = true;
        let unseen = self.streams.extract_if(|stream, _| *stream > last);
        for (_, stream) in unseen {
            stream.go_unseen();
        }
    }
}
