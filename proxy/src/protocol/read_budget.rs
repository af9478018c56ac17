//! What a connection of many streams reads in a turn.
//!
//! Small frames cost much more than their bytes: what is read is taken only up to a cost, and the rest of it in the next
//! [turn](crate::net::fairness).

use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::net::fairness::Turn;
use crate::net::io::Io;
use crate::os::memory;
use crate::protocol::http1;

/// What may be taken in a turn: bytes, and so many besides for each frame and each request. A turn is some tens of
/// microseconds of the processor, or some hundred where it is all requests.
const TURN: usize = 64 * 1024;
pub(crate) const BY_FRAME: usize = 512;
pub(crate) const BY_REQUEST: usize = 8 * 1024;
/// After small frames, and at first, so much is read at once: what is not taken in this turn is kept.
const SMALL_READ: usize = 1024;
const READ: usize = 64 * 1024;
/// Frames whose cost is a multiple of their bytes.
const SMALL_FRAMES: usize = 4;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Intake {
    /// What was read and not yet taken.
    unread: Bytes,
    /// What was read last were small frames.
    small: bool,
    turn: Turn,
}

impl Default for Intake {
    fn default() -> Self {
        Self::after(Bytes::new())
    }
}

impl Intake {
    /// Of a connection of which some bytes were read already.
    pub(crate) fn after(prefix: Bytes) -> Self {
        Self {
            unread: prefix,
            small: true,
            turn: Turn::default(),
        }
    }

    /// Reads until nothing more has come or the turn is used up; ready when the connection cannot go on. `take` gets what
    /// was read, nothing at the end of the stream, and what may be spent on it. It advances what it gets and returns the
    /// cost besides the bytes; `failed` makes an error of one of the socket.
    pub(crate) fn poll<E>(
        &mut self,
        io: &mut Io,
        cx: &mut Context<'_>,
        failed: impl FnOnce(io::ErrorKind) -> E,
        mut take: impl FnMut(&mut &[u8], usize) -> Result<usize, E>,
    ) -> Poll<E> {
        if self.turn.is_queued() {
            // Woken by one of its streams: what that has to say does not wait.
            self.turn.queue(cx);
            return Poll::Pending;
        }
        let mut left = TURN;
        while left > 0 {
            ready!(memory::poll_read(cx));
            let taken = match self.unread.is_empty() {
                false => self.take_unread(left, &mut take),
                true => match ready!(self.poll_read(io, cx, left, &mut take)) {
                    Ok(taken) => taken,
                    Err(error) => return Poll::Ready(failed(error.kind())),
                },
            };
            match taken {
                Ok(cost) => left = left.saturating_sub(cost),
                Err(error) => return Poll::Ready(error),
            }
        }
        self.turn.queue(cx);
        Poll::Pending
    }

    fn poll_read<E>(
        &mut self,
        io: &mut Io,
        cx: &mut Context<'_>,
        left: usize,
        take: &mut impl FnMut(&mut &[u8], usize) -> Result<usize, E>,
    ) -> Poll<io::Result<Result<usize, E>>> {
        let most = if self.small { SMALL_READ } else { READ };
        http1::poll_read_some(io, cx, most, |bytes| {
            let mut rest = bytes;
            let cost = take(&mut rest, left)?;
            let taken = bytes.len() - rest.len();
            self.small = cost > SMALL_FRAMES * taken;
            if !rest.is_empty() {
                self.unread = Bytes::copy_from_slice(rest);
            }
            Ok(taken + cost)
        })
    }

    fn take_unread<E>(
        &mut self,
        left: usize,
        take: &mut impl FnMut(&mut &[u8], usize) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let mut rest = &self.unread[..];
        let cost = take(&mut rest, left)?;
        let taken = self.unread.len() - rest.len();
        // Of nothing it holds nothing.
        self.unread = self.unread.slice(taken..);
        Ok(taken + cost)
    }
}
