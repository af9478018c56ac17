//! The connection limits of a port, and the choice of the connection to close for a new one.
//!
//! Connections over loopback and from the network are counted separately. A new connection is always accepted; if a
//! limit is reached, another connection of the source with the most connections is closed: first those without a
//! request so far, then idle ones, then those with a request in progress, and the oldest first among these. So a peer
//! that opens many connections closes its own. Likewise, the bytes of requests that connections hold are limited
//! ([`Place::hold`]).

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::access::Via;

/// The limits of a port.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// The maximum number of connections from the network; at least 1.
    pub network: usize,
    /// The maximum number of connections from one source of the network; at least 1.
    pub source: usize,
    /// The maximum number of connections over loopback; at least 1.
    pub loopback: usize,
    /// The maximum number of bytes of requests that all connections together hold. The connections of one source may
    /// hold half of it ([`Place::hold`]).
    pub bytes: usize,
}

impl Default for Limits {
    /// Returns the default limits: 64 connections from the network, 16 of them from each source; 32 over loopback; no
    /// request bodies.
    fn default() -> Self {
        Self {
            network: 64,
            source: 16,
            loopback: 32,
            bytes: 0,
        }
    }
}

/// The open connections of a port.
#[derive(Debug)]
pub struct Connections {
    limits: Limits,
    open: Mutex<Vec<Open>>,
}

/// An open connection.
#[derive(Debug)]
struct Open {
    state: Arc<State>,
    via: Via,
    source: IpAddr,
}

/// No request has been received yet. Connections are closed in the order of these constants.
const SILENT: u8 = 0;
/// A request has been answered.
const IDLE: u8 = 1;
/// A request is in progress.
const BUSY: u8 = 2;

#[derive(Debug, Default)]
struct State {
    /// `SILENT`, `IDLE` or `BUSY`.
    activity: AtomicU8,
    /// The number of bytes held of an unfinished request.
    held: AtomicUsize,
    /// Notified when the connection is closed for another one.
    closed: Notify,
}

/// An admitted connection, which releases its slot when it is dropped.
#[derive(Debug)]
pub struct Place {
    all: Arc<Connections>,
    state: Arc<State>,
}

/// Marks a request as in progress until it is dropped.
#[derive(Debug)]
pub struct Busy(Arc<State>);

/// The bytes of a request that a connection holds, which are released when this is dropped.
#[derive(Debug)]
pub struct Held {
    state: Arc<State>,
    bytes: usize,
}

impl Connections {
    /// Creates an empty set of connections.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            // Ordered by age, the oldest first.
            open: Mutex::default(),
        }
    }

    fn open(&self) -> MutexGuard<'_, Vec<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a new connection; returns whether another one was closed for it.
    pub fn enter(self: &Arc<Self>, via: Via, source: IpAddr) -> (Place, bool) {
        let source = network_of(source);
        let mut open = self.open();
        let victim = victim(&open, via, source, self.limits);
        if let Some(victim) = victim {
            open.remove(victim).state.closed.notify_one();
        }
        let state = Arc::new(State::default());
        open.push(Open {
            state: Arc::clone(&state),
            via,
            source,
        });
        drop(open);
        let all = Arc::clone(self);
        (Place { all, state }, victim.is_some())
    }
}

/// Returns the connection to close for a new one; `None` if the limits are not reached.
fn victim(open: &[Open], via: Via, source: IpAddr, limits: Limits) -> Option<usize> {
    let of = |source: IpAddr| {
        let same = move |one: &&Open| one.via == via && one.source == source;
        open.iter().filter(same).count()
    };
    let all = open.iter().filter(|one| one.via == via).count();
    let most = || {
        let sources = open.iter().filter(|one| one.via == via);
        sources.map(|one| of(one.source)).max().unwrap_or(0)
    };
    // The sources of which one connection may be closed: that of the new one, or those with this
    // many.
    let (own, least) = match via {
        Via::Loopback if all < limits.loopback => return None,
        // All loopback connections are from this host.
        Via::Loopback => (None, 0),
        Via::Network if of(source) >= limits.source.max(1) => (Some(source), 0),
        Via::Network if all < limits.network => return None,
        Via::Network => (None, most()),
    };
    let candidates = open.iter().enumerate().filter(|(_, one)| {
        let is_own = own.is_none_or(|own| own == one.source);
        one.via == via && is_own && (least == 0 || of(one.source) >= least)
    });
    // Relaxed: a connection whose activity changes just now is as good a choice as another.
    let idle_first = candidates.min_by_key(|(_, one)| one.state.activity.load(Ordering::Relaxed));
    idle_first.map(|(index, _)| index)
}

