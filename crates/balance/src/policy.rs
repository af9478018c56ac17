//! The policy trait and the list of policies.
//!
//! There is one file per policy, with its parameters, their validation and the algorithm. A new policy needs a file, an
//! arm in `PolicySpec::build`, a row in `tests/closed_form.rs` and one in `benches/pick.rs`; `tests/contract.rs` covers
//! it automatically.

pub(crate) mod bounce;
pub(crate) mod fallback;
pub(crate) mod hashing;
pub(crate) mod least_outstanding;
pub(crate) mod ledger;
pub(crate) mod maglev;
pub(crate) mod peak_ewma;
pub(crate) mod probe;
pub(crate) mod random;
pub(crate) mod ring_hash;
pub(crate) mod round_robin;
pub(crate) mod spec;
pub(crate) mod subset;

use std::fmt::{self, Debug};
use std::num::NonZeroU32;

pub use crate::index::Index;
pub use crate::pick_context::{Excluded, PickCtx};
use crate::queue_protocol::{Answer, Asked, Decision, Load, Step};
use crate::{Rng, SpecError, Time, View};
pub use hashing::SharedTables;

/// Chooses one endpoint of a view.
///
/// Pure except for the atomics of the endpoints and of the policy's own cursor: the same view, context, loads and
/// generator state give the same result. Implementations are lock-free and may be shared by threads.
///
/// `pick` is the local choice of a policy. Policies that query servers or ledgers decide in steps, from
/// [`begin`](Self::begin) on; for all others a decision is one pick. Callers use [`Balancer`](crate::Balancer), which
/// keeps policy and view together.
///
/// A policy belongs to the view it was built for. With another view, it still returns only usable endpoints of that
/// view, but not in the right proportions.
pub trait Policy: Send + Sync + Debug {
    /// Picks the endpoint of a request; `None` if no endpoint of the view is usable.
    ///
    /// An endpoint in `ctx.excluded` is returned only when every usable one is excluded.
    fn pick(&self, view: &View, ctx: &PickCtx<'_>, rng: &mut Rng) -> Option<Index>;

    /// Returns the first step of a request.
    fn begin(
        &self,
        decision: &mut Decision,
        view: &View,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        decision.reset();
        Step::send(self.pick(view, ctx, rng))
    }

    /// Returns the next step after an endpoint has answered.
    fn answered(
        &self,
        _decision: &mut Decision,
        _view: &View,
        _answer: (Index, Answer),
        _ctx: &PickCtx<'_>,
        _rng: &mut Rng,
    ) -> Step {
        Step::Wait
    }

    /// Returns the next step after an endpoint has rejected the request; `decision` has the endpoint's count.
    fn refused(
        &self,
        _decision: &mut Decision,
        view: &View,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        Step::send(self.pick(view, ctx, rng))
    }

    /// Returns the next step after some answers have not arrived in time.
    fn timed_out(
        &self,
        decision: &mut Decision,
        view: &View,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        decision.fallen_back = true;
        Step::send(self.pick(view, ctx, rng))
    }

    /// Returns servers to query for their load, for later requests; this request does not wait for the answers.
    fn asides(&self, _view: &View, _ctx: &PickCtx<'_>, _rng: &mut Rng) -> Asked {
        Asked::new()
    }

    /// Processes an answer to a query of [`asides`](Self::asides), or an unsolicited report of a server.
    fn record_load(&self, _from: Index, _load: &Load, _now: Time) {}

    /// Returns the data that a policy for the next view may reuse: hash tables, or knowledge of queried servers; `None`
    /// if there is none.
    fn tables(&self) -> Option<SharedTables> {
        None
    }
}

/// Builds a policy for each view. [`PolicySpec`](crate::PolicySpec) builds the policies of the proxy; the simulator has
/// further ones.
pub trait BuildPolicy: Clone + Debug {
    /// Checks every parameter against its range.
    ///
    /// # Errors
    ///
    /// The first parameter that is out of range.
    fn validate(&self) -> Result<(), SpecError>;

    /// Builds the policy, whose parameters are valid, reusing the data of `previous` if it fits.
    fn build_valid(&self, view: &View, previous: Option<SharedTables>) -> Box<dyn Policy>;
}

/// The number of candidates that a policy compares with each other.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Choices {
    /// Every usable endpoint.
    All,
    /// This number of endpoints, 1–1024, drawn uniformly with replacement.
    Some(NonZeroU32),
}

impl Choices {
    /// The maximum number of candidates other than [`Choices::All`].
    pub const MAX: u32 = 1024;
    /// Two candidates: the power of two choices.
    pub const TWO: Self = Self::Some(NonZeroU32::MIN.saturating_add(1));
}

impl fmt::Display for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Some(n) => write!(f, "{n}"),
        }
    }
}
