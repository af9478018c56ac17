//! A view with the policy built for it: the unit that a worker swaps when endpoints change.

use std::sync::Arc;

use crate::{Endpoint, Index, PickCtx, Policy, Rng, Spec, SpecError, Time, View, ViewParams};

/// A [`View`] and its [`Policy`].
///
/// Immutable; to change the set, [`rebuild`](Self::rebuild) and swap. Picks in progress finish on
/// the old one. Counts live in the endpoints' statistics and carry over.
#[derive(Debug)]
pub struct Balancer {
    spec: Spec,
    view: View,
    policy: Box<dyn Policy>,
}

impl Balancer {
    /// Builds the view and the policy with its tables.
    ///
    /// # Errors
    ///
    /// If `spec` has parameters out of range, or names a policy that is not built yet.
    pub fn build(
        spec: &Spec,
        endpoints: impl Into<Arc<[Endpoint]>>,
        params: &ViewParams,
        now: Time,
    ) -> Result<Self, SpecError> {
        let view = View::build(endpoints, params, now);
        let policy = spec.build(&view)?;
        Ok(Self {
            spec: spec.clone(),
            view,
            policy,
        })
    }

    /// The same policy over a changed set, or over the same one after a change of health.
    ///
    /// Hash tables are shared with `self` if membership, weights and priorities are the same and
    /// in the same order, which makes this O(n) when only health has changed.
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

    /// The endpoint that a request goes to; see [`Policy::pick`].
    #[inline]
    pub fn pick(&self, ctx: &PickCtx<'_>, rng: &mut Rng) -> Option<Index> {
        self.policy.pick(&self.view, ctx, rng)
    }

    /// The endpoints it picks from.
    #[must_use]
    #[inline]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &dyn Policy {
        &*self.policy
    }

    /// What the policy was built from.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }
}
