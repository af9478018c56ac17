//! Limits the input that a multiplexed connection handles in one turn.
//!
//! Handling small frames costs much more than their size suggests. Therefore input is handled only up to a cost, and
//! the rest in the next [turn](crate::net::fairness).

use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::net::fairness::{self, Turn};
use crate::net::io::Io;
use crate::os::memory;
use crate::protocol::http1;

/// Maximum cost of a turn in bytes, to which each frame and each request adds a fixed number; more with few clients
/// ([`fairness::turn_length`]). A turn takes some tens of microseconds of CPU time, or a few hundred if it consists of
/// requests only.
const TURN: usize = 64 * 1024;
pub(crate) const BY_FRAME: usize = 512;
pub(crate) const BY_REQUEST: usize = 8 * 1024;
/// Size of a read in bytes, at first and after small frames, in a turn of the usual length: input that is not handled in
/// this turn has to be kept.
const SMALL_READ: usize = 2 * 1024;
const READ: usize = 64 * 1024;
/// Ratio of cost to bytes above which frames are small.
const SMALL_FRAMES: usize = 4;

/// Reads and keeps the input of a connection.
#[derive(Debug)]
pub(crate) struct Intake {
    /// Bytes that were read and not yet handled.
    unread: Bytes,
    /// Whether the last input consisted of small frames.
    small: bool,
    turn: Turn,
}

impl Default for Intake {
    fn default() -> Self {
        Self::after(Bytes::new())
    }
}

impl Intake {
    /// Creates the intake of a connection from which `prefix` was already read.
    pub(crate) fn after(prefix: Bytes) -> Self {
        Self {
            unread: prefix,
            small: true,
            turn: Turn::default(),
        }
    }

    /// Reads until the socket has no further input or the turn's budget is used up; becomes ready when the
    /// connection cannot continue.
    ///
    /// `take` is called with the input, which is empty at the end of the stream, and the remaining budget. It
    /// advances the input and returns the cost in addition to the bytes. `failed` converts an error of the socket.
    pub(crate) fn poll<E>(
        &mut self,
        io: &mut Io,
        cx: &mut Context<'_>,
        failed: impl FnOnce(io::ErrorKind) -> E,
        mut take: impl FnMut(&mut &[u8], usize) -> Result<usize, E>,
    ) -> Poll<E> {
        if self.turn.is_queued() {
            // A stream has woken the connection, and its output must not wait.
            self.turn.queue(cx);
            return Poll::Pending;
        }
        let mut left = fairness::turn_length(TURN);
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
        let most = match self.small {
            true => fairness::turn_length(SMALL_READ),
            false => READ,
        };
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
        // An empty slice does not keep the buffer alive.
        self.unread = self.unread.slice(taken..);
        Ok(taken + cost)
    }
}
