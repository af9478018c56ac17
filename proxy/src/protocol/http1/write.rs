//! The outgoing side of a connection: small pieces are gathered, large ones are written from where
//! they are.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use tokio::io::AsyncWrite;

use super::framing;
use crate::net::io::Io;

/// Data up to this size is copied behind the head, so that one `write` takes both.
const COPY_LIMIT: usize = 8 * 1024;
/// With so much gathered it is time to write.
const HIGH_WATER: usize = 16 * 1024;

/// Bytes on their way out, in order: `gathered`, `large`, `tail`.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) gathered: BytesMut,
    large: Bytes,
    /// The CRLF after a large chunk.
    tail: &'static [u8],
    /// Bytes written so far; shows whether the peer takes any.
    written: u64,
}

impl Output {
    /// Bytes written so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.gathered.is_empty() && self.large.is_empty() && self.tail.is_empty()
    }

    /// Whether more can be taken before something is written.
    pub(crate) fn has_room(&self) -> bool {
        self.large.is_empty() && self.tail.is_empty() && self.gathered.len() < HIGH_WATER
    }

    /// Adds body data; only while [`Output::has_room`].
    pub(crate) fn push_data(&mut self, data: Bytes, chunked: bool) {
        debug_assert!(self.has_room());
        if data.is_empty() {
            return;
        }
        if chunked {
            framing::encode_chunk_size(data.len(), &mut self.gathered);
        }
        let end: &'static [u8] = if chunked { b"\r\n" } else { b"" };
        if data.len() <= COPY_LIMIT {
            self.gathered.extend_from_slice(&data);
            self.gathered.extend_from_slice(end);
        } else {
            self.large = data;
            self.tail = end;
        }
    }

    /// Ends a chunked body; only while [`Output::has_room`].
    pub(crate) fn push_chunked_end(&mut self, trailers: Option<&HeaderMap>) {
        framing::encode_chunked_end(trailers, &mut self.gathered);
    }

    /// Writes until nothing is left.
    pub(crate) fn poll_flush(&mut self, io: &mut Io, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let n = if self.large.is_empty() && self.tail.is_empty() {
                ready!(Pin::new(&mut *io).poll_write(cx, &self.gathered))?
            } else {
                let parts = [
                    IoSlice::new(&self.gathered),
                    IoSlice::new(&self.large),
                    IoSlice::new(self.tail),
                ];
                ready!(Pin::new(&mut *io).poll_write_vectored(cx, &parts))?
            };
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(n);
        }
        if io.is_tls() {
            ready!(Pin::new(&mut *io).poll_flush(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, mut n: usize) {
        self.written = self.written.wrapping_add(n as u64);
        let step = n.min(self.gathered.len());
        self.gathered.advance(step);
        n -= step;
        let step = n.min(self.large.len());
        self.large.advance(step);
        self.tail = &self.tail[n - step..];
        if self.large.is_empty() {
            // Do not keep the peer's buffer alive by an empty slice.
            self.large = Bytes::new();
        }
        if self.gathered.is_empty() {
            // Keeps the allocation, forgets the consumed front.
            self.gathered.clear();
        }
    }
}
