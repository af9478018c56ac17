//! Idle HTTP/1.1 connections of a worker to one endpoint.
//!
//! They are used last in, first out: those that traffic needs stay in use, and the rest collect at the bottom. A
//! sweep once a second closes a part of the connections that were not needed for a whole interval.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use tokio::time::Instant;

use super::super::Connection;
use crate::protocol::proxy_protocol::Addresses;

/// Share of the connections unneeded in an interval that is closed at its end.
const TRIM: (usize, usize) = (3, 4);
/// Number of idle connections that are kept until their idle timeout.
const KEEP_WARM: usize = 4;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct IdleConnections {
    #[allow(
        clippy::vec_box,
        reason = "a connection moves between pool and request as one pointer"
    )]
    connections: RefCell<Vec<Box<Connection>>>,
    /// Minimum number of connections in this interval, which were not needed.
    low_water: Cell<usize>,
    /// Time of the latest sweep: precise enough for the begin of an idle time.
    now: Cell<Instant>,
}

impl IdleConnections {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            connections: RefCell::default(),
            low_water: Cell::new(0),
            now: Cell::new(now),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.connections.borrow().len()
    }

    /// Returns the latest connection that can take a request of the client with these addresses.
    pub(super) fn take(&self, ends: Option<&Addresses>) -> Option<Box<Connection>> {
        let mut connections = self.connections.borrow_mut();
        let mut found = None;
        while let Some(mut connection) = connections.pop() {
            // A connection that was announced for another client is closed.
            if connection.is_for(ends) && connection.is_usable() {
                found = Some(connection);
                break;
            }
        }
        self.low_water
            .set(self.low_water.get().min(connections.len()));
        found
    }

    pub(super) fn put(&self, mut connection: Box<Connection>) {
        connection.set_idle_since(self.now.get());
        self.connections.borrow_mut().push(connection);
    }

    /// Closes the connection with the longest idle time; returns whether there was one.
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

    /// Closes connections that are idle for too long or superfluous; returns their number.
    pub(super) fn sweep(&self, now: Instant, idle_timeout: Duration) -> usize {
        self.now.set(now);
        let mut connections = self.connections.borrow_mut();
        let before = connections.len();
        let unneeded = self.low_water.get().saturating_sub(KEEP_WARM);
        connections.drain(..unneeded * TRIM.0 / TRIM.1);
        connections.retain_mut(|connection| {
            now - connection.idle_since() < idle_timeout && connection.is_usable()
        });
        if connections.is_empty() {
            connections.shrink_to_fit();
        }
        self.low_water.set(connections.len());
        before - connections.len()
    }
}
