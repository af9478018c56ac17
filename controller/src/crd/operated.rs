//! Validates the kinds that only operators read, not the index.

use serde_json::Value;

use super::check::{SpecError, spec};
use super::{
    CommunicationGraphSpec, GROUP, PlacementPolicySpec, ProxyServiceSpec, TuningPolicySpec, VERSION,
};

/// Validates the `spec` of a `CommunicationGraph`, `PlacementPolicy`,
/// `ProxyService` or `TuningPolicy` of this version. Returns `None` for any other object.
#[must_use]
pub fn check(object: &Value) -> Option<Result<(), SpecError>> {
    if object["apiVersion"] != format!("{GROUP}/{VERSION}") {
        return None;
    }
    Some(match object["kind"].as_str()? {
        "CommunicationGraph" => spec(object).and_then(|spec: CommunicationGraphSpec| spec.check()),
        "PlacementPolicy" => spec(object).and_then(|spec: PlacementPolicySpec| spec.check()),
        "ProxyService" => spec(object).and_then(|spec: ProxyServiceSpec| spec.check()),
        "TuningPolicy" => spec(object).and_then(|spec: TuningPolicySpec| spec.check()),
        _ => return None,
    })
}
