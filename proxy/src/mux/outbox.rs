//! Frames on their way out: small ones are gathered, large pieces of bodies are written from where they
//! are.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncWrite;

use super::frame::{self, HEADER, MAX_PAYLOAD, flag, kind};
use crate::io::Io;

/// Data up to this size is copied behind its header.
const COPY_LIMIT: usize = 8 * 1024;
/// With so much waiting, streams wait, too.
const HIGH_WATER: usize = 32 * 1024;
/// More than this waits only where a peer makes us answer and does not read.
const BACKLOG: usize = 1024 * 1024;
/// Pieces in one write.
const PIECES: usize = 16;
/// A buffer of this size is kept while nothing waits.
const KEPT: usize = 4 * 1024;

/// In order: `pieces`, `tail`.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pieces: VecDeque<Bytes>,
    /// Bytes of `pieces`.
    queued: usize,
    tail: BytesMut,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.tail.is_empty()
    }

    fn len(&self) -> usize {
        self.queued + self.tail.len()
    }

    /// Whether streams may add to it.
    pub(super) fn has_room(&self) -> bool {
        self.len() < HIGH_WATER
    }

    /// How many streams could add a frame.
    pub(super) fn room(&self) -> usize {
        HIGH_WATER.saturating_sub(self.len()).div_ceil(MAX_PAYLOAD)
    }

    pub(super) fn is_backlog(&self) -> bool {
        self.len() > BACKLOG
    }

    /// Adds a frame of numbers.
    pub(super) fn words(&mut self, kind: u8, stream: u32, words: &[u32]) {
        frame::encode_words(kind, stream, words, &mut self.tail);
    }

    /// Adds a piece of a body, of at most [`MAX_PAYLOAD`] bytes.
    pub(super) fn data(&mut self, stream: u32, piece: Bytes, end: bool) {
        let flags = if end { flag::END } else { 0 };
        let header = frame::header(piece.len(), kind::DATA, flags, stream);
        self.tail.reserve(HEADER + piece.len().min(COPY_LIMIT));
        self.tail.extend_from_slice(&header);
        if piece.len() <= COPY_LIMIT {
            self.tail.extend_from_slice(&piece);
            return;
        }
        let gathered = self.tail.split().freeze();
        self.push(gathered);
        self.push(piece);
    }

    fn push(&mut self, piece: Bytes) {
        self.queued += piece.len();
        self.pieces.push_back(piece);
    }

    /// Adds a text, which `write` appends to what it is given, in as many frames as it takes.
    pub(super) fn text(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        write: impl FnOnce(&mut BytesMut),
    ) {
        let tail = &mut self.tail;
        let start = tail.len();
        tail.extend_from_slice(&[0; HEADER]);
        write(tail);
        let length = tail.len() - start - HEADER;
        if length <= MAX_PAYLOAD {
            let header = frame::header(length, kind, flags, stream);
            tail[start..start + HEADER].copy_from_slice(&header);
            return;
        }
        let text = tail.split_off(start + HEADER);
        tail.truncate(start);
        let mut parts = text.chunks(MAX_PAYLOAD).peekable();
        while let Some(part) = parts.next() {
            let more = if parts.peek().is_some() {
                flag::MORE
            } else {
                0
            };
            let header = frame::header(part.len(), kind, flags | more, stream);
            tail.extend_from_slice(&header);
            tail.extend_from_slice(part);
        }
    }

    /// Writes until nothing is left.
    pub(super) fn poll_flush(&mut self, io: &mut Io, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_empty() {
            // TLS may have kept what the socket did not take.
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
            // Keeps the allocation, forgets the consumed front.
            self.tail.clear();
        }
    }

    /// Gives back what a burst has left; to be called while nothing waits.
    pub(super) fn shrink(&mut self) {
        if self.is_empty() && self.tail.capacity() > KEPT {
            *self = Self::default();
        }
    }
}
