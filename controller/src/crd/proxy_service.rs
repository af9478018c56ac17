//! `ProxyService`: dedicated proxies in front of a Service, which see all of its requests.

use maglor_balance::PolicySpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::schema::{Shape, without};
use super::{LabelSelector, Resources, SpecError, TargetRef};

mod autoscaling;
mod status;

use autoscaling::Autoscaling;
pub use status::{AutoStatus, ProxyServiceStatus, ServiceBalance};

/// Default drain time of a proxy, in seconds.
pub(crate) const DRAIN_SECONDS: u32 = 30;

/// Deploys dedicated proxies in front of a Service. Because they see all of its requests, they balance better than
/// many callers that each see a few (docs/proxy-service.md). The Service keeps its name, addresses and ports; clients
/// need no change.
///
/// Without `targetRef` it applies to all Services of its namespace, or of the mesh if it is in the controller's
/// namespace. Each Service gets proxies only while they are worthwhile (`mode: Auto`).
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[cfg_attr(
    feature = "kubernetes",
    derive(kube::CustomResource),
    kube(
        group = "maglor.dev",
        version = "v1alpha1",
        kind = "ProxyService",
        plural = "proxyservices",
        namespaced,
        status = "ProxyServiceStatus",
        schema = "disabled",
        shortname = "ps",
        category = "maglor",
        derive = "PartialEq",
        derive = "Default",
        printcolumn = r#"{"name": "Service", "type": "string", "jsonPath": ".spec.targetRef.name"}"#,
        printcolumn = r#"{"name": "Policy", "type": "string", "jsonPath": ".spec.policy"}"#,
        printcolumn = r#"{"name": "Proxies", "type": "string", "jsonPath": ".status.proxies"}"#,
        printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"}"#,
        printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].reason"}"#,
        printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
    )
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProxyServiceSpec {
    /// The Service in the same namespace. If two ProxyServices have the same target, the older one applies. Absent:
    /// all Services of the namespace, or of the mesh, that have no ProxyService of their own; requires `mode: Auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// Without `targetRef`: selects Services by label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// Without `targetRef`: maximum number of Services with proxies at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000), extend("default" = 10))]
    pub max_services: Option<u32>,
    /// With `targetRef`: name of a group of Services of this namespace that share proxies. Each Service has its own
    /// ports at the proxies. Use it for Services with few requests, for which dedicated proxies would be idle.
    /// `replicas`, `autoscaling`, `resources`, `serviceAccountName` and `drainSeconds` are those of the oldest
    /// ProxyService of the group; the others must have the same values or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 40),
        regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub group: Option<String>,
    /// Whether proxies always run, or only while they are worthwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Always"))]
    pub mode: Option<ProxyMode>,
    /// With `mode: Auto`: whether recommendations are only reported. `false` carries them out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub dry_run: Option<bool>,
    /// With `mode: Auto`: whether the policies `bounce` and `ledger` in the callers' sidecars are considered, too;
    /// they are set by a generated `TrafficPolicy`. Requires sidecars at all endpoints, and no other `TrafficPolicy`
    /// that sets the Service's load balancing policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub sidecar_policies: Option<bool>,
    /// Load balancing policy of the proxies, as in the proxy's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "lor(choices=2)"))]
    pub policy: Option<String>,
    /// Number of proxies. With policies based on local counts, each of several proxies sees only a part of the
    /// requests. Policies based on true queue lengths (`bounce`, `ledger`, `probe`) are not affected if the endpoints
    /// have sidecars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100), extend("default" = 1))]
    pub replicas: Option<u32>,
    /// Scales the proxies by load with a HorizontalPodAutoscaler, instead of a fixed `replicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<Autoscaling>,
    /// Resources of a proxy's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Drain time of terminating proxies, in seconds. Requests, WebSockets and TCP connections that are still open
    /// after it are closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600), extend("default" = 30))]
    pub drain_seconds: Option<u32>,
    /// Service account of the proxies. Default: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
}

/// When proxies run.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum ProxyMode {
    /// As long as the ProxyService exists.
    #[default]
    Always,
    /// While they significantly reduce the latency measured by callers (docs/proxy-service.md).
    Auto,
}

