//! Writes the decisions of a round: to Deployments, and as `TrafficPolicy`s.

use kube::ResourceExt as _;
use maglor_service_graph::tune::{Begun, Change, Part, Round, Undone};

use super::{Operator, Stage, reference};
use crate::crd::{TrafficPolicySpec, TuningMode, TuningPart};
use crate::metrics::Tuned;
use crate::reconcile::cache::key;
use crate::tuning::api::Written;
use crate::tuning::inputs::{Subject, advice_params};
use crate::tuning::status::part_word;
use crate::tuning::traffic::{advised, document, name, slow_start};

impl Operator {
    /// Rolls back changes that were not successful. A rollback that is not possible now is retried in the next round.
    pub(super) async fn take_back(&mut self, stage: &Stage<'_>, round: &Round) {
        for undone in &round.undone {
            let (service, part) = (&undone.service, undone.part);
            let written = self.undo(stage, undone).await;
            if let Err(error) = &written {
                tracing::warn!(service, %error, "tuning: rollback failed; retrying");
            }
            let governed = self.governed.get_mut(&key(stage.policy));
            if let (false, Some(governed)) = (matches!(written, Ok(Written::Done)), governed) {
                governed.tuning.pending(service, part);
                governed.done.taken_back = governed.done.taken_back.saturating_sub(1);
            }
        }
    }

    /// Starts wanted changes, and deletes generated policies that are no longer wanted.
    pub(super) async fn carry_out(
        &mut self,
        stage: &Stage<'_>,
        round: &Round,
    ) -> Result<(), kube::Error> {
        let mut all = Ok(());
        for begun in &round.begun {
            all = all.and(self.begin(stage, begun).await);
        }
        all.and(self.withdraw(stage).await)
    }

    async fn begin(&mut self, stage: &Stage<'_>, begun: &Begun) -> Result<(), kube::Error> {
        let written = match stage.inputs.subjects.get(&begun.service) {
            Some(subject) => self.change(stage, subject, begun).await,
            None => Ok(Written::Stale),
        };
        if !matches!(written, Ok(Written::Done)) {
            self.miss_one(stage, begun);
            return written.map(|_| ());
        }
        let part = part_of(begun.change);
        self.options.metrics.count(part, Tuned::Done);
        let what = words(begun.change);
        let note = format!("{}: {what}: {}", begun.service, begun.reason);
        tracing::info!(service = begun.service, what, "tuning: change applied");
        self.options
            .events
            .report(reference(stage.policy), "ServiceTuned", "Tune", &note);
        Ok(())
    }

    /// Records that no change of a round was made, so that the changes are evaluated again.
    pub(super) fn miss(&mut self, stage: &Stage<'_>, round: &Round) {
        round
            .begun
            .iter()
            .for_each(|begun| self.miss_one(stage, begun));
    }

    fn miss_one(&mut self, stage: &Stage<'_>, begun: &Begun) {
        let part = part_of(begun.change);
        if let Some(governed) = self.governed.get_mut(&key(stage.policy)) {
            governed.tuning.missed(&begun.service, part);
            governed.done.changes = governed.done.changes.saturating_sub(1);
        }
        self.options.metrics.count(part, Tuned::Missed);
    }

    async fn change(
        &self,
        stage: &Stage<'_>,
        subject: &Subject,
        begun: &Begun,
    ) -> Result<Written, kube::Error> {
        let policy = stage.policy.name_any();
        let workload = subject.workload.as_ref();
        match (begun.change, workload) {
            (Change::Replicas { from, to }, Some(workload)) => {
                if to > from && self.grows(stage, subject).await? == Written::Stale {
                    return Ok(Written::Stale);
                }
                let patch = workload.scale(&policy, to);
                self.server
                    .patch(&workload.key, patch, &workload.seen)
                    .await
            }
            (
                Change::Requests {
                    cpu_millis,
                    memory_mib,
                },
                Some(workload),
            ) => {
                let advice = stage.advice.get(&begun.service);
                let shares = advice.map(|one| subject.shares(one, (cpu_millis, memory_mib)));
                let shares = shares.unwrap_or_default();
                if shares.is_empty() {
                    // The containers have reached their limits.
                    return Ok(Written::Stale);
                }
                let patch = workload.request(&policy, &shares);
                self.server
                    .patch(&workload.key, patch, &workload.seen)
                    .await
            }
            (Change::Traffic, _) => {
                let advice = stage.advice.get(&begun.service);
                let traffic = advice.and_then(|one| one.traffic.as_ref());
                let (Some(service), Some(traffic)) = (&subject.service, traffic) else {
                    return Ok(Written::Stale);
                };
                let spec = advised(&service.namespace, &service.name, traffic);
                let former = stage.policies.own.get(&service.name).map(|own| &own.spec);
                self.generate(stage, &service.name, &spec, former).await
            }
            (_, None) => Ok(Written::Stale),
        }
    }

