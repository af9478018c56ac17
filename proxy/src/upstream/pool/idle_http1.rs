//! Idle HTTP/1.1 connections of a worker to one endpoint.
//!
//! They are used last in, first out: the connections that traffic needs stay in use, and the others stay idle. As
//! many connections as were recently in use at the same time are kept for the next burst of requests; a sweep once a
//! second closes the others.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use tokio::time::Instant;

use super::super::Connection;
use super::working_set::WorkingSet;
use crate::protocol::proxy_protocol::Addresses;

/// Share of the superfluous connections that a sweep closes, as numerator and denominator.
const TRIM: (usize, usize) = (3, 4);
/// Number of idle connections that are kept until their idle timeout.
const KEEP_WARM: usize = 4;

/// Idle HTTP/1.1 connections to one endpoint.
#[derive(Debug)]
pub(super) struct IdleConnections {
    #[allow(
        clippy::vec_box,
        reason = "a connection moves between pool and request as one pointer"
    )]
    connections: RefCell<Vec<Box<Connection>>>,
    /// Number of open connections, in use or idle.
    open: Cell<usize>,
    working_set: WorkingSet,
    /// Minimum number of idle connections in this interval, which were not needed.
    low_water: Cell<usize>,
    /// Time of the latest sweep, used as the start of idle times.
    now: Cell<Instant>,
}

/// Limits that a sweep applies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// How long a connection may be idle.
    pub(super) idle_timeout: Duration,
    /// Maximum number of connections that no request has needed since the last sweep.
    pub(super) unneeded: usize,
}

impl IdleConnections {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            connections: RefCell::default(),
            open: Cell::new(0),
            working_set: WorkingSet::new(now),
            low_water: Cell::new(0),
            now: Cell::new(now),
        }
    }

    /// Returns the number of connections in use.
    fn in_use(&self) -> usize {
        self.open
            .get()
            .saturating_sub(self.connections.borrow().len())
    }

    /// Counts a new connection as open and in use.
    pub(super) fn opened(&self) {
        self.open.set(self.open.get() + 1);
        self.working_set.record(self.in_use());
    }

    /// Counts the end of a connection.
    pub(super) fn closed(&self) {
        self.open.set(self.open.get() - 1);
    }

    /// Returns the latest connection that can be used for a request of the client with these addresses.
    pub(super) fn take(&self, ends: Option<&Addresses>) -> Option<Box<Connection>> {
        let mut connections = self.connections.borrow_mut();
        let mut found = None;
        while let Some(mut connection) = connections.pop() {
            // A connection whose PROXY header names another client is closed.
            if connection.is_for(ends) && connection.is_usable() {
                found = Some(connection);
                break;
            }
        }
        let left = connections.len();
        drop(connections);
        self.low_water.set(self.low_water.get().min(left));
        if found.is_some() {
            self.working_set.record(self.in_use());
        }
        found
    }

    pub(super) fn put(&self, mut connection: Box<Connection>) {
        connection.set_idle_since(self.now.get());
        self.connections.borrow_mut().push(connection);
    }

    /// Closes the connection that has been idle for the longest time; returns whether there was one.
    pub(super) fn close_oldest(&self) -> bool {
        let mut connections = self.connections.borrow_mut();
        let oldest = (!connections.is_empty()).then(|| connections.remove(0));
        drop(connections);
        oldest.is_some()
    }

    /// Closes all connections; returns their number.
    pub(super) fn clear(&self) -> usize {
        std::mem::take(&mut *self.connections.borrow_mut()).len()
    }

    /// Closes connections that have been idle for too long or are superfluous; returns their number.
    pub(super) fn sweep(&self, now: Instant, bounds: Bounds) -> usize {
        self.now.set(now);
        self.working_set.sweep(now, self.in_use());
        let needed = self.working_set.size().max(KEEP_WARM);
        let surplus = self.open.get().saturating_sub(needed) * TRIM.0 / TRIM.1;
        let unneeded = self.low_water.get().saturating_sub(bounds.unneeded);
        let mut connections = self.connections.borrow_mut();
        let before = connections.len();
        connections.drain(..surplus.max(unneeded).min(before));
        connections.retain_mut(|connection| {
            now - connection.idle_since() < bounds.idle_timeout && connection.is_usable()
        });
        if connections.is_empty() {
            connections.shrink_to_fit();
        }
        self.low_water.set(connections.len());
        before - connections.len()
    }
}
