//! Tells an HTTP/2 client not to begin new streams, some time before the connection stops taking
//! them (RFC 9113, section 6.8).
//!
//! h2 waits for one round trip between the two GOAWAY frames of a graceful shutdown. That is too
//! short: a client may answer the ping before it sends the streams that it has begun already. So a
//! first GOAWAY is sent from here, below h2, which goes on taking streams meanwhile.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::memory;

/// GOAWAY on the connection: the last stream is the last possible one, no error.
const GOAWAY: [u8; 17] = [
    0, 0, 8, 0x7, 0, 0, 0, 0, 0, // a frame of 8 bytes
    0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0,
];

/// Says that the frame is to be sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Farewell(Rc<Cell<State>>);

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// Nothing to send: not yet asked for, or done.
    #[default]
    Quiet,
    /// To be sent, or cut off after so many bytes.
    Sending(usize),
}

impl Farewell {
    /// Sends the frame when the connection is polled next. To be called once.
    pub(super) fn say(&self) {
        self.0.set(State::Sending(0));
    }

    /// The stream that sends it.
    pub(super) fn over<T>(&self, inner: T) -> Over<T> {
        Over {
            inner,
            state: Rc::clone(&self.0),
        }
    }
}

/// A stream with a place for the frame.
#[derive(Debug)]
pub(super) struct Over<T> {
    inner: T,
    state: Rc<Cell<State>>,
}

impl<T: AsyncWrite + Unpin> Over<T> {
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let State::Sending(sent) = self.state.get() {
            let n = ready!(Pin::new(&mut self.inner).poll_write(cx, &GOAWAY[sent..]))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let sent = sent + n;
            self.state.set(match sent == GOAWAY.len() {
                true => State::Quiet,
                false => State::Sending(sent),
            });
        }
        Poll::Ready(Ok(()))
    }

    /// Between two writes there may be a part of a frame of h2's; but not of ours.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.state.get() {
            State::Quiet | State::Sending(0) => Poll::Ready(Ok(())),
            State::Sending(_) => self.poll_send(cx),
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Over<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(memory::poll_read(cx));
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Over<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_rest(cx))?;
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_rest(cx))?;
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    /// h2 flushes when it has written all it has, the settings of its preface first of all: a frame
    /// fits here.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn the_frame_is_sent_once_and_only_at_a_flush() {
        let (near, mut far) = duplex(1000);
        let farewell = Farewell::default();
        let mut over = farewell.over(near);
        over.write_all(b"half a fr").await.unwrap();
        farewell.say();
        over.write_all(b"ame").await.unwrap();
        over.flush().await.unwrap();
        over.write_all(b"next").await.unwrap();
        over.flush().await.unwrap();
        drop(over);
        let mut sent = Vec::new();
        far.read_to_end(&mut sent).await.unwrap();
        assert_eq!(sent, [&b"half a frame"[..], &GOAWAY, b"next"].concat());
    }

    #[tokio::test]
    async fn a_frame_that_is_cut_off_comes_before_what_is_written_next() {
        let (near, mut far) = duplex(5);
        let farewell = Farewell::default();
        let mut over = farewell.over(near);
        farewell.say();
        let cut = tokio::time::timeout(Duration::from_millis(10), over.flush()).await;
        assert!(cut.is_err(), "17 bytes do not fit in 5");
        let write = async {
            over.write_all(b"next").await.unwrap();
            drop(over);
        };
        let mut sent = Vec::new();
        let (_, read) = tokio::join!(write, far.read_to_end(&mut sent));
        read.unwrap();
        assert_eq!(sent, [&GOAWAY[..], b"next"].concat());
    }
}
