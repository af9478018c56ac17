//! `join-idle-queue`: queries a board for an idle server.
//!
//! A server is drawn as in any policy, and its group's board is queried. Without an answer in time, or when the board
//! is empty, the fallback decides over all servers: a board hands out idle servers only, so its group has no share of
//! the rest. A host that fails to answer several times in a row is not queried for a while.

use std::sync::Arc;

use maglor_balance::queue_protocol::{
    Answer, Asked, Decision, Groups, KnownHosts, Question, Step, Trust,
};
use maglor_balance::{
    BuildPolicy as _, Fallback, FallbackPlan, Index, PickCtx, Policy, PolicySpec, Rng,
    SharedTables, View,
};

/// The policy; see the module's documentation.
#[derive(Debug)]
pub(crate) struct JoinIdleQueue {
    groups: Groups,
    hosts: Arc<KnownHosts>,
    fallback: FallbackPlan,
    random: Box<dyn Policy>,
    local: Box<dyn Policy>,
}

impl JoinIdleQueue {
    pub(crate) fn new(
        view: &View,
        boards: u32,
        fallback: Fallback,
        previous: Option<SharedTables>,
    ) -> Self {
        let groups = Groups::of_count(view, boards);
        let previous = previous.and_then(|previous| previous.downcast::<KnownHosts>().ok());
        let hosts = KnownHosts::new(view, &groups, previous.as_deref());
        Self {
            groups,
            fallback: FallbackPlan::new(fallback, Arc::clone(&hosts.probe)),
            hosts: Arc::new(hosts),
            random: PolicySpec::Random.build_valid(view, None),
            local: PolicySpec::default().build_valid(view, None),
        }
    }

    fn fall_back(
        &self,
        decision: &mut Decision,
        view: &View,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        decision.fall_back();
        match self.fallback.begin(decision, view, None, ctx, rng) {
            // All endpoints have been attempted before: repeating is better than giving up.
            Step::Fail => Step::send(self.pick(view, ctx, rng)),
            step => step,
        }
    }

    fn trust(&self, decision: &Decision) -> Option<&Trust> {
        self.hosts.trust(decision.scope()?)
    }
}

impl Policy for JoinIdleQueue {
    /// Picks without the help of inbound proxies: `lor(choices=2)`.
    fn pick(&self, view: &View, ctx: &PickCtx<'_>, rng: &mut Rng) -> Option<Index> {
        self.local.pick(view, ctx, rng)
    }

    fn begin(
        &self,
        decision: &mut Decision,
        view: &View,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        decision.reset();
        let Some(drawn) = self.random.pick(view, ctx, rng) else {
            return Step::Fail;
        };
        let group = self.groups.of(drawn);
        decision.stay_with(group);
        let host = group.and_then(|group| self.groups.host(group));
        let trusted = self
            .trust(decision)
            .is_some_and(|trust| trust.allows(ctx.now));
        match host {
            Some(host) if trusted => {
                let (to, timeout) = (Asked::from_slice(&[host]), self.hosts.timeout.get());
                decision.ask(to, Question::Referral, timeout, ctx.now)
            }
            _ => self.fall_back(decision, view, ctx, rng),
        }
    }

    fn answered(
        &self,
        decision: &mut Decision,
        view: &View,
        (from, answer): (Index, Answer),
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        if decision.has_fallen_back() {
            let answer = (from, answer);
            return self
                .fallback
                .answered(decision, view, None, answer, ctx, rng);
        }
        self.hosts.timeout.learn(decision.asked_at(), ctx.now);
        if let Some(trust) = self.trust(decision) {
            trust.answered();
        }
        let named = match answer {
            Answer::Referral(referral) => referral.and_then(|one| self.groups.named(one.server)),
            Answer::Load(_) => None,
        };
        match named.filter(|to| view.is_usable(*to) && !ctx.excluded.contains(to)) {
            Some(to) => Step::send(Some(to)),
            None => self.fall_back(decision, view, ctx, rng),
        }
    }

    fn refused(
        &self,
        decision: &mut Decision,
        view: &View,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        self.fallback.refused(decision, view, None, ctx, rng)
    }

    fn timed_out(
        &self,
        decision: &mut Decision,
        view: &View,
        ctx: &PickCtx<'_>,
        rng: &mut Rng,
    ) -> Step {
        if decision.has_fallen_back() {
            return self.fallback.timed_out(decision, view, None, ctx, rng);
        }
        self.hosts.timeout.expired();
        if let Some(trust) = self.trust(decision) {
            trust.silent(decision.asked_at(), ctx.now);
        }
        self.fall_back(decision, view, ctx, rng)
    }

    fn tables(&self) -> Option<SharedTables> {
        Some(Arc::clone(&self.hosts) as SharedTables)
    }
}
