//! The messages. All of them fit into 24 bytes, refer to servers by name and carry no state that
//! the receiver has to keep for longer than until the next one.

use std::time::Duration;

use crate::hash::{hash_bytes, mix};

/// An endpoint in messages: the hash (XXH64) of its key, the same in every process.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Name(u64);

impl Name {
    /// Returns the name of the endpoint with this key.
    #[must_use]
    pub fn of(key: &str) -> Self {
        Self(hash_bytes(key.as_bytes()))
    }

    /// Decodes a name of a message.
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
    /// It admits the request in any case.
    Always,
    /// It admits the request if no more than this number of requests are in flight there, not
    /// counting this one.
    AtMost(u32),
}

/// A balancer's query before it sends a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Question {
    /// To a server's inbound proxy: what is its load?
    Load,
    /// To a ledger: which server should get this request?
    Referral,
    /// The same, if only some servers of the group are allowed.
    ReferralAmong(Among),
}

/// The servers of a group to which a balancer may send a request: those of the priority level and
/// locality of the request's share of the traffic, without those that are down from the balancer's
/// view, and those that the request has attempted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Among {
    /// Identifies the servers of the group, see [`membership`](Self::membership).
    pub membership: u64,
    /// Whether they should have equal shares, whatever weights the ledger knows. Weights may differ
    /// from node to node: `localFirst` assigns each its own.
    pub equal: bool,
    /// Positions in the group, ordered by name, one bit each.
    pub servers: u128,
}

impl Among {
    /// The size of the largest group of which a part can be named.
    pub const MOST: usize = 128;

    /// Returns a number that differs between two sets of names with near certainty. Never 0; its
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
    /// To [`Question::Load`].
    Load(Load),
    /// To [`Question::Referral`]; `None` when the ledger knows no server.
    Referral(Option<Referral>),
}

/// A server's load according to its inbound proxy.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Load {
    /// Requests between arrival and end of response, from all balancers.
    pub in_flight: u32,
    /// The recent latency, from arrival to end of response, of requests that arrived with this
    /// number in flight; zero while unknown.
    pub latency: Duration,
}

/// The server that a ledger selects for a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Referral {
    /// The server.
    pub server: Name,
    /// The ticket travels with the request to the least loaded server of the group, so that the
    /// server can report to the ledger which requests have reached it. `None`: the server does not
    /// report, so that its load is unknown, and it is its turn; the balancer uses its fallback,
    /// beginning with this server.
    pub ticket: Option<Ticket>,
    /// Without a ticket, the server that the fallback considers next; `None`: any. The ledger names
    /// one if most of the servers do not report: those that do have their share by its referrals,
    /// and would have more than that if they were the second candidates of all other requests.
    pub second: Option<Name>,
}

/// The number of a referral: consecutive for one server and one life of the ledger.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ticket {
    /// Identifies the life of the ledger; another one after each restart. Never 0.
    pub epoch: u32,
    /// 1 for the first referral to this server, and so on, wrapping.
    pub number: u32,
}

/// The report of an inbound proxy after a request has ended there.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Requests that are still in flight.
    pub in_flight: u32,
    /// The latest ticket that has arrived; `None` before the first one.
    pub latest: Option<Ticket>,
    /// The mean time between ends of requests while the server was busy: the reciprocal of its
    /// throughput. Zero while unknown.
    pub pace: Duration,
    /// How long the server has been a member of its service, according to its own proxy; `None`:
    /// not reported.
    pub age: Option<Duration>,
}
