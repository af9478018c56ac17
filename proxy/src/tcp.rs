//! A TCP tunnel: bytes from one stream to another, both ways at once.
//!
//! An idle tunnel holds no buffer and no pipe, only its two sockets. Little data is copied through
//! one buffer that all tunnels of the thread share; only what the receiver does not take at once is
//! kept. Much data between two plain sockets goes through a pipe by `splice(2)` and is never copied
//! to user space (see [`splice`]).
//!
//! Each way is its own [`Half`]: it reads only when all that it had read before is written, which is
//! the back-pressure, and passes the end of its source on as a shutdown of its target's write side,
//! while the other way goes on. How a side fails decides what the other one sees:
//!
//! * Reading fails (RST): the other side is reset too, so that it cannot take what it got for all.
//! * Writing fails: the peer may have answered before it closed, so the other way is finished first.
//! * TLS ends without `close_notify`: taken as an end of the bytes, as most peers mean it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use self::splice::Pipe;
use crate::io::Io;

mod splice;
#[cfg(test)]
mod tests;

/// The thread's buffer: a TLS record's plain text. A read that fills it is the beginning of much.
const BUFFER: usize = 16 * 1024;
/// Reads in a row before other tasks get a turn.
const ROUNDS: usize = 16;
/// Stands for "no idle timeout" where the sum of now and the timeout would overflow.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER].into());
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// To the client.
    ToDownstream,
    /// To the endpoint.
    ToUpstream,
}

/// One of the two peers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// The client.
    Downstream,
    /// The endpoint.
    Upstream,
}

/// Why a tunnel ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// Both peers said that they were finished.
    Closed,
    /// `close` was ready.
    Drained,
    /// A connection failed.
    Error {
        /// Whose.
        side: Side,
        /// How.
        kind: ErrorKind,
    },
    /// No byte moved for `idle_timeout`.
    IdleTimeout,
}

/// What a tunnel did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Outcome {
    /// Bytes written to the endpoint, TLS not counted.
    pub bytes_to_upstream: u64,
    /// Bytes written to the client, TLS not counted.
    pub bytes_to_downstream: u64,
    /// Why it ended.
    pub end: End,
}

/// Carries bytes between `down` and `up` until both have ended or one has failed.
///
/// The prefixes are what was already read from each; they are written to the other one first.
/// `on_bytes` is told of bytes as they are written, so that metrics are live. When `close` is ready
/// the tunnel ends at once: it is the caller's drain signal and deadline in one.
pub async fn tunnel(
    mut down: Io,
    down_prefix: Bytes,
    mut up: Io,
    up_prefix: Bytes,
    idle_timeout: Duration,
    on_bytes: impl Fn(Direction, usize),
    close: impl Future<Output = ()>,
) -> Outcome {
    let splice = matches!((&down, &up), (Io::Tcp(_), Io::Tcp(_)));
    let mut ways = Ways {
        to_up: Half::new(down_prefix, splice),
        to_down: Half::new(up_prefix, splice),
        failed: None,
    };
    let mut idle = pin!(Idle::new(idle_timeout.min(FAR)));
    let mut close = pin!(close);
    let end = poll_fn(|cx| {
        if let Poll::Ready(end) = ways.poll(cx, &mut down, &mut up, &on_bytes) {
            return Poll::Ready(end);
        }
        if close.as_mut().poll(cx).is_ready() {
            return Poll::Ready(End::Drained);
        }
        let active = ways.take_active();
        idle.as_mut().poll(cx, active).map(|()| End::IdleTimeout)
    });
    let end = end.await;
    Outcome {
        bytes_to_upstream: ways.to_up.written,
        bytes_to_downstream: ways.to_down.written,
        end,
    }
}

pin_project! {
    /// Measures idleness without touching the timer when bytes move: it fires a timeout after the
    /// start or the last look, and only then it is asked when the last byte moved.
    struct Idle {
        timeout: Duration,
        last_active: Instant,
        #[pin]
        sleep: Sleep,
    }
}

impl Idle {
    fn new(timeout: Duration) -> Self {
        let now = Instant::now();
        Self {
            timeout,
            last_active: now,
            sleep: tokio::time::sleep_until(now + timeout),
        }
    }

    /// Ready when nothing was active for the timeout.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>, active: bool) -> Poll<()> {
        let mut this = self.project();
        if active {
            *this.last_active = Instant::now();
        }
        while this.sleep.as_mut().poll(cx).is_ready() {
            let deadline = *this.last_active + *this.timeout;
            if deadline <= Instant::now() {
                return Poll::Ready(());
            }
            this.sleep.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

/// Both ways of a tunnel.
struct Ways {
    to_up: Half,
    to_down: Half,
    /// Whose writing failed first; the other way is then only finished.
    failed: Option<(Side, ErrorKind)>,
}

impl Ways {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        down: &mut Io,
        up: &mut Io,
        on_bytes: &impl Fn(Direction, usize),
    ) -> Poll<End> {
        let to_up = self
            .to_up
            .poll(cx, down, up, |n| on_bytes(Direction::ToUpstream, n));
        if let Some(end) = self.judge(to_up, Side::Downstream, up) {
            return Poll::Ready(end);
        }
        let to_down = self
            .to_down
            .poll(cx, up, down, |n| on_bytes(Direction::ToDownstream, n));
        if let Some(end) = self.judge(to_down, Side::Upstream, down) {
            return Poll::Ready(end);
        }
        match self.failed {
            _ if !(self.to_up.done && self.to_down.done) => Poll::Pending,
            Some((side, kind)) => Poll::Ready(End::Error { side, kind }),
            None => Poll::Ready(End::Closed),
        }
    }

    /// Whether what happened on the way from `source` to `target` ends the tunnel.
    fn judge(&mut self, way: Result<(), Fault>, source: Side, target: &Io) -> Option<End> {
        match (way, self.failed) {
            (Ok(()), _) => None,
            (Err(Fault::Write(kind)), failed) => {
                self.failed = failed.or(Some((source.other(), kind)));
                None
            }
            // It was dead already, and what it had said before has been passed on.
            (Err(Fault::Read(_)), Some((side, kind))) => Some(End::Error { side, kind }),
            (Err(Fault::Read(kind)), None) => {
                // Cannot fail on an open socket; if it did, the peer would see an orderly end.
                let _ = target.tcp().set_zero_linger();
                Some(End::Error { side: source, kind })
            }
        }
    }

    /// Whether bytes moved since the last call.
    fn take_active(&mut self) -> bool {
        let active = self.to_up.active || self.to_down.active;
        (self.to_up.active, self.to_down.active) = (false, false);
        active
    }
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Downstream => Self::Upstream,
            Self::Upstream => Self::Downstream,
        }
    }
}

