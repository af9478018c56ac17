//! The mesh's own resources, checked.

use std::collections::BTreeMap;

use maglor_config::raw::MeshMode;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Age, Meta};
use crate::crd::{self, AuthorizationPolicySpec, MeshConfigSpec, TrafficPolicySpec};

/// The label of a `TrafficPolicy` that a `TuningPolicy` of this name has written.
pub const TUNED_BY: &str = maglor_inject::keys::TUNED_BY;

/// The annotation by which an operator says that a version of an `AuthorizationPolicy` is complete although the
/// definition was older than the controller when it was written.
pub const CONFIRMED: &str = maglor_inject::keys::CONFIRMED;
/// The reason in the status of a policy that may lack a part of what was written.
pub const OUTDATED: &str = "DefinitionOutdated";

/// A `spec` that was read and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked<T> {
    /// What is in force: what was read, or, where that cannot be used, what holds in its place.
    pub value: Option<T>,
    /// Why what was read cannot be used.
    pub problem: Option<String>,
}

/// A `TrafficPolicy`.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficPolicy {
    /// Of two on one level the older one wins.
    pub age: Age,
    /// It follows from what was observed: it holds only where no other says anything.
    pub generated: bool,
    /// Which version of the resource this is.
    pub generation: Option<i64>,
    /// What it says.
    pub spec: Checked<TrafficPolicySpec>,
    /// The version that is in force; `None` = none is.
    pub in_force: Option<i64>,
    /// What its status says of it.
    pub recorded: Recorded<TrafficPolicySpec>,
}

/// An `AuthorizationPolicy`.
#[derive(Clone, Debug, PartialEq)]
pub struct AuthorizationPolicy {
    /// Which version of the resource this is.
    pub generation: Option<i64>,
    /// What it says.
    pub spec: Checked<AuthorizationPolicySpec>,
    /// The version whose rules are in force; `None` = none is.
    pub in_force: Option<i64>,
    /// The pods that it may be for where it cannot be used and none before it is in force: these are closed.
    pub closes: Option<Closes>,
    /// The definition in the cluster was older than the controller when this version was written.
    pub outdated: bool,
    /// Whether an operator has confirmed that this version is as it was written.
    pub confirmed: bool,
    /// What its status says of it.
    pub recorded: Recorded<AuthorizationPolicySpec>,
}

/// The pods of a policy that cannot be used, as far as it can be read.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Closes {
    /// Labels that they have; what else the selector says is not known and selects no pod beside these.
    pub labels: BTreeMap<String, String>,
}

/// What the status of a policy says: by this, replicas of the controller that were restarted and those that were not
/// come to the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded<T> {
    /// The version that the status is about.
    pub observed: Option<i64>,
    /// Whether that version was accepted.
    pub accepted: bool,
    /// Why that version may lack what was written, if it does.
    pub outdated: Option<String>,
    /// The last `spec` that could be used, and of which version it is.
    pub in_force: Option<(i64, T)>,
}

/// A `MeshConfig`.
#[derive(Clone, Debug, PartialEq)]
pub struct MeshConfig {
    /// Which version of the resource this is.
    pub generation: Option<i64>,
    /// What it says.
    pub spec: Checked<MeshConfigSpec>,
    /// The version that is in force; `None` = none is.
    pub in_force: Option<i64>,
    /// What its status says of it.
    pub recorded: Recorded<MeshConfigSpec>,
}

fn spec<T: DeserializeOwned>(
    value: &Value,
    check: impl FnOnce(&T) -> Result<(), crd::SpecError>,
) -> Checked<T> {
    let read = crd::check::spec(value);
    match read.and_then(|spec| check(&spec).map(|()| spec)) {
        Ok(value) => Checked {
            value: Some(value),
            problem: None,
        },
        Err(problem) => Checked {
            value: None,
            problem: Some(problem.to_string()),
        },
    }
}

impl TrafficPolicy {
    pub(super) fn read(meta: &Meta, value: &Value) -> Self {
        let spec = spec(value, TrafficPolicySpec::check);
        Self {
            age: meta.age(),
            generated: meta.labels.contains_key(TUNED_BY),
            generation: meta.generation,
            in_force: spec.value.as_ref().and(meta.generation),
            spec,
            recorded: Recorded::read(&value["status"], TrafficPolicySpec::check),
        }
    }

