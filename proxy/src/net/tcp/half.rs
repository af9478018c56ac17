//! One direction of a tunnel.

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::splice::{self, Pipe};
use crate::net::io::Io;

/// Size of the thread's buffer: the plain text of one TLS record. A read that fills the buffer is taken as the start
/// of bulk data.
const BUFFER: usize = 16 * 1024;
/// Maximum number of reads before other tasks get a turn.
const ROUNDS: usize = 16;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER].into());
}

/// The failed operation.
pub(super) enum Fault {
    Read(ErrorKind),
    Write(ErrorKind),
}

/// One direction of a tunnel. At most one of `buffered` and `pipe` holds bytes.
pub(super) struct Half {
    /// Bytes that are read but not written.
    buffered: Bytes,
    /// Pipe for splicing; `None` unless bytes flow.
    pipe: Option<Pipe>,
    pub(super) written: u64,
    /// Whether both ends are plain sockets that can be spliced.
    can_splice: bool,
    /// Whether the last read was large, so that splicing is better than copying.
    bulk: bool,
    /// Whether the target may hold unsent bytes (TLS).
    unflushed: bool,
    /// Whether the source has ended.
    ended: bool,
    /// Whether the end was passed on to the target, or writing to it failed.
    pub(super) done: bool,
    /// Whether bytes were moved since the owner last checked.
    pub(super) active: bool,
}

impl Half {
    pub(super) fn new(prefix: Bytes, can_splice: bool) -> Self {
        Self {
            buffered: prefix,
            pipe: None,
            written: 0,
            can_splice,
            bulk: false,
            unflushed: false,
            ended: false,
            done: false,
            active: false,
        }
    }

    /// Transfers until no more progress is possible; the task is woken when it is again.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Io,
        target: &mut Io,
        mut on_bytes: impl FnMut(u64),
    ) -> Result<(), Fault> {
        for _ in 0..ROUNDS {
            if self.done {
                return Ok(());
            }
            match self.round(cx, source, target, &mut on_bytes) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(fault)) => {
                    self.done = true;
                    self.buffered = Bytes::new();
                    self.pipe = None;
                    return Err(fault);
                }
                Poll::Pending => return Ok(()),
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Writes pending bytes, then reads once.
    fn round(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Io,
        target: &mut Io,
        on_bytes: &mut impl FnMut(u64),
    ) -> Poll<Result<(), Fault>> {
        ready!(self.poll_write(cx, target, on_bytes))?;
        if self.ended {
            return self.poll_end(cx, target);
        }
        let read = match source {
            Io::Tcp(source) if self.bulk => self.poll_fill(cx, source),
            source => self.poll_copy(cx, source, target, on_bytes),
        };
        if read.is_pending() {
            self.release();
            if self.unflushed {
                ready!(Pin::new(target).poll_flush(cx)).map_err(|e| Fault::Write(e.kind()))?;
                self.unflushed = false;
            }
        }
        read
    }

    /// Writes the buffered or piped bytes.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        target: &mut Io,
        on_bytes: &mut impl FnMut(u64),
    ) -> Poll<Result<(), Fault>> {
        while !self.buffered.is_empty() {
            let n = ready!(Pin::new(&mut *target).poll_write(cx, &self.buffered));
            let n = self.wrote(n, on_bytes)?;
            self.buffered.advance(n);
        }
        // Frees the memory of the empty buffer.
        self.buffered = Bytes::new();
        while let Some(pipe) = self.pipe.as_mut().filter(|pipe| pipe.len() > 0) {
            let n = ready!(pipe.poll_drain(cx, target.tcp()));
            self.wrote(n, on_bytes)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Counts a write.
    fn wrote(
        &mut self,
        result: io::Result<usize>,
        on_bytes: &mut impl FnMut(u64),
    ) -> Result<usize, Fault> {
        match result {
            Ok(0) => Err(Fault::Write(ErrorKind::WriteZero)),
            Ok(n) => {
                self.written += n as u64;
                self.active = true;
                self.unflushed = true;
                on_bytes(n as u64);
                Ok(n)
            }
            Err(error) => Err(Fault::Write(error.kind())),
        }
    }

    /// Returns the empty pipe to the pool.
    fn release(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            pipe.put_back();
        }
    }

    /// Shuts down the target's write side.
    fn poll_end(&mut self, cx: &mut Context<'_>, target: &mut Io) -> Poll<Result<(), Fault>> {
        match ready!(Pin::new(target).poll_shutdown(cx)) {
            // The target was reset after it had received everything.
            Err(error) if error.kind() != ErrorKind::NotConnected => {
                return Poll::Ready(Err(Fault::Write(error.kind())));
            }
            _ => {
                self.done = true;
                self.release();
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads into the thread's buffer, writes immediately, and keeps the rest.
    fn poll_copy(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Io,
        target: &mut Io,
        on_bytes: &mut impl FnMut(u64),
    ) -> Poll<Result<(), Fault>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buf = ReadBuf::new(scratch);
            match ready!(Pin::new(source).poll_read(cx, &mut buf)) {
                // A TLS connection closed without close_notify.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
                Err(error) => return Poll::Ready(Err(Fault::Read(error.kind()))),
                Ok(()) => {}
            }
            let bytes = buf.filled();
            self.active = true;
            self.ended = bytes.is_empty();
            self.bulk = self.can_splice && bytes.len() == BUFFER;
            if self.ended {
                return Poll::Ready(Ok(()));
            }
            let taken = match Pin::new(target).poll_write(cx, bytes) {
                Poll::Ready(result) => self.wrote(result, on_bytes)?,
                Poll::Pending => 0,
            };
            self.buffered = Bytes::copy_from_slice(&bytes[taken..]);
            Poll::Ready(Ok(()))
        })
    }

    /// Reads into the pipe.
    fn poll_fill(&mut self, cx: &mut Context<'_>, source: &TcpStream) -> Poll<Result<(), Fault>> {
        ready!(source.poll_read_ready(cx)).map_err(|e| Fault::Read(e.kind()))?;
        let pipe = match self.pipe.take() {
            Some(pipe) => Ok(pipe),
            None => Pipe::take(),
        };
        // No descriptor is left; copying needs none.
        let Ok(mut pipe) = pipe else {
            (self.bulk, self.can_splice) = (false, false);
            return Poll::Ready(Ok(()));
        };
        let result = pipe.fill(source);
        self.pipe = Some(pipe);
        match result {
            Ok(n) => {
                self.active = true;
                self.ended = n == 0;
                self.bulk = n >= BUFFER / 2;
            }
            // The socket was not ready after all; the next round waits.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if splice::unsupported(&error) => {
                (self.bulk, self.can_splice) = (false, false);
            }
            Err(error) => return Poll::Ready(Err(Fault::Read(error.kind()))),
        }
        Poll::Ready(Ok(()))
    }
}