/// Returns the connection to close because too many bytes are held, either by the source of `own` or by all. It is the
/// oldest connection without a request in progress, of the source of `own` or of the source that holds most. `None` if
/// the limit is not exceeded, or if requests in progress hold all bytes.
fn largest(open: &[Open], own: &Arc<State>, limit: usize) -> Option<usize> {
    let held = |one: &Open| one.state.held.load(Ordering::Relaxed);
    let of = |source: IpAddr| -> usize {
        let same = open.iter().filter(|one| one.source == source);
        same.map(held).sum()
    };
    let own = open.iter().find(|one| Arc::ptr_eq(&one.state, own))?.source;
    let all: usize = open.iter().map(held).sum();
    let source = of(own) > limit / 2;
    if !source && all <= limit {
        return None;
    }
    let waits = |one: &Open| one.state.activity.load(Ordering::Relaxed) != BUSY && held(one) > 0;
    let most = open.iter().filter(|one| waits(one));
    let most = most.map(|one| of(one.source)).max()?;
    let found = |one: &Open| match source {
        true => waits(one) && one.source == own,
        false => waits(one) && of(one.source) >= most,
    };
    open.iter().position(found)
}

/// Returns the source that an address counts for: an IPv4 address, or the 64-bit network prefix of an IPv6 address (RFC
/// 4291, 2.5.4).
#[must_use]
pub fn network_of(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl Place {
    /// Waits until the connection is closed for another one.
    pub async fn closed(&self) {
        self.state.closed.notified().await;
    }

    /// Marks a request as in progress until the result is dropped.
    #[must_use]
    pub fn busy(&self) -> Busy {
        self.state.activity.store(BUSY, Ordering::Relaxed);
        Busy(Arc::clone(&self.state))
    }

    /// Returns whether no request has been received so far.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.state.activity.load(Ordering::Relaxed) == SILENT
    }

    /// Creates the account of a new request that holds no bytes yet.
    #[must_use]
    pub fn request(&self) -> Held {
        Held {
            state: Arc::clone(&self.state),
            bytes: 0,
        }
    }

    /// Adds bytes of a request, which count as held until `held` is dropped. If all connections together exceed
    /// [`Limits::bytes`], a connection that waits for the rest of its request is closed, of the source that holds most.
    /// If one source exceeds half of the limit, one of its connections is closed, which may be this one.
    pub fn hold(&self, held: &mut Held, bytes: usize) {
        // Relaxed: sums are compared under the lock.
        self.state.held.fetch_add(bytes, Ordering::Relaxed);
        held.bytes += bytes;
        let mut open = self.all.open();
        while let Some(victim) = largest(&open, &self.state, self.all.limits.bytes) {
            open.remove(victim).state.closed.notify_one();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.state.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let own = |one: &Open| Arc::ptr_eq(&one.state, &self.state);
        self.all.open().retain(|one| !own(one));
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // An HTTP/1 connection has one request at a time.
        self.0.activity.store(IDLE, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        network: 8,
        source: 2,
        loopback: 2,
        bytes: 100,
    };

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn is_closed(place: &Place) -> bool {
        !place
            .all
            .open()
            .iter()
            .any(|one| Arc::ptr_eq(&one.state, &place.state))
    }

    fn enter(all: &Arc<Connections>, source: u8) -> Place {
        all.enter(Via::Network, ip(source)).0
    }

    #[test]
    fn a_source_closes_its_own_connections_first() {
        let all = Arc::new(Connections::new(LIMITS));
        let others: Vec<_> = (1..=3).map(|source| enter(&all, source)).collect();
        let flood: Vec<_> = (0..5).map(|_| enter(&all, 9)).collect();
        let closed: Vec<_> = flood.iter().map(is_closed).collect();
        assert_eq!(closed, [true, true, true, false, false], "two of eight");
        assert!(!others.iter().any(is_closed));
        // Many sources: those with two give way before those with one.
        let more: Vec<_> = (10..=13).map(|source| enter(&all, source)).collect();
        assert!(is_closed(&flood[3]) && !is_closed(&flood[4]));
        assert!(!others.iter().chain(&more).any(is_closed));
        // All have one: the oldest.
        let _last = enter(&all, 14);
        assert!(is_closed(&others[0]) && !is_closed(&others[1]));
        assert_eq!(all.open().len(), 8);
    }

    #[test]
    fn what_is_being_answered_stays() {
        let all = Arc::new(Connections::new(LIMITS));
        let (first, second) = (enter(&all, 1), enter(&all, 1));
        let answering = first.busy();
        let third = enter(&all, 1);
        assert!(is_closed(&second) && !is_closed(&first));
        drop((answering, third.busy()));
        let _fourth = enter(&all, 1);
        assert!(is_closed(&first));
    }

    #[test]
    fn a_connection_without_a_request_is_closed_before_an_idle_one() {
        let all = Arc::new(Connections::new(LIMITS));
        let (first, second) = (enter(&all, 1), enter(&all, 1));
        drop(first.busy());
        assert!(!first.is_silent() && second.is_silent());
        let third = enter(&all, 1);
        assert!(is_closed(&second) && !is_closed(&first));
        drop(third.busy());
        let _fourth = enter(&all, 1);
        assert!(is_closed(&first), "both were used: the oldest");
    }

    #[test]
    fn the_source_that_holds_the_most_bytes_is_closed() {
        let all = Arc::new(Connections::new(LIMITS));
        let (honest, answering) = (enter(&all, 1), enter(&all, 2));
        let flood = [enter(&all, 9), enter(&all, 9)];
        let hold = |place: &Place, bytes| {
            let mut held = place.request();
            place.hold(&mut held, bytes);
            held
        };
        let one = hold(&honest, 30);
        // What is being answered is not closed.
        let mut two = hold(&answering, 20);
        let busy = answering.busy();
        let mut held = flood.each_ref().map(|place| hold(place, 25));
        assert!(!is_closed(&flood[0]), "exactly the limit is not above it");
        flood[1].hold(&mut held[1], 1);
        assert!(is_closed(&flood[0]), "it holds more than half");
        assert!(!is_closed(&flood[1]) && !is_closed(&honest));
        answering.hold(&mut two, 25);
        assert!(is_closed(&honest), "all hold more than they may");
        assert!(!is_closed(&flood[1]) && !is_closed(&answering));
        drop((one, two, held, busy));
        let held = all
            .open()
            .iter()
            .map(|one| one.state.held.load(Ordering::Relaxed))
            .sum::<usize>();
        assert_eq!(held, 0, "all of it was given back");
    }

    #[test]
    fn the_network_takes_nothing_from_loopback() {
        let all = Arc::new(Connections::new(LIMITS));
        let local = all.enter(Via::Loopback, IpAddr::from([127, 0, 0, 1])).0;
        let network: Vec<_> = (0..100).map(|source| enter(&all, source)).collect();
        assert_eq!(network.iter().filter(|one| !is_closed(one)).count(), 8);
        assert!(!is_closed(&local));
        let (_, closed) = all.enter(Via::Loopback, IpAddr::from([127, 0, 0, 2]));
        assert!(!closed && !is_closed(&local));
        let (third, closed) = all.enter(Via::Loopback, IpAddr::from([127, 0, 0, 3]));
        assert!(!closed, "the second one has left");
        let (_fourth, closed) = all.enter(Via::Loopback, IpAddr::from([127, 0, 0, 3]));
        assert!(closed && is_closed(&local) && !is_closed(&third));
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let network = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(network("fd00::1"), network("fd00::ffff:1"));
        assert_ne!(network("fd00::1"), network("fd00:0:0:1::1"));
        assert_eq!(network("::ffff:10.0.0.1"), ip(1));
    }

    #[tokio::test]
    async fn the_replaced_connection_is_woken() {
        let all = Arc::new(Connections::new(LIMITS));
        let first = enter(&all, 1);
        let _others = (enter(&all, 1), enter(&all, 1));
        first.closed().await;
    }
}
