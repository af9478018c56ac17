//! Facts of the mesh's own resources, validated.

use std::collections::BTreeMap;

use maglor_config::raw::MeshMode;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Age, Meta};
use crate::crd::{self, AuthorizationPolicySpec, MeshConfigSpec, TrafficPolicySpec};

/// The label of a generated `TrafficPolicy` with the name of its `TuningPolicy`.
pub const TUNED_BY: &str = maglor_manifests::inject::keys::TUNED_BY;

/// The annotation by which an operator confirms that a version of an `AuthorizationPolicy` is complete, although the
/// CustomResourceDefinition was older than the controller when the version was written.
pub const CONFIRMED: &str = maglor_manifests::inject::keys::CONFIRMED;
/// The status reason of a policy that may lack a part of what was written.
pub const OUTDATED: &str = "DefinitionOutdated";

/// A validated `spec`.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked<T> {
    /// The value in force: the one that was read or, if it is invalid, its replacement; `None` if there is none.
    pub value: Option<T>,
    /// Why the value that was read is invalid; `None` if it is valid.
    pub problem: Option<String>,
}

/// A `TrafficPolicy`.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficPolicy {
    /// The age of the policy. Of two policies on one level the older one wins.
    pub age: Age,
    /// Whether the policy was generated from observations, so that it applies only where no other policy does.
    pub generated: bool,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// Content of the policy.
    pub spec: Checked<TrafficPolicySpec>,
    /// The generation in force; `None` if there is none.
    pub in_force: Option<i64>,
    /// The state recorded in the policy's status.
    pub recorded: Recorded<TrafficPolicySpec>,
}

/// An `AuthorizationPolicy`.
#[derive(Clone, Debug, PartialEq)]
pub struct AuthorizationPolicy {
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// Content of the policy.
    pub spec: Checked<AuthorizationPolicySpec>,
    /// The generation whose rules are in force; `None` if there is none.
    pub in_force: Option<i64>,
    /// The pods to which an invalid policy without a valid previous version may apply, and which therefore deny
    /// requests; `None` otherwise.
    pub closes: Option<Closes>,
    /// Whether the definition in the cluster was older than the controller when this version was written.
    pub outdated: bool,
    /// Whether an operator has confirmed that this version is complete.
    pub confirmed: bool,
    /// The state recorded in the policy's status.
    pub recorded: Recorded<AuthorizationPolicySpec>,
}

/// The pods of an invalid policy, to the extent that its selector can be read.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Closes {
    /// Labels of the pods. Unreadable parts of the selector are ignored, since no other pods can be selected by them.
    pub labels: BTreeMap<String, String>,
}

/// The state recorded in the status of a policy, so that restarted and running replicas of the controller come to the
/// same result.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded<T> {
    /// The observed generation; `None` if the status contains none.
    pub observed: Option<i64>,
    /// Whether that generation was accepted.
    pub accepted: bool,
    /// Why the observed generation may lack a part of what was written; `None` if it is complete.
    pub outdated: Option<String>,
    /// The last valid `spec` and its generation; `None` if there is none.
    pub in_force: Option<(i64, T)>,
}

/// A `MeshConfig`.
#[derive(Clone, Debug, PartialEq)]
pub struct MeshConfig {
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// Content of the configuration.
    pub spec: Checked<MeshConfigSpec>,
    /// The generation in force; `None` if there is none.
    pub in_force: Option<i64>,
    /// The state recorded in the configuration's status.
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

    /// Determines what is in force; `before` is the version known to this replica. If this version is invalid, the
    /// last valid one stays in force; if there is none, the policy has no effect.
    pub(crate) fn settle(&mut self, before: Option<&Self>) {
        if self.spec.problem.is_some() {
            let own = before.and_then(|old| Some((old.in_force, old.spec.value.clone()?)));
            let last = self.recorded.last(self.generation, own);
            (self.in_force, self.spec.value) =
                last.map_or((None, None), |(of, spec)| (of, Some(spec)));
        }
    }

    /// Returns whether both have the same effect. Other parts of the status are not compared.
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
            recorded: Recorded::read(&value["status"], |spec: &AuthorizationPolicySpec| {
                crd::check::recorded_rules(&spec.rules)
            }),
        }
    }

    /// Determines what is in force. `before` is the version known to this replica; `pruned` names a field that the
    /// API server does not store because its definition is older than this program.
    ///
    /// If this version is invalid, the last valid rules stay in force. They are taken from the status once it
    /// describes this version, so that all replicas agree, including those that are starting. If there are no such
    /// rules, the policy's pods deny all requests.
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

    /// Returns why this version may lack a part of what was written, in which case a rule could match more than
    /// intended; `None` if it is complete. A version that was in force before the definition was found to be outdated
    /// has all fields of that time.
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

    /// Returns whether both have the same rules for the same pods. Other parts of the status are not compared.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.spec.value, &self.closes) == (&other.spec.value, &other.closes)
    }
}

fn check(spec: &AuthorizationPolicySpec) -> Result<(), crd::SpecError> {
    crd::check::rules(&spec.rules)
}

impl Closes {
    /// Reads the selector of an invalid spec. If it is missing or unreadable, the policy applies to its whole
    /// namespace.
    pub(super) fn of(spec: &Value) -> Self {
        let labels = spec["selector"]["matchLabels"].as_object();
        let text =
            |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
        Self {
            labels: labels.into_iter().flatten().filter_map(text).collect(),
        }
    }

    /// Returns whether a pod with these labels denies requests because of this policy.
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
                // The rest of the message describes what is in force instead.
                .map(|text| text.rsplit_once("; ").map_or(text, |(problem, _)| problem))
                .map(str::to_owned),
            in_force: in_force["generation"].as_i64().zip(spec()),
        }
    }

    /// Returns whether the status describes this generation.
    fn is_of(&self, generation: Option<i64>) -> bool {
        generation.is_some() && self.observed == generation
    }

    /// Returns the last valid version: that of the status if the status describes this version, which is invalid;
    /// until then `own`, the version known to this replica. Files have no generations or statuses, so no version is
    /// kept for them, because a restarted replica could not know it.
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
        // An invalid other field must not make the mesh accept plain text.
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

    /// Determines what is in force, like [`TrafficPolicy::settle`]. If there is no valid version, this is [`closed`].
    pub(crate) fn settle(&mut self, before: Option<&Self>) {
        if self.spec.problem.is_none() {
            return;
        }
        // The replacement by `closed` is not a valid version.
        let own = before.filter(|old| old.in_force.is_some());
        let own = own.and_then(|old| Some((old.in_force, old.spec.value.clone()?)));
        if let Some((generation, spec)) = self.recorded.last(self.generation, own) {
            (self.in_force, self.spec.value) = (generation, Some(spec));
        }
    }
}

/// Returns the value in force for an invalid `MeshConfig` without a valid previous version: it keeps the trust
/// domain, and allows no plain text unless this is configured.
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