impl ProxyServiceSpec {
    /// Validates constraints that the schema cannot express.
    ///
    /// # Errors
    /// If a constraint is violated; the error describes the first violation.
    pub fn check(&self) -> Result<(), SpecError> {
        let wrong = |path: &str, message: String| SpecError::Value {
            path: format!("spec.{path}"),
            message,
        };
        if let Some(target) = &self.target_ref {
            target.check("spec.targetRef")?;
        }
        let reach = match &self.target_ref {
            Some(target) => self.check_one(target),
            None => self.check_many(),
        };
        let reach = reach.and_then(|()| self.check_mode());
        reach.map_err(|(path, message)| wrong(path, message.to_owned()))?;
        self.policy()?;
        let resources = self.resources.as_ref().map_or(Ok(()), Resources::check);
        resources.map_err(|(path, message)| wrong(&format!("resources.{path}"), message))?;
        if self
            .replicas
            .is_some_and(|count| !(1..=100).contains(&count))
        {
            return Err(wrong("replicas", "must be 1 to 100".to_owned()));
        }
        if !(1..=3600).contains(&self.drain_seconds()) {
            return Err(wrong("drainSeconds", "must be 1 to 3600".to_owned()));
        }
        if let Some(autoscaling) = &self.autoscaling {
            if self.replicas.is_some() {
                let message =
                    "`autoscaling` determines the number of proxies; remove `replicas`".to_owned();
                return Err(wrong("replicas", message));
            }
            let checked = autoscaling.check();
            checked.map_err(|(path, message)| wrong(path, message.to_owned()))?;
        }
        Ok(())
    }

    fn check_one(&self, target: &TargetRef) -> Result<(), (&'static str, &'static str)> {
        if target.port.is_some() {
            let message = "the proxies of a Service serve all of its ports; remove `port`";
            return Err(("targetRef.port", message));
        }
        if let Some(group) = &self.group {
            if !is_group_name(group) {
                let message = "must be 1 to 40 lower-case letters, digits and `-`, without `-` at the beginning or end";
                return Err(("group", message));
            }
            if self.is_auto() {
                let message = "shared proxies always run; remove `group` or `mode: Auto`";
                return Err(("group", message));
            }
        }
        if self.selector.is_some() {
            return Err((
                "selector",
                "must not be combined with `targetRef`, which names a single Service; remove one of them",
            ));
        }
        if self.max_services.is_some() {
            return Err((
                "maxServices",
                "`targetRef` names a single Service; remove `maxServices`",
            ));
        }
        Ok(())
    }

    /// Rejects fields that would have no effect: `dryRun: true`, for example, must not be silently ignored.
    fn check_mode(&self) -> Result<(), (&'static str, &'static str)> {
        if self.is_auto() {
            return Ok(());
        }
        if self.dry_run == Some(true) {
            let message = "has no effect without `mode: Auto`; set `mode: Auto` or remove `dryRun`";
            return Err(("dryRun", message));
        }
        match self.sidecar_policies() {
            true => Err((
                "sidecarPolicies",
                "has no effect without `mode: Auto`; set `mode: Auto` or remove `sidecarPolicies`",
            )),
            false => Ok(()),
        }
    }

    fn check_many(&self) -> Result<(), (&'static str, &'static str)> {
        if !self.is_auto() {
            let message = "name a Service; only with `mode: Auto` may `targetRef` be omitted, to select all Services";
            return Err(("targetRef", message));
        }
        if self.group.is_some() {
            let message =
                "a Service joins a group by its own ProxyService; name the Service in `targetRef`";
            return Err(("group", message));
        }
        if self.service_account_name.is_some() {
            let message = "one account for the proxies of all Services could impersonate the \
                           callers of each; remove `serviceAccountName`, and each Service gets an \
                           account for its proxies";
            return Err(("serviceAccountName", message));
        }
        match self.max_services() {
            1..=1000 => Ok(()),
            _ => Err(("maxServices", "must be 1 to 1000")),
        }
    }

