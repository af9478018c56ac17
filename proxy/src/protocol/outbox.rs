//! Pending output of a connection that many streams share: small frames are gathered, large pieces of bodies are
//! written without copying. The protocols determine the format of frames.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncWrite;

use crate::net::io::Io;

/// Maximum number of body bytes in one frame.
const PIECE: usize = 16 * 1024;
/// Maximum size in bytes of data that is copied after its frame header.
const COPY_LIMIT: usize = 8 * 1024;
/// Number of pending bytes above which streams wait.
const HIGH_WATER: usize = 32 * 1024;
/// Maximum number of pending bytes; only a peer that causes responses and does not read them exceeds it.
const BACKLOG: usize = 1024 * 1024;
/// Maximum number of pieces in one write.
const PIECES: usize = 16;
/// Capacity in bytes of the buffer that is kept while no output is pending.
const KEPT: usize = 4 * 1024;

/// Pending output, in order: `pieces`, `tail`.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pieces: VecDeque<Bytes>,
    /// Number of bytes in `pieces`.
    queued: usize,
    tail: BytesMut,
    /// Tasks that wait for room.
    waiting: VecDeque<Waker>,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.tail.is_empty()
    }

    fn len(&self) -> usize {
        self.queued + self.tail.len()
    }

    /// Becomes ready when streams may add output.
    pub(crate) fn poll_room(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.len() < HIGH_WATER {
            return Poll::Ready(());
        }
        if !self.waiting.iter().any(|one| one.will_wake(cx.waker())) {
            self.waiting.push_back(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Wakes as many waiting tasks as could add a frame; returns whether others still wait although there is room.
    pub(crate) fn wake_waiting(&mut self) -> bool {
        let room = HIGH_WATER.saturating_sub(self.len()).div_ceil(PIECE);
        let room = room.min(self.waiting.len());
        self.waiting.drain(..room).for_each(Waker::wake);
        room > 0 && !self.waiting.is_empty()
    }

    /// Wakes all waiting tasks, because nothing can be sent any more.
    pub(crate) fn wake_all(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
    }

    pub(crate) fn is_backlog(&self) -> bool {
        self.len() > BACKLOG
    }

    /// Returns the buffer for small frames.
    pub(crate) fn tail(&mut self) -> &mut BytesMut {
        &mut self.tail
    }

    /// Adds a piece of a body after the header of its frame.
    pub(crate) fn data(&mut self, header: &[u8], piece: Bytes) {
        self.tail
            .reserve(header.len() + piece.len().min(COPY_LIMIT));
        self.tail.extend_from_slice(header);
        if piece.len() <= COPY_LIMIT {
            self.tail.extend_from_slice(&piece);
            return;
        }
        let gathered = self.tail.split().freeze();
        self.push(gathered);
        self.push(piece);
    }

    /// Adds a text in as many frames as needed. `write` appends the text to its argument; `header` returns the header of a
    /// frame with a part of this length, and whether it is the first and the last one.
    pub(crate) fn text<const HEADER: usize>(
        &mut self,
        most: usize,
        write: impl FnOnce(&mut BytesMut),
        header: impl Fn(usize, bool, bool) -> [u8; HEADER],
    ) {
        let tail = &mut self.tail;
        let start = tail.len();
        tail.extend_from_slice(&[0; HEADER]);
        write(tail);
        let length = tail.len() - start - HEADER;
        if length <= most {
            tail[start..start + HEADER].copy_from_slice(&header(length, true, true));
            return;
        }
        let text = tail.split_off(start + HEADER);
        tail.truncate(start);
        let mut parts = text.chunks(most).peekable();
        let mut first = true;
        while let Some(part) = parts.next() {
            let last = parts.peek().is_none();
            tail.extend_from_slice(&header(part.len(), first, last));
            tail.extend_from_slice(part);
            first = false;
        }
    }

    fn push(&mut self, piece: Bytes) {
        self.queued += piece.len();
        self.pieces.push_back(piece);
    }

    /// Writes until no output is pending.
    pub(crate) fn poll_flush(&mut self, io: &mut Io, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_empty() {
            // TLS may have kept data that the socket did not accept.
            return Pin::new(io).poll_flush(cx);
        }
        while !self.is_empty() {
            let n = if self.pieces.is_empty() {
                ready!(Pin::new(&mut *io).poll_write(cx, &self.tail))?
            } else {
                let mut slices = [IoSlice::new(&[]); PIECES];
                let tail = (self.pieces.len() < PIECES).then_some(&self.tail[..]);
                let parts = self.pieces.iter().map(|piece| &piece[..]).chain(tail);
                let mut count = 0;
                for (slice, part) in slices.iter_mut().zip(parts) {
                    *slice = IoSlice::new(part);
                    count += 1;
                }
                ready!(Pin::new(&mut *io).poll_write_vectored(cx, &slices[..count]))?
            };
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(n);
        }
        Pin::new(io).poll_flush(cx)
    }

    fn advance(&mut self, mut n: usize) {
        while let Some(piece) = self.pieces.front_mut() {
            let step = n.min(piece.len());
            piece.advance(step);
            self.queued -= step;
            n -= step;
            if !piece.is_empty() {
                return;
            }
            self.pieces.pop_front();
        }
        self.tail.advance(n);
        if self.tail.is_empty() {
            // Keeps the allocation and drops the consumed bytes.
            self.tail.clear();
        }
    }

    /// Returns all pending output, for tests without a socket.
    #[cfg(test)]
    pub(crate) fn drain(&mut self) -> Vec<u8> {
        let pieces = std::mem::take(&mut self.pieces);
        self.queued = 0;
        let mut all: Vec<u8> = pieces.into_iter().flatten().collect();
        all.extend_from_slice(&self.tail.split());
        all
    }

    /// Frees the capacity that a burst has left; called while no output is pending.
    pub(crate) fn shrink(&mut self) {
        if !self.is_empty() {
            return;
        }
        // Until then, the capacity is without the bytes that have been written.
        self.tail.reserve(1);
        if self.tail.capacity() > KEPT {
            self.pieces = VecDeque::new();
            self.tail = BytesMut::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_that_was_written_leaves_no_buffer() {
        let mut output = Outbox::default();
        output.tail.extend_from_slice(&[0; 8 * KEPT]);
        // What was written in parts leaves little of the capacity.
        output.advance(8 * KEPT - 1);
        output.advance(1);
        output.shrink();
        assert_eq!(output.tail.capacity(), 0);
        output.tail.extend_from_slice(&[0; KEPT / 2]);
        output.advance(KEPT / 2);
        output.shrink();
        assert!(output.tail.capacity() >= KEPT / 2, "small ones are kept");
    }
}