    /// Decides what is in force; `before` is what this replica knew. What cannot be used leaves the last version that
    /// could in force, and without one has no effect.
    pub(crate) fn settle(&mut self, before: Option<&Self>) {
        if self.spec.problem.is_some() {
            let own = before.and_then(|old| Some((old.in_force, old.spec.value.clone()?)));
            let last = self.recorded.last(self.generation, own);
            (self.in_force, self.spec.value) =
                last.map_or((None, None), |(of, spec)| (of, Some(spec)));
        }
    }

    /// Whether both have the same effect; what the status says apart from that is not compared.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.age, self.generated, &self.spec.value)
            == (&other.age, other.generated, &other.spec.value)
    }
}

impl AuthorizationPolicy {
    pub(super) fn read(meta: &Meta, value: &Value) -> Self {
        let spec = spec(value, check);
        let confirmed = meta.annotations.get(CONFIRMED);
        let confirmed = confirmed.and_then(|text| text.parse().ok());
        // An audited policy denies nothing.
        let attempted = value["spec"]["audit"] == true;
        let closes = (spec.problem.is_some() && !attempted).then(|| Closes::of(&value["spec"]));
        Self {
            generation: meta.generation,
            in_force: spec.value.as_ref().and(meta.generation),
            spec,
            closes,
            outdated: false,
            confirmed: confirmed.is_some() && confirmed == meta.generation,
            recorded: Recorded::read(&value["status"], check),
        }
    }

    /// Decides what is in force; `before` is what this replica knew, `pruned` names a field that the API server does
    /// not store because its definition is older than this program.
    ///
    /// What cannot be used leaves the last good rules in force, those of the status once that is about this version:
    /// so all replicas agree, those that start among them. Without such rules it closes its pods.
    pub(crate) fn settle(&mut self, before: Option<&Self>, pruned: Option<&str>) {
        if self.spec.problem.is_none()
            && let Some(problem) = self.outdated(before, pruned)
        {
            self.outdated = true;
            self.refuse(problem);
        }
        if self.spec.problem.is_none() {
            return;
        }
        let own = before.and_then(|old| Some((old.in_force, old.spec.value.clone()?)));
        let last = self.recorded.last(self.generation, own);
        (self.in_force, self.spec.value) = last.map_or((None, None), |(of, spec)| (of, Some(spec)));
        if self.spec.value.is_some() {
            self.closes = None;
        }
    }

    /// Why this version may lack a part of what was written: a rule without one of its conditions takes more. A
    /// version that was in force before the definition was found to be older lacks nothing that its rules had then.
    fn outdated(&self, before: Option<&Self>, pruned: Option<&str>) -> Option<String> {
        if self.confirmed {
            return None;
        }
        if self.recorded.is_of(self.generation) {
            return self.recorded.outdated.clone();
        }
        let field = pruned?;
        let was_in_force = before
            .is_some_and(|old| old.generation == self.generation && old.spec.problem.is_none());
        let generation = self.generation.unwrap_or_default();
        (!was_in_force).then(|| {
            format!(
                "the API server does not store `{field}`, as its CustomResourceDefinition is older than the controller: the field was dropped from the stored policy. Install the definitions of this version (maglor-controller crds | kubectl apply \
                 --server-side -f -) and apply the policy again, or, if it is complete, annotate it with {CONFIRMED}={generation}"
            )
        })
    }

    fn refuse(&mut self, problem: String) {
        let spec = self.spec.value.take().unwrap_or_default();
        let labels = spec.selector.map(|selector| selector.match_labels);
        self.closes = (spec.audit != Some(true)).then(|| Closes {
            labels: labels.unwrap_or_default(),
        });
        self.spec.problem = Some(problem);
    }

    /// Whether both come to the same rules for the same pods; what the status says apart from that is not compared.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.spec.value, &self.closes) == (&other.spec.value, &other.closes)
    }
}

fn check(spec: &AuthorizationPolicySpec) -> Result<(), crd::SpecError> {
    crd::check::rules(&spec.rules)
}

