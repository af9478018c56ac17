//! The mesh's own resources, checked.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Age, Meta};
use crate::crd::{self, AuthorizationPolicySpec, MeshConfigSpec, TrafficPolicySpec};

/// The label of a `TrafficPolicy` that a `TuningPolicy` of this name has written.
pub const TUNED_BY: &str = maglor_inject::keys::TUNED_BY;

/// A `spec` that was read and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked<T> {
    /// What is in force: what was read, or, where that cannot be used, what was read before.
    pub value: Option<T>,
    /// Why what was read cannot be used.
    pub problem: Option<String>,
}

impl<T: Clone> Checked<T> {
    /// Keeps what was in force before, where this cannot be used.
    pub fn keep(&mut self, before: &Self) {
        if self.problem.is_some() {
            self.value.clone_from(&before.value);
        }
    }
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
}

/// An `AuthorizationPolicy`.
#[derive(Clone, Debug, PartialEq)]
pub struct AuthorizationPolicy {
    /// Which version of the resource this is.
    pub generation: Option<i64>,
    /// What it says.
    pub spec: Checked<AuthorizationPolicySpec>,
}

/// A `MeshConfig`.
#[derive(Clone, Debug, PartialEq)]
pub struct MeshConfig {
    /// Which version of the resource this is.
    pub generation: Option<i64>,
    /// What it says.
    pub spec: Checked<MeshConfigSpec>,
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
        Self {
            age: meta.age(),
            generated: meta.labels.contains_key(TUNED_BY),
            generation: meta.generation,
            spec: spec(value, TrafficPolicySpec::check),
        }
    }
}

impl AuthorizationPolicy {
    pub(super) fn read(meta: &Meta, value: &Value) -> Self {
        Self {
            generation: meta.generation,
            spec: spec(value, |spec: &AuthorizationPolicySpec| {
                crd::check::rules(&spec.rules)
            }),
        }
    }
}

impl MeshConfig {
    pub(super) fn read(meta: &Meta, value: &Value) -> Self {
        Self {
            generation: meta.generation,
            spec: spec(value, MeshConfigSpec::check),
        }
    }
}
