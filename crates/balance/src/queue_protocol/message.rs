//! The messages. Each of them fits into 24 bytes, refers to servers by name, and carries no state that the receiver has
//! to keep for longer than until the next message.

use std::time::Duration;

use crate::hash::{hash_bytes, mix};

/// The name of an endpoint in messages: the hash (XXH64) of its key, which is the same in every process.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Name(u64);

impl Name {
    /// Returns the name of the endpoint with this key.
    #[must_use]
    pub fn of(key: &str) -> Self {
        Self(hash_bytes(key.as_bytes()))
    }

    /// Decodes a name from a message.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Encodes a name for a message.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }
}

/// The condition under which a server's inbound proxy admits a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Admission {
    /// The request is admitted unconditionally.
    Always,
    /// The request is admitted if at most this number of other requests are in flight at the server.
    AtMost(u32),
}

/// A query of a balancer before it sends a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Question {
    /// To a server's inbound proxy: the load of the server.
    Load,
    /// To a ledger: the server that should get the request.
    Referral,
    /// To a ledger: the server, of these servers of the group, that should get the request.
    ReferralAmong(Among),
}

/// The servers of a group to which a balancer may send a request: those of one priority level and locality, without the
/// servers that the balancer considers down and those that the request has attempted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Among {
    /// Identifies the members of the group, see [`membership`](Self::membership).
    pub membership: u64,
    /// Whether the servers should have equal shares, whatever weights the ledger knows. Weights may differ from node to
    /// node: `localFirst` assigns different ones to each.
    pub equal: bool,
    /// The allowed servers, one bit for each position in the group, which is ordered by name.
    pub servers: u128,
}

impl Among {
    /// The size of the largest group for which a query can be restricted.
    pub const MOST: usize = 128;

    /// Returns a number that is different for two different sets of names with near certainty. It is never 0, and its
    /// lowest bit is 0.
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
    /// The answer to [`Question::Load`].
    Load(Load),
    /// The answer to [`Question::Referral`]; `None` if the ledger has no server to refer to.
    Referral(Option<Referral>),
}

/// A server's load according to its inbound proxy.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Load {
    /// The number of requests of all balancers between arrival and end of the response.
    pub in_flight: u32,
    /// The recent latency, from arrival to the end of the response, of requests that arrived with this number in
    /// flight; zero while unknown.
    pub latency: Duration,
}

/// The server that a ledger selects for a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Referral {
    /// The name of the server.
    pub server: Name,
    /// The ticket, which travels with the request, so that the server can report to the ledger which requests have
    /// reached it. `None` = the server does not report, its load is unknown, and it is its turn; the balancer then uses
    /// its fallback, beginning with this server.
    pub ticket: Option<Ticket>,
    /// Without a ticket, the server that the fallback considers next; `None` = any. The ledger names one if most of the
    /// servers do not report: the servers that do report get their share by referrals, and would get more than that as
    /// the second candidates of all other requests.
    pub second: Option<Name>,
}

/// The number of a referral: consecutive for one server in one epoch of the ledger.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ticket {
    /// The epoch of the ledger, which is different after each restart. Never 0.
    pub epoch: u32,
    /// The number of the referral to this server, from 1; it wraps around.
    pub number: u32,
}

/// The report of an inbound proxy, sent after a request has ended.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// The number of requests that are still in flight.
    pub in_flight: u32,
    /// The latest ticket that has arrived; `None` before the first one.
    pub latest: Option<Ticket>,
    /// The mean time between ends of requests while the server was busy: the reciprocal of its throughput. Zero while
    /// unknown.
    pub pace: Duration,
    /// How long the server has been a member of its service, according to its own proxy; `None` = not reported.
    pub age: Option<Duration>,
}
