//! The response to a request that this side has sent, as it arrives on a stream (RFC 9113, section 8.1).

use super::closed::Failed;
use super::connection::{FrameOutcome, Opening, Stream};
use super::head::Unfit;
use super::reason::Reason;
use crate::protocol::http1::Limits;
use crate::protocol::streams::ResponseHead;

/// Limits of the heads of responses, as in HTTP/1.1.
pub(super) const LIMITS: Limits = Limits {
    bytes: 128 * 1024,
    headers: 256,
};
/// Maximum number of concurrent streams until the server's settings are known: the least that the RFC recommends
/// to servers (section 6.5.2).
const FIRST_STREAMS: u32 = 100;

impl Opening {
    pub(super) fn new(window: u32) -> Self {
        Self {
            window,
            next: 1,
            max_streams: FIRST_STREAMS,
            settled: false,
            gone: false,
            waiting: Vec::new(),
        }
    }

    /// Applies settings of the server; `None` if they do not contain the maximum number of streams.
    pub(super) fn allow(&mut self, max_streams: Option<u32>) {
        let first = !std::mem::replace(&mut self.settled, true);
        match max_streams {
            Some(most) => self.max_streams = most,
            None if first => self.max_streams = u32::MAX,
            None => {}
        }
        self.waiting.drain(..).for_each(std::task::Waker::wake);
    }
}

impl Stream {
    /// Returns whether the next field block is the head of a response.
    pub(super) fn awaits_head(&self) -> bool {
        let state = self.state.borrow();
        state.answer.as_ref().is_some_and(|answer| !answer.here)
    }

    /// Records the head of a response.
    pub(super) fn answered(&self, head: Result<ResponseHead, Unfit>, end: bool) -> FrameOutcome {
        let state = &mut *self.state.borrow_mut();
        match head {
            Ok(head) => state.answered(head, end),
            Err(Unfit::Refused(error)) => state.wrong(error),
            Err(Unfit::Malformed) => state.wrong(Failed::Malformed),
        }
    }

    /// Records that the server is closing the connection and will not process the request.
    pub(super) fn turned_away(&self, reason: Reason) {
        self.state.borrow_mut().fail(match reason {
            Reason::NoError => Failed::Refused,
            reason => Failed::Reset(reason),
        });
    }
}
