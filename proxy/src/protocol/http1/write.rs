//! The output of a connection: small pieces are gathered in a buffer, large ones are written without copying.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use tokio::io::AsyncWrite;

use super::framing;
use crate::net::io::Io;

/// Maximum size in bytes of data that is copied after the head, so that both are sent by one `write`.
const COPY_LIMIT: usize = 8 * 1024;
/// Number of gathered bytes from which they are written to the socket.
const HIGH_WATER: usize = 16 * 1024;

/// Capacity in bytes above which a buffer is freed.
const KEPT: usize = 8 * 1024;

/// Pending output, in order: `gathered`, `large`.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Boxed, as `large`; `None` while no small piece is pending.
    gathered: Option<Box<BytesMut>>,
    /// Boxed: every waiting request would reserve the space.
    large: Option<Box<Large>>,
    /// Number of bytes written so far, which shows whether the peer reads.
    written: u64,
}

/// A piece of a body that is written without copying.
#[derive(Debug)]
struct Large {
    data: Bytes,
    /// The CRLF that follows a chunk.
    tail: &'static [u8],
}

impl Large {
    fn advance(&mut self, n: usize) {
        let step = n.min(self.data.len());
        self.data.advance(step);
        self.tail = &self.tail[n - step..];
    }

    fn is_empty(&self) -> bool {
        self.data.is_empty() && self.tail.is_empty()
    }
}

thread_local! {
    /// A buffer for gathered output. Most output is accepted by its socket at once, so that the connections of a thread
    /// need one, and a waiting connection holds none.
    static FREE: Cell<Option<Box<BytesMut>>> = const { Cell::new(None) };
}

impl Output {
    /// Returns the buffer for small pieces; only while [`Output::has_room`].
    pub(crate) fn gathered(&mut self) -> &mut BytesMut {
        self.gathered
            .get_or_insert_with(|| FREE.take().unwrap_or_default())
    }

    /// Returns the small pieces.
    fn pending(&self) -> &[u8] {
        self.gathered.as_ref().map_or(&[], |gathered| gathered)
    }

    /// Returns the memory of the buffer for small pieces.
    pub(crate) fn capacity(&self) -> usize {
        self.gathered.as_ref().map_or(0, |buffer| buffer.capacity())
    }

    /// Returns the number of bytes written so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending().is_empty() && self.large.is_none()
    }

    /// Returns whether more can be added before pending output is written.
    pub(crate) fn has_room(&self) -> bool {
        self.large.is_none() && self.pending().len() < HIGH_WATER
    }

    /// Adds body data; only while [`Output::has_room`].
    pub(crate) fn push_data(&mut self, data: Bytes, chunked: bool) {
        debug_assert!(self.has_room());
        if data.is_empty() {
            return;
        }
        if chunked {
            framing::encode_chunk_size(data.len(), self.gathered());
        }
        let end: &'static [u8] = if chunked { b"\r\n" } else { b"" };
        if data.len() <= COPY_LIMIT {
            let gathered = self.gathered();
            gathered.extend_from_slice(&data);
            gathered.extend_from_slice(end);
        } else {
            self.large = Some(Box::new(Large { data, tail: end }));
        }
    }

    /// Ends a chunked body; only while [`Output::has_room`].
    pub(crate) fn push_chunked_end(&mut self, trailers: Option<&HeaderMap>) {
        framing::encode_chunked_end(trailers, self.gathered());
    }

    /// Writes until nothing is left.
    pub(crate) fn poll_flush(&mut self, io: &mut Io, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let n = match &self.large {
                None => ready!(Pin::new(&mut *io).poll_write(cx, self.pending()))?,
                Some(large) => {
                    let parts = [
                        IoSlice::new(self.pending()),
                        IoSlice::new(&large.data),
                        IoSlice::new(large.tail),
                    ];
                    ready!(Pin::new(&mut *io).poll_write_vectored(cx, &parts))?
                }
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

    /// Leaves the empty buffer to the next output of the thread.
    fn release(&mut self) {
        let Some(mut gathered) = self.gathered.take() else {
            return;
        };
        // Makes the consumed bytes free again.
        gathered.clear();
        gathered.reserve(1);
        if gathered.capacity() <= KEPT {
            FREE.set(Some(gathered));
        }
    }

    fn advance(&mut self, mut n: usize) {
        self.written = self.written.wrapping_add(n as u64);
        if let Some(gathered) = &mut self.gathered {
            let step = n.min(gathered.len());
            gathered.advance(step);
            n -= step;
        }
        if let Some(large) = &mut self.large {
            large.advance(n);
            if large.is_empty() {
                self.large = None;
            }
        }
        if self.pending().is_empty() {
            self.release();
        }
    }
}
