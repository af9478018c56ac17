//! The socket below hyper, with a way to write before hyper does.
//!
//! hyper's server cannot send interim responses. A behaviour that needs one stores its bytes in the
//! connection's [`Interim`]; they are sent before the next bytes that hyper writes, which are the
//! head of the final response.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes to write before any others.
#[derive(Clone, Debug, Default)]
pub(super) struct Interim(Arc<Mutex<Vec<u8>>>);

impl Interim {
    pub(super) fn push(&self, bytes: &[u8]) {
        self.0.lock().unwrap().extend_from_slice(bytes);
    }
}

/// A stream whose writes are preceded by the bytes of [`Interim`].
#[derive(Debug)]
pub(super) struct Preceded<S> {
    stream: S,
    interim: Interim,
}

impl<S: AsyncWrite + Unpin> Preceded<S> {
    pub(super) fn new(stream: S, interim: Interim) -> Self {
        Self { stream, interim }
    }

    fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pending = self.interim.0.lock().unwrap();
        while !pending.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &pending))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            pending.drain(..written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Preceded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Preceded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_interim(cx))?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_interim(cx))?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
