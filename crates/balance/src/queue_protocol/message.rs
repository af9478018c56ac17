//! The messages. All of them fit into 24 bytes, refer to servers by name and carry no state that
//! the receiver has to keep for longer than until the next one.

use std::time::Duration;

use crate::hash::{hash_bytes, mix};

/// An endpoint in messages: the hash (XXH64) of its key, the same in every process.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Name(u64);

impl Name {
    /// The name of the endpoint with this key.
    #[must_use]
    pub fn of(key: &str) -> Self {
        Self(hash_bytes(key.as_bytes()))
    }

    /// From a message.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// For a message.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }
}

/// Under which condition a server's inbound proxy takes a request that is sent to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Admission {
    /// In any case.
    Always,
    /// If no more than so many requests are in flight there, this one not counted.
    AtMost(u32),
}

/// What a balancer asks before it sends a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Question {
    /// A board: who is idle?
    Idle,
    /// A server's inbound proxy: how loaded are you?
    Load,
    /// A ledger: where should this request go?
    Referral,
    /// The same, where the balancer may send the request to some servers of the group only.
    ReferralAmong(Among),
}

/// The servers of a group that a balancer may send a request to: those of the priority level and locality
/// that the request's share of the traffic leads to, less those that are down in the balancer's eyes, and
/// those that the request has attempted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Among {
    /// Which servers there are in the group, as [`membership`](Self::membership) sums them up.
    pub membership: u64,
    /// Whether they are to have equal shares, whatever weights the ledger knows. Weights may differ from
    /// node to node: `localFirst` assigns each its own.
    pub equal: bool,
    /// Positions in the group, ordered by name, one bit each.
    pub servers: u128,
}

impl Among {
    /// The largest group of which a part can be named.
    pub const MOST: usize = 128;

    /// A number that differs between two sets of names with near certainty. Never 0; its lowest bit is 0.
    #[must_use]
    pub fn membership(names: impl IntoIterator<Item = Name>) -> u64 {
        let names = names.into_iter().map(|name| mix(name.0));
        let sum = names.fold(0, u64::wrapping_add) << 1;
        if sum == 0 { 2 } else { sum }
    }
}

/// The answer to a [`Question`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answer {
    /// To [`Question::Idle`]; `None` when the board is empty.
    Idle(Option<Name>),
    /// To [`Question::Load`].
    Load(Load),
    /// To [`Question::Referral`]; `None` when the ledger knows no server.
    Referral(Option<Referral>),
}

/// A server's load as its inbound proxy sees it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Load {
    /// Requests between arrival and end of response, from all balancers.
    pub in_flight: u32,
    /// What a request needed lately, from arrival to end of response, that came when so many were in
    /// flight; zero while unknown.
    pub latency: Duration,
}

/// A server that a ledger names for a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Referral {
    /// The server.
    pub server: Name,
    /// It is the least loaded one of its group; the ticket travels with the request, so that the server
    /// can report to the ledger what has reached it. `None`: it does not report, so that its load is not known,
    /// and it is its turn; the balancer decides by its fallback, beginning with this server.
    pub ticket: Option<Ticket>,
    /// Without a ticket, the server that the fallback considers next; `None`: any. The ledger names one where most of
    /// the servers do not report: those that do have their share by its referrals, and would have more than that
    /// if they were the second candidates of all other requests.
    pub second: Option<Name>,
}

/// The number of a referral: consecutive for one server and one life of the ledger.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ticket {
    /// Which life of the ledger; another one after each restart. Never 0.
    pub epoch: u32,
    /// 1 for the first referral to this server, and so on, wrapping.
    pub number: u32,
}

/// Report of an inbound proxy when a request has ended there.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Requests that are still in flight.
    pub in_flight: u32,
    /// The latest ticket that has arrived; `None` before the first one.
    pub latest: Option<Ticket>,
    /// Mean time between ends of requests while there was work: the reciprocal of the server's
    /// throughput. Zero while unknown.
    pub pace: Duration,
    /// How long the server has been one of its service, as its own proxy knows it; `None`: not said.
    pub age: Option<Duration>,
}
