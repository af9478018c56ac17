//! How many connections an admin port has, and which of them gives way to a new one.
//!
//! Connections over loopback and from the network are counted apart. A new connection is always accepted; where
//! there is no room for it, another one is closed: of the source with the most connections, one that is not being
//! answered before one that is, and of those the oldest. So a peer that opens many connections closes its own.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::Via;

/// Of the connections from the network one source may have this share: a fourth.
const SOURCES: usize = 4;

/// How many connections an admin port may have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// From the network; at least 4.
    pub network: usize,
    /// Over loopback.
    pub loopback: usize,
}

impl Default for Limits {
    /// 64 from the network, 16 from each of its sources; 32 over loopback.
    fn default() -> Self {
        Self {
            network: 64,
            loopback: 32,
        }
    }
}

/// The connections that are open.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: Limits,
    open: Mutex<Vec<Open>>,
}

/// One of them.
#[derive(Debug)]
struct Open {
    state: Arc<State>,
    via: Via,
    source: IpAddr,
}

#[derive(Debug, Default)]
struct State {
    /// A request is being answered.
    busy: AtomicBool,
    /// It has to give way to another one.
    closed: Notify,
}

/// The right to a connection; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    all: Arc<Connections>,
    state: Arc<State>,
}

/// Exists while a request is being answered.
#[derive(Debug)]
pub(crate) struct Busy(Arc<State>);

impl Connections {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            // The oldest first.
            open: Mutex::default(),
        }
    }

    fn open(&self) -> MutexGuard<'_, Vec<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection, and whether another one was closed for it.
    pub(crate) fn enter(self: &Arc<Self>, via: Via, source: IpAddr) -> (Place, bool) {
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

/// Which connection is to be closed for a new one; `None` = there is room.
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
    // The sources of which one connection is to go: that of the new one, or those with so many.
    let (own, least) = match via {
        Via::Loopback if all < limits.loopback => return None,
        // All of them are this host.
        Via::Loopback => (None, 0),
        Via::Network if of(source) >= (limits.network / SOURCES).max(1) => (Some(source), 0),
        Via::Network if all < limits.network => return None,
        Via::Network => (None, most()),
    };
    let candidates = open.iter().enumerate().filter(|(_, one)| {
        let is_own = own.is_none_or(|own| own == one.source);
        one.via == via && is_own && (least == 0 || of(one.source) >= least)
    });
    // Relaxed: a connection that is answered just now is as good a choice as another.
    let idle_first = candidates.min_by_key(|(_, one)| one.state.busy.load(Ordering::Relaxed));
    idle_first.map(|(index, _)| index)
}

/// What counts as one source: an IPv4 address, or the 64 bits of an IPv6 address that name a network (RFC 4291, 2.5.4).
fn network_of(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl Place {
    /// Waits until the connection has to give way to another one.
    pub(crate) async fn closed(&self) {
        self.state.closed.notified().await;
    }

    /// A request is being answered, until the result is dropped.
    pub(crate) fn busy(&self) -> Busy {
        self.state.busy.store(true, Ordering::Relaxed);
        Busy(Arc::clone(&self.state))
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
        // An HTTP/1 connection answers one request at a time.
        self.0.busy.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        network: 8,
        loopback: 2,
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
        let _third = enter(&all, 1);
        assert!(is_closed(&second) && !is_closed(&first));
        drop(answering);
        let _fourth = enter(&all, 1);
        assert!(is_closed(&first));
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
    async fn the_connection_that_gives_way_is_woken() {
        let all = Arc::new(Connections::new(LIMITS));
        let first = enter(&all, 1);
        let _others = (enter(&all, 1), enter(&all, 1));
        first.closed().await;
    }
}