/// Which operation failed.
enum Fault {
    Read(ErrorKind),
    Write(ErrorKind),
}

/// One way of a tunnel. At most one of `kept` and `pipe` holds bytes.
struct Half {
    /// Read and not written.
    kept: Bytes,
    /// Where bytes are spliced through; held only while they flow.
    pipe: Option<Pipe>,
    written: u64,
    /// Whether both ends are plain sockets that can be spliced.
    can_splice: bool,
    /// Whether the last read was large, so that the next is better spliced than copied.
    bulk: bool,
    /// The target may hold bytes that it has not sent (TLS).
    unflushed: bool,
    /// The source has ended.
    ended: bool,
    /// And the target has been told; or writing to it failed.
    done: bool,
    active: bool,
}

impl Half {
    fn new(prefix: Bytes, can_splice: bool) -> Self {
        Self {
            kept: prefix,
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

    /// Goes on until nothing more can be done now; the task is woken when there can.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Io,
        target: &mut Io,
        mut on_bytes: impl FnMut(usize),
    ) -> Result<(), Fault> {
        for _ in 0..ROUNDS {
            if self.done {
                return Ok(());
            }
            match self.round(cx, source, target, &mut on_bytes) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(fault)) => {
                    self.done = true;
                    self.kept = Bytes::new();
                    self.pipe = None;
                    return Err(fault);
                }
                Poll::Pending => return Ok(()),
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Writes what there is, then reads once.
    fn round(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Io,
        target: &mut Io,
        on_bytes: &mut impl FnMut(usize),
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
            if let Some(pipe) = self.pipe.take() {
                pipe.give_back();
            }
            if self.unflushed {
                ready!(Pin::new(target).poll_flush(cx)).map_err(|e| Fault::Write(e.kind()))?;
                self.unflushed = false;
            }
        }
        read
    }

    /// Writes all that was read before.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        target: &mut Io,
        on_bytes: &mut impl FnMut(usize),
    ) -> Poll<Result<(), Fault>> {
        while !self.kept.is_empty() {
            let n = ready!(Pin::new(&mut *target).poll_write(cx, &self.kept));
            let n = self.wrote(n, on_bytes)?;
            self.kept.advance(n);
        }
        // Gives back the memory below an empty rest.
        self.kept = Bytes::new();
        while let Some(pipe) = self.pipe.as_mut().filter(|pipe| pipe.len() > 0) {
            let n = ready!(pipe.poll_drain(cx, target.tcp()));
            self.wrote(n, on_bytes)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Counts a write.
    fn wrote(
        &mut self,
        result: std::io::Result<usize>,
        on_bytes: &mut impl FnMut(usize),
    ) -> Result<usize, Fault> {
        match result {
            Ok(0) => Err(Fault::Write(ErrorKind::WriteZero)),
            Ok(n) => {
                self.written += n as u64;
                self.active = true;
                self.unflushed = true;
                on_bytes(n);
                Ok(n)
            }
            Err(error) => Err(Fault::Write(error.kind())),
        }
    }

    /// Tells the target that no more will come.
    fn poll_end(&mut self, cx: &mut Context<'_>, target: &mut Io) -> Poll<Result<(), Fault>> {
        match ready!(Pin::new(target).poll_shutdown(cx)) {
            // It was reset after it had got everything.
            Err(error) if error.kind() != ErrorKind::NotConnected => {
                return Poll::Ready(Err(Fault::Write(error.kind())));
            }
            _ => self.done = true,
        }
        Poll::Ready(Ok(()))
    }

    /// Reads into the thread's buffer, writes at once, and keeps what was not taken.
    fn poll_copy(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Io,
        target: &mut Io,
        on_bytes: &mut impl FnMut(usize),
    ) -> Poll<Result<(), Fault>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buf = ReadBuf::new(scratch);
            match ready!(Pin::new(source).poll_read(cx, &mut buf)) {
                // TLS without close_notify.
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
            self.kept = Bytes::copy_from_slice(&bytes[taken..]);
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
        // Out of descriptors: copying needs none.
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
            // Not ready after all; the next round waits.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if splice::unsupported(&error) => {
                (self.bulk, self.can_splice) = (false, false);
            }
            Err(error) => return Poll::Ready(Err(Fault::Read(error.kind()))),
        }
        Poll::Ready(Ok(()))
    }
}
