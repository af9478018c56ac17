//! The byte stream below `h2`: provides fair reads, protection against floods of frames, the state of the
//! connection's window, and an orderly close.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::frames::{END_STREAM, Frames, Head, PREFACE, kind};
use crate::net::fairness::Turn;
use crate::protocol::flood_limits::FloodLimits;

/// Maximum number of bytes that a connection reads before other connections of its worker have a turn, and the
/// additional cost of each frame.
const TURN: usize = 64 * 1024;
const BY_FRAME: usize = 512;
/// Read size after many small frames, because h2 processes everything that was read in one turn.
const SMALL_READ: usize = 1024;
/// Ratio of cost to bytes above which frames count as small.
const SMALL_FRAMES: usize = 4;
/// Initial send window of a connection (RFC 9113, section 6.9.2).
const FIRST_WINDOW: i64 = 65_535;
/// Window in bytes below which a new upload may have to wait for uploads that hold the rest.
const LOW_WINDOW: i64 = 16 * 1024;
/// Time with a low window after which the window counts as held by uploads that the peer does not read.
const HELD: Duration = Duration::from_millis(100);
/// Maximum time and number of bytes until the peer must have closed a connection that was shut down.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 1024 * 1024;

/// State of a connection's traffic, for its driver.
#[derive(Debug)]
pub(super) struct Traffic {
    /// Cost that may still be read in this turn.
    left: Cell<usize>,
    turn: Turn,
    active: Cell<bool>,
    flood: RefCell<FloodLimits>,
    flooded: Cell<bool>,
    /// Send window of the connection in bytes.
    window: Cell<i64>,
    low_since: Cell<Option<Instant>>,
}

impl Traffic {
    fn new() -> Rc<Self> {
        Rc::new(Self {
            left: Cell::new(TURN),
            turn: Turn::default(),
            active: Cell::new(false),
            flood: RefCell::default(),
            flooded: Cell::new(false),
            window: Cell::new(FIRST_WINDOW),
            low_since: Cell::new(None),
        })
    }

    /// Called whenever the connection is polled.
    pub(super) fn begin_turn(&self) {
        if !self.turn.is_queued() {
            self.left.set(TURN);
        }
    }

    /// Returns whether a byte has arrived since the last call.
    pub(super) fn take_activity(&self) -> bool {
        self.active.take()
    }

    /// Returns whether the peer has sent too many frames that are cheap to send, so that the connection must be
    /// closed.
    pub(super) fn is_flooded(&self) -> bool {
        self.flooded.get()
    }

    /// Returns whether the window is currently low.
    pub(super) fn is_short(&self) -> bool {
        self.low_since.get().is_some()
    }

    /// Returns whether bodies can be sent without waiting for uploads that the peer does not read.
    pub(super) fn has_credit(&self, now: Instant) -> bool {
        let since = self.low_since.get();
        since.is_none_or(|since| now.saturating_duration_since(since) < HELD)
    }

    fn received(&self, head: Head, now: &mut Option<Instant>) {
        let mut now = || *now.get_or_insert_with(Instant::now);
        let flood = &mut *self.flood.borrow_mut();
        let allowed = match head.kind {
            kind::DATA if head.length > 0 => {
                flood.data_received();
                true
            }
            kind::DATA if head.flags & END_STREAM != 0 => true,
            kind::DATA | kind::CONTINUATION if head.length == 0 => flood.allows_empty(),
            kind::HEADERS => {
                flood.opened(head.stream, now());
                true
            }
            kind::RST_STREAM | kind::CONTINUATION => true,
            kind::WINDOW_UPDATE => {
                if head.stream == 0 {
                    self.credit(i64::from(head.increment), &mut now);
                }
                flood.allows_control()
            }
            _ => flood.allows_control(),
        };
        self.left.set(self.left.get().saturating_sub(BY_FRAME));
        if !allowed {
            self.flooded.set(true);
        }
    }

    fn sent(&self, head: Head, now: &mut Option<Instant>) {
        if head.kind == kind::DATA {
            self.flood.borrow_mut().data_sent();
            // At most 16 MB.
            self.credit(-(head.length as i64), &mut || {
                *now.get_or_insert_with(Instant::now)
            });
        }
    }

