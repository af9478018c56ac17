//! A view together with the policy built for it. Both are replaced as a whole when endpoints change.

use std::sync::Arc;

use crate::queue_protocol::{Answer, Asked, Decision, Load, Step};
use crate::{
    BuildPolicy, Endpoint, Index, PickCtx, Policy, PolicySpec, Rng, SpecError, Time, View,
    ViewParams,
};

/// A [`View`] and its [`Policy`].
///
/// Immutable: to change the set of endpoints, [`rebuild`](Self::rebuild) and swap. Picks in progress finish on the old
/// balancer. Counts are part of the endpoints' statistics and are kept.
#[derive(Debug)]
pub struct Balancer<B = PolicySpec> {
    spec: B,
    view: View,
    policy: Box<dyn Policy>,
}

impl<B: BuildPolicy> Balancer<B> {
    /// Builds the view and the policy with its tables.
    ///
    /// # Errors
    ///
    /// If `spec` has parameters out of range, or names a policy that is not implemented yet.
    pub fn build(
        spec: &B,
        endpoints: impl Into<Arc<[Endpoint]>>,
        params: &ViewParams,
        now: Time,
    ) -> Result<Self, SpecError> {
        Self::build_after(spec, None, endpoints, params, now)
    }

    /// Builds a replacement of `before`. Its knowledge of queried servers, and those of its tables that fit, are
    /// reused, also by a policy with other parameters.
    ///
    /// # Errors
    ///
    /// As those of [`build`](Self::build).
    pub fn build_after(
        spec: &B,
        before: Option<&Self>,
        endpoints: impl Into<Arc<[Endpoint]>>,
        params: &ViewParams,
        now: Time,
    ) -> Result<Self, SpecError> {
        spec.validate()?;
        let view = View::build(endpoints, params, now);
        let policy = spec.build_valid(&view, before.and_then(|one| one.policy.tables()));
        Ok(Self {
            spec: spec.clone(),
            view,
            policy,
        })
    }

    /// Rebuilds the same policy over a changed set of endpoints, or over the same set after a change of health.
    ///
    /// Hash tables are shared with `self` if membership, weights, priorities and the order of endpoints are unchanged.
    /// So the cost is O(n) when only health has changed.
    #[must_use]
    pub fn rebuild(
        &self,
        endpoints: impl Into<Arc<[Endpoint]>>,
        params: &ViewParams,
        now: Time,
    ) -> Self {
        let view = View::build(endpoints, params, now);
        let policy = self.spec.build_valid(&view, self.policy.tables());
        Self {
            spec: self.spec.clone(),
            view,
            policy,
        }
    }

    /// Picks the endpoint of a request; see [`Policy::pick`].
    #[inline]
    pub fn pick(&self, ctx: &PickCtx<'_>, rng: &mut Rng) -> Option<Index> {
        self.policy.pick(&self.view, ctx, rng)
    }

    /// Returns the first step of a request whose assignment may take several steps; see [`Decision`].
    pub fn begin(&self, decision: &mut Decision, ctx: &PickCtx<'_>, rng: &mut Rng) -> Step {
        self.policy.begin(decision, &self.view, ctx, rng)
    }

    /// Returns the next step after an endpoint has answered the decision's query.
    pub fn answered(
        &self,
        decision: &mut Decision,
        answer: (Index, Answer),
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        self.policy.answered(decision, &self.view, answer, ctx, rng)
    }

    /// Returns the next step after `from` has rejected the request because it has `in_flight` other requests.
    pub fn refused(
        &self,
        decision: &mut Decision,
        (from, in_flight): (Index, u32),
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        decision.saw(from, in_flight);
        self.policy.refused(decision, &self.view, ctx, rng)
    }

    /// Returns the next step after the answers to a query have not arrived in time.
    pub fn timed_out(&self, decision: &mut Decision, ctx: &PickCtx<'_>, rng: &mut Rng) -> Step {
        self.policy.timed_out(decision, &self.view, ctx, rng)
    }

    /// Returns servers to query for their load, which later requests use. No request waits for the answers, which are
    /// passed to [`record_load`](Self::record_load).
    pub fn asides(&self, ctx: &PickCtx<'_>, rng: &mut Rng) -> Asked {
        self.policy.asides(&self.view, ctx, rng)
    }

    /// Processes a server's load that no decision waits for: an answer to a query from [`asides`](Self::asides), or an
    /// unsolicited report.
    pub fn record_load(&self, from: Index, load: &Load, now: Time) {
        if let Some(endpoint) = self.view.endpoint(from) {
            endpoint.stats.report(load.in_flight);
        }
        self.policy.record_load(from, load, now);
    }

    /// Returns the view.
    #[must_use]
    #[inline]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Returns the policy.
    #[must_use]
    pub fn policy(&self) -> &dyn Policy {
        &*self.policy
    }

    /// Returns the specification of the policy.
    #[must_use]
    pub fn spec(&self) -> &B {
        &self.spec
    }
}
