//! The policies of a simulation: those of the proxy, and policies of the literature that exist here for comparison.

mod board;
mod join_idle_queue;
mod prequal;

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use maglor_balance::queue_protocol::{Announce, Groups};
use maglor_balance::{
    BuildPolicy, Fallback, Parameters, Policy, PolicySpec, SharedTables, SpecError, View, named,
};

pub(crate) use self::board::Board;
use self::join_idle_queue::JoinIdleQueue;
use self::prequal::Prequal;
pub use self::prequal::PrequalParams;

/// A policy and its parameters, in the syntax of [`PolicySpec`]: any policy of the proxy, or one of these:
///
/// | syntax | parameters | defaults |
/// | --- | --- | --- |
/// | `join-idle-queue(boards=N, fallback=POLICY)` | `POLICY`: `bounce`, `lor` or `probe` | `boards=4`, `fallback=probe` |
/// | `prequal(probes=N, pool=N)` | | `probes=3`, `pool=16` |
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Compared {
    /// Queries a board for an idle server.
    JoinIdleQueue {
        /// The number of boards, each for a part of the servers, 1–4096.
        boards: NonZeroU32,
        /// The policy when the board is empty or does not answer.
        fallback: Fallback,
    },
    /// A pool of answers to earlier probes.
    Prequal(PrequalParams),
    /// A policy of the proxy.
    Proxy(PolicySpec),
}

/// The unsolicited messages of servers under a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reports {
    /// Those that the proxy's policies need.
    AsInProxy(Announce),
    /// Its name, to the board of its group, when it has become idle.
    BoardWhenIdle,
}

/// The maximum number of boards.
const MAX_BOARDS: u32 = 4096;

/// The number of boards if none is given.
const BOARDS: NonZeroU32 = NonZeroU32::MIN.saturating_add(3);

impl Compared {
    /// Returns whether the policy picks by the latency of requests.
    #[must_use]
    pub const fn uses_latency(&self) -> bool {
        match self {
            Self::JoinIdleQueue { .. } | Self::Prequal(_) => false,
            Self::Proxy(spec) => spec.uses_latency(),
        }
    }

    /// Returns whether the policy needs the help of inbound proxies.
    #[must_use]
    pub const fn is_collaborative(&self) -> bool {
        match self {
            Self::JoinIdleQueue { .. } | Self::Prequal(_) => true,
            Self::Proxy(spec) => spec.is_collaborative(),
        }
    }

    /// Returns the groups that servers form under this policy; one for each ledger or board.
    #[must_use]
    pub fn groups(&self, view: &View) -> Option<Groups> {
        match self {
            Self::JoinIdleQueue { boards, .. } => Some(Groups::of_count(view, boards.get())),
            Self::Prequal(_) => None,
            Self::Proxy(spec) => spec.groups(view),
        }
    }

    pub(crate) fn reports(&self) -> Reports {
        match self {
            Self::JoinIdleQueue { .. } => Reports::BoardWhenIdle,
            Self::Prequal(_) => Reports::AsInProxy(Announce::Never),
            Self::Proxy(spec) => Reports::AsInProxy(spec.announce()),
        }
    }
}

impl BuildPolicy for Compared {
    fn validate(&self) -> Result<(), SpecError> {
        match self {
            // Parsing its canonical form checks every parameter.
            Self::JoinIdleQueue { .. } | Self::Prequal(_) => {
                self.to_string().parse::<Self>().map(drop)
            }
            Self::Proxy(spec) => spec.validate(),
        }
    }

    fn build_valid(&self, view: &View, previous: Option<SharedTables>) -> Box<dyn Policy> {
        match self {
            Self::JoinIdleQueue { boards, fallback } => {
                let policy = JoinIdleQueue::new(view, boards.get(), *fallback, previous);
                Box::new(policy)
            }
            Self::Prequal(params) => Box::new(Prequal::new(*params, view)),
            Self::Proxy(spec) => spec.build_valid(view, previous),
        }
    }
}

impl Default for Compared {
    fn default() -> Self {
        Self::Proxy(PolicySpec::default())
    }
}

impl From<PolicySpec> for Compared {
    fn from(spec: PolicySpec) -> Self {
        Self::Proxy(spec)
    }
}

impl FromStr for Compared {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (name, given) = named(text)?;
        match &*name.to_ascii_lowercase().replace('_', "-") {
            "jiq" | "join-idle-queue" => {
                let p = Parameters::new("join-idle-queue", &["boards", "fallback"], given)?;
                Ok(Self::JoinIdleQueue {
                    boards: p.positive("boards", MAX_BOARDS, BOARDS)?,
                    fallback: p.fallback(Fallback::Probe)?,
                })
            }
            "prequal" => prequal(given),
            _ => text.parse().map(Self::Proxy),
        }
    }
}

fn prequal(given: Vec<(String, String)>) -> Result<Compared, SpecError> {
    let p = Parameters::new("prequal", &["probes", "pool"], given)?;
    let (probes, pool) = (
        p.number("probes", 1..=PrequalParams::MAX_PROBES)?,
        p.number("pool", 2..=PrequalParams::MAX_POOL)?,
    );
    let default = PrequalParams::default();
    Ok(Compared::Prequal(PrequalParams {
        probes: probes.unwrap_or(default.probes),
        pool: pool.unwrap_or(default.pool),
    }))
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::JoinIdleQueue { boards, fallback } => {
                write!(f, "join-idle-queue(boards={boards},fallback={fallback})")
            }
            Self::Prequal(PrequalParams { probes, pool })
                if *pool == PrequalParams::default().pool =>
            {
                write!(f, "prequal(probes={probes})")
            }
            Self::Prequal(PrequalParams { probes, pool }) => {
                write!(f, "prequal(probes={probes},pool={pool})")
            }
            Self::Proxy(spec) => spec.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Compared, SpecError> {
        text.parse()
    }

    #[test]
    fn policies_have_their_defaults_and_round_trip() {
        for (short, full) in [
            ("jiq", "join-idle-queue(boards=4,fallback=probe)"),
            (
                "join-idle-queue",
                "join-idle-queue(boards=4,fallback=probe)",
            ),
            (
                "join-idle-queue(boards=1,fallback=lor)",
                "join-idle-queue(boards=1,fallback=lor)",
            ),
            ("prequal", "prequal(probes=3)"),
            (
                " prequal ( probes = 2 , pool = 8 ) ",
                "prequal(probes=2,pool=8)",
            ),
            ("ledger", "ledger(group=40,fallback=bounce)"),
        ] {
            let policy = parse(short).unwrap();
            assert_eq!(policy.to_string(), full);
            assert_eq!(parse(full), Ok(policy.clone()));
            assert!(policy.is_collaborative() && policy.validate().is_ok());
        }
        assert_eq!(parse("lor"), Ok(Compared::default()));
    }

    #[test]
    fn wrong_parameters_are_named() {
        for (text, part) in [
            (
                "prequal(probes=17)",
                "policy prequal: probes=17 is out of range; valid: 1-16",
            ),
            ("prequal(pool=1)", "pool=1 is out of range; valid: 2-1024"),
            (
                "join-idle-queue(boards=0)",
                "boards=0 is out of range; valid: 1-4096",
            ),
            ("join-idle-queue(board=1)", "did you mean `boards`?"),
            ("jiq(fallback=prob)", "did you mean `probe`?"),
            ("lorr", "did you mean `lor`?"),
            ("prequal(", "`)` is missing"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
        let wrong = Compared::Prequal(PrequalParams { probes: 0, pool: 8 });
        assert!(wrong.validate().is_err(), "from code");
    }
}
