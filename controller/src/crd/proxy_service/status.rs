//! Status of a `ProxyService`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::Condition;

/// Status of a ProxyService.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyServiceStatus {
    /// `Accepted`: whether the object is valid. `Ready`: whether requests go through the proxies, or without
    /// `targetRef`, whether recommendations are carried out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Number of available and desired proxies, such as `1/1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxies: Option<String>,
    /// With `mode: Auto` and `targetRef`: observations and recommendation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto: Option<AutoStatus>,
    /// Without `targetRef`: at most 100 Services called by sidecars, first those whose balancing was changed, then
    /// those with the largest expected gain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub services: Option<Vec<ServiceBalance>>,
    /// Number of services that are not listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub services_left_out: Option<u32>,
}

/// Current and recommended balancing of a Service.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceBalance {
    /// Name of the Service, `NAMESPACE/NAME`.
    pub name: String,
    /// Current balancing; the values are those of `recommended`.
    pub balancing: String,
    /// Why the Service cannot have proxies; absent if it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Observations; absent while unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto: Option<AutoStatus>,
}

/// Observations of a Service, and the recommendation.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AutoStatus {
    /// Recommended balancing: `local` (`lor(choices=2)` in the callers' sidecars), `bounce` or `ledger` (this policy
    /// in the callers' sidecars), or `proxy-service` (dedicated proxies).
    pub recommended: String,
    /// Predicted mean response time with the recommendation, in milliseconds.
    pub predicted_milliseconds: f64,
    /// Current mean response time, in milliseconds.
    pub measured_milliseconds: f64,
    /// Predicted mean response time of `local`, in milliseconds.
    pub local_milliseconds: f64,
    /// Predicted mean response time with proxies, in milliseconds.
    pub proxied_milliseconds: f64,
    /// Utilization of the endpoints, 0 to 1, estimated from requests and response times.
    pub utilization: f64,
}