    /// Configures slow start at the callers before replicas are added.
    async fn grows(&self, stage: &Stage<'_>, subject: &Subject) -> Result<Written, kube::Error> {
        let Some(service) = &subject.service else {
            return Ok(Written::Done);
        };
        let policies = &stage.policies;
        let known = policies.own.contains_key(&service.name);
        if known || policies.taken.contains(&name(&service.name)) {
            return Ok(Written::Done);
        }
        let spec = self.least(stage, &service.name);
        self.generate(stage, &service.name, &spec, None).await
    }

    fn least(&self, stage: &Stage<'_>, service: &str) -> TrafficPolicySpec {
        let params = advice_params(&stage.policy.spec);
        slow_start(service, params.scaling.slow_start)
    }

    async fn generate(
        &self,
        stage: &Stage<'_>,
        service: &str,
        spec: &TrafficPolicySpec,
        former: Option<&TrafficPolicySpec>,
    ) -> Result<Written, kube::Error> {
        let namespace = stage.policy.namespace().unwrap_or_default();
        let document = document(stage.policy, service, spec, former);
        let there = stage.policies.own.get(service).map(|own| &own.seen);
        self.server.apply(&namespace, document, there).await
    }

    /// Restores the previous value of a change.
    async fn undo(&self, stage: &Stage<'_>, undone: &Undone) -> Result<Written, kube::Error> {
        let Some(subject) = stage.inputs.subjects.get(&undone.service) else {
            return Ok(Written::Done);
        };
        let workload = subject.workload.as_ref();
        let patch = workload.and_then(|one| Some((one, one.put_back(undone.part)?)));
        let written = match (undone.part, patch, &subject.service) {
            (Part::Replicas | Part::Requests, Some((one, patch)), _) => {
                self.server.patch(&one.key, patch, &one.seen).await?
            }
            (Part::Traffic, _, Some(service)) => {
                let own = stage.policies.own.get(&service.name);
                let edited = stage.policies.edited.contains_key(&service.name);
                let former = own.and_then(|own| own.former.clone());
                let former = former.unwrap_or_else(|| self.least(stage, &service.name));
                match own.is_some() && !edited {
                    true => self.generate(stage, &service.name, &former, None).await?,
                    false => Written::Done,
                }
            }
            _ => Written::Done,
        };
        if written == Written::Done {
            self.options.metrics.count(undone.part, Tuned::TakenBack);
            let (service, part, reason) = (&undone.service, part_word(undone.part), &undone.reason);
            tracing::warn!(service, part, reason, "tuning: change rolled back");
            let note = format!("{service}: {part} rolled back: {reason}");
            self.options
                .events
                .warn(reference(stage.policy), "TuningTakenBack", "Tune", &note);
        }
        Ok(written)
    }

    /// Deletes generated policies of Services that the policy no longer selects or that are excluded.
    async fn withdraw(&self, stage: &Stage<'_>) -> Result<(), kube::Error> {
        let spec = &stage.policy.spec;
        let wanted = |service: &str, own: &TrafficPolicySpec| {
            let mut subjects = stage.inputs.subjects.values();
            let subject =
                subjects.find(|one| one.service.as_ref().is_some_and(|key| key.name == service));
            let alone = |one: &Subject| one.workload.as_ref().is_some_and(|one| one.disabled);
            let said = spec.sets(TuningPart::Traffic) || *own == self.least(stage, service);
            spec.mode() == TuningMode::Apply && said && subject.is_some_and(|one| !alone(one))
        };
        let namespace = stage.policy.namespace().unwrap_or_default();
        for (service, own) in &stage.policies.own {
            if !wanted(service, &own.spec) && self.options.permitted.covers(&namespace) {
                let name = name(service);
                if self.server.delete(&namespace, &name, &own.seen).await? == Written::Stale {
                    continue;
                }
                tracing::info!(
                    namespace,
                    service,
                    "tuning: generated TrafficPolicy removed"
                );
            }
        }
        Ok(())
    }
}

fn part_of(change: Change) -> Part {
    match change {
        Change::Replicas { .. } => Part::Replicas,
        Change::Requests { .. } => Part::Requests,
        Change::Traffic => Part::Traffic,
    }
}

fn words(change: Change) -> String {
    match change {
        Change::Replicas { from, to } => format!("{from} → {to} replicas"),
        Change::Requests {
            cpu_millis,
            memory_mib,
        } => format!("requests of {cpu_millis}m, {memory_mib}Mi per replica"),
        Change::Traffic => "changed limits and timeouts at callers".to_owned(),
    }
}
