//! What became of a `ProxyService`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::Condition;

/// What became of it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyServiceStatus {
    /// `Accepted`: it can be done, or why not; `Ready`: requests go through the proxies, or why not. Without a
    /// `targetRef`, `Ready`: what pays is done, or why not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Proxies that are available, and how many are wanted: `1/1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxies: Option<String>,
    /// With `mode: Auto` and a `targetRef`: what is seen, and what would be best.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto: Option<AutoStatus>,
    /// Without a `targetRef`: the Services that are called by sidecars, at most 100: those that are balanced in
    /// another way than without this first, then those that would gain most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub services: Option<Vec<ServiceBalance>>,
    /// Services that are not listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub services_left_out: Option<u32>,
}

/// How a Service is balanced, and how it would be best.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceBalance {
    /// `NAMESPACE/NAME`.
    pub name: String,
    /// What there is now, in the words of `recommended`.
    pub balancing: String,
    /// Why it cannot have proxies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What is seen of it; absent while that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto: Option<AutoStatus>,
}

/// What is seen of a Service, and what would be best for it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AutoStatus {
    /// `local`: `lor(choices=2)` in the callers' sidecars; `bounce`, `ledger`: these policies there;
    /// `proxy-service`: proxies.
    pub recommended: String,
    /// Mean response time that it is predicted to have, in milliseconds.
    pub predicted_milliseconds: f64,
    /// Mean response time as it is now, in milliseconds.
    pub measured_milliseconds: f64,
    /// Mean response time that `local` is predicted to have, in milliseconds.
    pub local_milliseconds: f64,
    /// Mean response time that proxies are predicted to have, in milliseconds.
    pub proxied_milliseconds: f64,
    /// Utilization of the endpoints that follows from requests and response times; 0 to 1.
    pub utilization: f64,
}