impl Closes {
    /// What is said of pods in a spec that cannot be used: without a selector it is for all of its namespace, and so
    /// where the selector cannot be read.
    pub(super) fn of(spec: &Value) -> Self {
        let labels = spec["selector"]["matchLabels"].as_object();
        let text =
            |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
        Self {
            labels: labels.into_iter().flatten().filter_map(text).collect(),
        }
    }

    /// Whether a pod with these labels is closed.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let there = |(name, value): (&String, &String)| labels.get(name) == Some(value);
        self.labels.iter().all(there)
    }
}

impl<T: Clone + DeserializeOwned> Recorded<T> {
    fn read(status: &Value, check: impl FnOnce(&T) -> Result<(), crd::SpecError>) -> Self {
        let conditions = status["conditions"].as_array();
        let accepted = conditions
            .into_iter()
            .flatten()
            .find(|condition| condition["type"] == "Accepted");
        let in_force = &status["inForce"];
        let spec = || {
            let read = crd::check::spec::<T>(in_force).ok()?;
            check(&read).is_ok().then_some(read)
        };
        Self {
            observed: accepted.and_then(|one| one["observedGeneration"].as_i64()),
            accepted: accepted.is_some_and(|one| one["status"] == "True"),
            outdated: accepted
                .filter(|one| one["reason"] == OUTDATED)
                .and_then(|one| one["message"].as_str())
                // Behind it the status says what is in force in its place.
                .map(|text| text.rsplit_once("; ").map_or(text, |(problem, _)| problem))
                .map(str::to_owned),
            in_force: in_force["generation"].as_i64().zip(spec()),
        }
    }

    /// Whether the status is about this version.
    fn is_of(&self, generation: Option<i64>) -> bool {
        generation.is_some() && self.observed == generation
    }

    /// The last version that could be used: the one of the status where that is about this version, which cannot;
    /// `own`, which this replica knew, until then. A file has no versions and no status: nothing is kept, as a
    /// replica that starts could not know it.
    fn last(
        &self,
        generation: Option<i64>,
        own: Option<(Option<i64>, T)>,
    ) -> Option<(Option<i64>, T)> {
        generation?;
        let recorded = self.in_force.clone();
        let recorded = recorded.map(|(generation, spec)| (Some(generation), spec));
        match self.is_of(generation) && !self.accepted {
            true => recorded,
            false => own.or(recorded),
        }
    }
}

impl MeshConfig {
    pub(super) fn read(meta: &Meta, value: &Value) -> Self {
        let mut spec = spec(value, MeshConfigSpec::check);
        // Members do not take plain text because something else of it cannot be used.
        if spec.problem.is_some() {
            spec.value = Some(closed(&value["spec"]));
        }
        Self {
            generation: meta.generation,
            in_force: spec.problem.is_none().then_some(meta.generation).flatten(),
            spec,
            recorded: Recorded::read(&value["status"], MeshConfigSpec::check),
        }
    }

    /// Decides what is in force, as [`TrafficPolicy::settle`]; without a version that could be used [`closed`] is.
    pub(crate) fn settle(&mut self, before: Option<&Self>) {
        if self.spec.problem.is_none() {
            return;
        }
        // What was closed before is no version that could be used.
        let own = before.filter(|old| old.in_force.is_some());
        let own = own.and_then(|old| Some((old.in_force, old.spec.value.clone()?)));
        if let Some((generation, spec)) = self.recorded.last(self.generation, own) {
            (self.in_force, self.spec.value) = (generation, Some(spec));
        }
    }
}

/// What is in force of a `MeshConfig` that cannot be used, if none is from before: who members are, and no plain text
/// unless that is what it says.
fn closed(spec: &Value) -> MeshConfigSpec {
    let domain = spec["trustDomain"].as_str().map(str::to_owned);
    let alone = MeshConfigSpec {
        trust_domain: domain,
        ..MeshConfigSpec::default()
    };
    let known = alone.check().is_ok();
    let mode = spec.get("mtls").cloned();
    let mode = mode.map_or(Ok(None), |mode| serde_json::from_value(mode).map(Some));
    MeshConfigSpec {
        mtls: mode.unwrap_or(Some(MeshMode::Strict)),
        trust_domain: alone.trust_domain.filter(|_| known),
        ..MeshConfigSpec::default()
    }
}