    fn credit(&self, bytes: i64, now: &mut impl FnMut() -> Instant) {
        let window = self.window.get() + bytes;
        self.window.set(window);
        if window >= LOW_WINDOW {
            self.low_since.set(None);
        } else if self.low_since.get().is_none() {
            self.low_since.set(Some(now()));
        }
    }
}

/// A byte stream that observes the frames on it.
#[derive(Debug)]
pub(super) struct Wire<T> {
    inner: T,
    traffic: Rc<Traffic>,
    incoming: Frames,
    outgoing: Frames,
    /// Whether the last read consisted of small frames.
    small: bool,
    closing: Closing,
}

#[derive(Debug)]
enum Closing {
    No,
    /// Waiting for the peer to close its side, up to a time and a number of bytes.
    Lingering(Pin<Box<Sleep>>, usize),
    Done,
}

impl<T> Wire<T> {
    pub(super) fn new(inner: T) -> (Self, Rc<Traffic>) {
        let traffic = Traffic::new();
        let wire = Self {
            inner,
            traffic: Rc::clone(&traffic),
            incoming: Frames::after(0),
            outgoing: Frames::after(PREFACE),
            small: false,
            closing: Closing::No,
        };
        (wire, traffic)
    }

    fn written<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>, mut n: usize) {
        let mut now = None;
        for part in parts {
            let written = &part[..n.min(part.len())];
            n -= written.len();
            self.outgoing
                .take(written, |head| self.traffic.sent(head, &mut now));
            if n == 0 {
                return;
            }
        }
    }
}

impl<T: AsyncRead + Unpin> Wire<T> {
    /// Reads and discards what the peer still sends. If the socket were closed earlier, it would respond with a
    /// reset, and the peer would lose bytes that it has not read yet.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Closing::Lingering(limit, left) = &mut self.closing else {
            return Poll::Ready(());
        };
        let mut dropped = [MaybeUninit::uninit(); 4096];
        while *left > 0 && limit.as_mut().poll(cx).is_pending() {
            let mut buf = ReadBuf::uninit(&mut dropped);
            match ready!(Pin::new(&mut self.inner).poll_read(cx, &mut buf)) {
                Ok(()) if !buf.filled().is_empty() => {
                    *left = left.saturating_sub(buf.filled().len());
                }
                _ => break,
            }
        }
        self.closing = Closing::Done;
        Poll::Ready(())
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Wire<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        let traffic = &me.traffic;
        if traffic.is_flooded() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if traffic.left.get() == 0 {
            traffic.turn.queue(cx);
            return Poll::Pending;
        }
        let before = buf.filled().len();
        if me.small && buf.remaining() > SMALL_READ {
            let mut part = [MaybeUninit::uninit(); SMALL_READ];
            let mut part = ReadBuf::uninit(&mut part);
            ready!(Pin::new(&mut me.inner).poll_read(cx, &mut part))?;
            buf.put_slice(part.filled());
        } else {
            ready!(Pin::new(&mut me.inner).poll_read(cx, buf))?;
        }
        let bytes = &buf.filled()[before..];
        traffic.active.set(true);
        let left = traffic.left.get().saturating_sub(bytes.len());
        traffic.left.set(left);
        let mut now = None;
        me.incoming
            .take(bytes, |head| traffic.received(head, &mut now));
        let cost = left - traffic.left.get();
        me.small = cost > SMALL_FRAMES * bytes.len();
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Wire<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        let n = ready!(Pin::new(&mut me.inner).poll_write(cx, buf))?;
        me.written([buf].into_iter(), n);
        Poll::Ready(Ok(n))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        let n = ready!(Pin::new(&mut me.inner).poll_write_vectored(cx, bufs))?;
        me.written(bufs.iter().map(|buf| &**buf), n);
        Poll::Ready(Ok(n))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !matches!(self.closing, Closing::No) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        if let Closing::No = me.closing {
            ready!(Pin::new(&mut me.inner).poll_shutdown(cx))?;
            let limit = Box::pin(tokio::time::sleep(LINGER));
            me.closing = Closing::Lingering(limit, LINGER_BYTES);
        }
        me.poll_linger(cx).map(Ok)
    }
}