    /// Returns the load balancing policy of the proxies.
    ///
    /// # Errors
    /// If the proxy has no such policy.
    pub fn policy(&self) -> Result<PolicySpec, SpecError> {
        let wrong = |message| SpecError::Value {
            path: "spec.policy".to_owned(),
            message,
        };
        let Some(text) = &self.policy else {
            return Ok(PolicySpec::default());
        };
        text.parse().map_err(|error| wrong(format!("{error}")))
    }

    /// Returns whether proxies run only while they are worthwhile.
    #[must_use]
    pub fn is_auto(&self) -> bool {
        self.mode.unwrap_or_default() == ProxyMode::Auto
    }

    /// Returns whether recommendations are only reported, not applied.
    #[must_use]
    pub fn dry_run(&self) -> bool {
        self.dry_run.unwrap_or(true)
    }

    /// Returns whether policies of the callers' sidecars are considered.
    #[must_use]
    pub fn sidecar_policies(&self) -> bool {
        self.sidecar_policies.unwrap_or(false)
    }

    /// Returns the maximum number of Services with proxies at a time.
    #[must_use]
    pub fn max_services(&self) -> u32 {
        self.max_services.unwrap_or(10)
    }

    /// Returns the drain time of the proxies in seconds.
    #[must_use]
    pub fn drain_seconds(&self) -> u32 {
        self.drain_seconds.unwrap_or(DRAIN_SECONDS)
    }

    /// Returns the number of proxies.
    #[must_use]
    pub fn replicas(&self) -> u32 {
        self.replicas.unwrap_or(1)
    }

    /// Returns the initial number of proxies, which also applies with an autoscaler.
    #[must_use]
    pub fn first_replicas(&self) -> u32 {
        let scaled = self.autoscaling.as_ref();
        scaled.map_or_else(|| self.replicas(), |scaled| scaled.range().0)
    }
}

/// Returns whether a name is valid as part of the names of a group's objects.
fn is_group_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let ends = !name.starts_with('-') && !name.ends_with('-');
    (1..=40).contains(&name.len()) && name.bytes().all(inner) && ends
}

pub(super) fn schema() -> Value {
    let mut shape = Shape::of::<ProxyServiceSpec, ProxyServiceStatus>();
    shape.spec["x-kubernetes-validations"] = rules(&[
        (
            "has(self.targetRef) || (has(self.mode) && self.mode == 'Auto')",
            "name a Service in `targetRef`; it may be omitted, to select all Services, only with `mode: Auto`",
        ),
        (
            "!has(self.targetRef) || !(has(self.selector) || has(self.maxServices))",
            "`selector` and `maxServices` apply to all Services and must not be combined with `targetRef`",
        ),
        (
            "has(self.targetRef) || !(has(self.group) || has(self.serviceAccountName))",
            "`group` and `serviceAccountName` need a `targetRef`",
        ),
        (
            "!has(self.group) || !has(self.mode) || self.mode == 'Always'",
            "proxies of a `group` always run: `group` must not be combined with `mode: Auto`",
        ),
        (
            "!has(self.autoscaling) || !has(self.replicas)",
            "the number of proxies is determined by `autoscaling`: remove `replicas`",
        ),
        (
            "(has(self.mode) && self.mode == 'Auto') || !(has(self.dryRun) && self.dryRun)",
            "`dryRun: true` needs `mode: Auto`",
        ),
        (
            "(has(self.mode) && self.mode == 'Auto') || !(has(self.sidecarPolicies) && self.sidecarPolicies)",
            "`sidecarPolicies: true` needs `mode: Auto`",
        ),
    ]);
    let autoscaling = &mut shape.spec["properties"]["autoscaling"];
    autoscaling["required"] = json!(["maxReplicas"]);
    autoscaling["x-kubernetes-validations"] = rules(&[(
        "(has(self.minReplicas) ? self.minReplicas : 1) <= self.maxReplicas",
        "`minReplicas` must not be above `maxReplicas`",
    )]);
    let target = &mut shape.spec["properties"]["targetRef"];
    without(target, &["port"]);
    target["required"] = json!(["name"]);
    shape.into_schema()
}

