//! Accounting of body bytes in the send buffers of a connection.
//!
//! `h2` accepts as much data as the peer's windows allow, even if the socket is not writable. This module counts the
//! bytes that `h2` has accepted and not yet written, by stream and by connection: a piece ([`Parcel`]) counts until
//! it is written or dropped. Thus a stream whose peer does not read stops reading its source, and its buffered bytes
//! are charged to it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};

use crate::os::memory::{self, Level, Stake};

/// Maximum size in bytes of a body that is not counted.
pub(super) const SMALL: u64 = 16 * 1024;
/// Maximum number of buffered bytes of a stream, while its connection has room.
const STREAM: usize = 64 * 1024;
/// Number of buffered bytes of a connection above which a stream reads only when it has sent everything.
const CONNECTION: usize = 256 * 1024;
/// Number of bytes of the first read, and of reads while the connection is full.
const FIRST: u64 = 16 * 1024;
const FULL: u64 = 8 * 1024;

/// Buffered bytes of a connection.
#[derive(Debug, Default)]
pub(super) struct Outflow {
    waiting: Cell<usize>,
}

/// Buffered bytes of a stream.
#[derive(Debug)]
pub(super) struct Flow {
    waiting: Cell<usize>,
    /// Waker of the task that waits for room.
    reader: RefCell<Option<Waker>>,
    connection: Rc<Outflow>,
    /// Account to which the memory is charged; `None` if there is none.
    stake: Option<Rc<Stake>>,
}

impl Flow {
    pub(super) fn new(connection: &Rc<Outflow>) -> Rc<Self> {
        Rc::new(Self {
            waiting: Cell::new(0),
            reader: RefCell::new(None),
            connection: Rc::clone(connection),
            stake: memory::current(),
        })
    }

    /// Returns how many bytes may be read at a time, once there is room.
    pub(super) fn poll_room(&self, begun: bool, cx: &Context<'_>) -> Poll<u64> {
        let waiting = self.waiting.get();
        let full = self.connection.waiting.get() >= CONNECTION || memory::level() > Level::Free;
        if waiting >= STREAM || (full && waiting > 0) {
            *self.reader.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(match full {
            true => FULL,
            false if !begun => FIRST,
            false => u64::MAX,
        })
    }
}

/// A piece of a body.
#[derive(Debug)]
pub(super) struct Parcel {
    bytes: Bytes,
    length: usize,
    flow: Option<Rc<Flow>>,
}

impl Parcel {
    pub(super) fn new(bytes: Bytes, flow: Option<&Rc<Flow>>) -> Self {
        let length = bytes.len();
        if let Some(flow) = flow {
            flow.waiting.set(flow.waiting.get() + length);
            let all = &flow.connection.waiting;
            all.set(all.get() + length);
            if let Some(stake) = &flow.stake {
                stake.queue(length);
            }
        }
        Self {
            bytes,
            length,
            flow: flow.cloned(),
        }
    }
}

impl Buf for Parcel {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        let Some(flow) = &self.flow else {
            return;
        };
        let left = flow.waiting.get() - self.length;
        flow.waiting.set(left);
        let all = &flow.connection.waiting;
        all.set(all.get() - self.length);
        if let Some(stake) = &flow.stake {
            stake.hand_over(self.length);
        }
        // The reader is woken at half the maximum, so that a fast stream is not woken for each piece.
        if left <= STREAM / 2
            && (left == 0 || all.get() < CONNECTION)
            && let Some(reader) = flow.reader.take()
        {
            reader.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(flow: &Rc<Flow>, begun: bool) -> Option<u64> {
        match flow.poll_room(begun, &Context::from_waker(Waker::noop())) {
            Poll::Ready(room) => Some(room),
            Poll::Pending => None,
        }
    }

    fn parcel(flow: &Rc<Flow>, bytes: usize) -> Parcel {
        Parcel::new(vec![0; bytes].into(), Some(flow))
    }

    #[test]
    fn a_stream_that_is_not_read_stops_reading() {
        let connection = Rc::default();
        let flow = Flow::new(&connection);
        assert_eq!(room(&flow, false), Some(FIRST));
        let one = parcel(&flow, 40_000);
        assert_eq!(room(&flow, true), Some(u64::MAX));
        let mut two = parcel(&flow, 40_000);
        assert_eq!(connection.waiting.get(), 80_000);
        assert_eq!(room(&flow, true), None);
        two.advance(39_999);
        assert_eq!(
            room(&flow, true),
            None,
            "it is held until all of it is sent"
        );
        drop(two);
        assert_eq!(room(&flow, true), Some(u64::MAX));
        drop(one);
        assert_eq!(connection.waiting.get(), 0);
    }

    #[test]
    fn streams_of_a_full_connection_send_all_before_they_read_on() {
        let connection = Rc::default();
        let flows: Vec<_> = (0..5).map(|_| Flow::new(&connection)).collect();
        let _held: Vec<_> = flows[..4].iter().map(|f| parcel(f, STREAM)).collect();
        let last = &flows[4];
        assert_eq!(room(last, true), Some(FULL), "no number of others stops it");
        let piece = parcel(last, 1);
        assert_eq!(room(last, true), None);
        drop(piece);
        assert_eq!(room(last, true), Some(FULL));
    }

    #[test]
    fn small_bodies_are_not_counted() {
        let piece = Parcel::new("abc".into(), None);
        assert_eq!(piece.remaining(), 3);
    }
}