/// Returns the validation rules of the API server beyond types, with their messages.
fn rules(all: &[(&str, &str)]) -> Value {
    let rule = |(rule, message): &(&str, &str)| json!({"rule": rule, "message": message});
    all.iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> ProxyServiceSpec {
        serde_yaml::from_str(text).unwrap()
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (text, expected) in [
            ("{targetRef: {name: ''}}", "spec.targetRef.name: "),
            ("{targetRef: {name: a, port: 80}}", "spec.targetRef.port: "),
            ("{}", "spec.targetRef: name a Service; "),
            ("{mode: Auto, maxServices: 0}", "spec.maxServices: "),
            (
                "{mode: Auto, serviceAccountName: edge}",
                "spec.serviceAccountName: ",
            ),
            (
                "{targetRef: {name: a}, selector: {matchLabels: {tier: web}}}",
                "spec.selector: ",
            ),
            (
                "{targetRef: {name: a}, maxServices: 3}",
                "spec.maxServices: ",
            ),
            (
                "{targetRef: {name: a}, group: Low}",
                "spec.group: must be 1 to 40",
            ),
            (
                "{targetRef: {name: a}, group: low, mode: Auto}",
                "spec.group: shared proxies always run",
            ),
            ("{mode: Auto, group: low}", "spec.group: a Service joins"),
            (
                "{targetRef: {name: a}, dryRun: true}",
                "spec.dryRun: has no effect without `mode: Auto`",
            ),
            (
                "{targetRef: {name: a}, mode: Always, sidecarPolicies: true}",
                "spec.sidecarPolicies: ",
            ),
            ("{targetRef: {name: a}, policy: best}", "spec.policy: "),
            (
                "{targetRef: {name: a}, policy: 'join-idle-queue(boards=4)'}",
                "spec.policy: policy join-idle-queue is for comparison",
            ),
            ("{targetRef: {name: a}, replicas: 0}", "spec.replicas: "),
            (
                "{targetRef: {kind: Deployment, name: a}}",
                "spec.targetRef.kind: must be `Service`",
            ),
            (
                "{targetRef: {name: a}, resources: {limits: {cpu: lots}}}",
                "spec.resources.limits.cpu: invalid quantity `lots`",
            ),
            (
                "{targetRef: {name: a}, drainSeconds: 0}",
                "spec.drainSeconds: ",
            ),
            (
                "{targetRef: {name: a}, replicas: 2, autoscaling: {maxReplicas: 4}}",
                "spec.replicas: `autoscaling` determines",
            ),
            (
                "{targetRef: {name: a}, autoscaling: {maxReplicas: 0}}",
                "spec.autoscaling.maxReplicas: ",
            ),
            (
                "{targetRef: {name: a}, autoscaling: {minReplicas: 3, maxReplicas: 2}}",
                "spec.autoscaling.minReplicas: ",
            ),
            (
                "{targetRef: {name: a}, autoscaling: {maxReplicas: 2, requestsPerSecond: 0}}",
                "spec.autoscaling.requestsPerSecond: ",
            ),
            (
                "{targetRef: {name: a}, autoscaling: {maxReplicas: 2, stabilizationSeconds: 3601}}",
                "spec.autoscaling.stabilizationSeconds: ",
            ),
        ] {
            let error = spec(text).check().unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn what_can_be_is_taken() {
        let plain = spec("{targetRef: {name: a}}");
        assert_eq!(plain.check(), Ok(()));
        assert_eq!(plain.policy().unwrap().to_string(), "lor(choices=2)");
        let member = spec("{targetRef: {name: a}, group: low-rate, policy: lor(choices=all)}");
        assert_eq!(member.check(), Ok(()));
        let all = spec("{targetRef: {name: a}, policy: lor(choices=all), replicas: 4}");
        assert_eq!((all.check(), all.replicas()), (Ok(()), 4));
        let scaled = spec("{targetRef: {name: a}, autoscaling: {minReplicas: 3, maxReplicas: 5}}");
        assert_eq!((all.first_replicas(), scaled.first_replicas()), (4, 3));
        let live = spec("{targetRef: {name: a}, dryRun: false, sidecarPolicies: false}");
        assert_eq!(live.check(), Ok(()));
        let wide = spec("{mode: Auto, selector: {matchLabels: {tier: web}}, replicas: 2}");
        assert_eq!((wide.check(), wide.max_services()), (Ok(()), 10));
    }
}
