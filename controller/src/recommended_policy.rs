//! Converts recommendations of Algorithm 2 to a `TrafficPolicy` (docs/generated.md).

use maglor_config::raw::{self, OneOrMany, Short, TimeSpan};
use maglor_service_graph::advise::{BreakerAdvice, RetryAdvice, TrafficAdvice};

use crate::crd::{TargetRef, TrafficPolicy, TrafficPolicySpec};

/// The conditions for a retry, as in Fig. 5 of the paper.
const RETRY_ON: [&str; 3] = ["gateway-error", "connect-failure", "refused-stream"];

/// Returns the policy of a Service, named `SERVICE-generated`.
#[must_use]
pub fn traffic_policy(namespace: &str, service: &str, advice: &TrafficAdvice) -> TrafficPolicy {
    let spec = TrafficPolicySpec {
        target_refs: vec![target(service)],
        cluster: Some(cluster(advice)),
        route: Some(route(advice)),
        ..TrafficPolicySpec::default()
    };
    let mut policy = TrafficPolicy::new(&format!("{service}-generated"), spec);
    policy.metadata.namespace = Some(namespace.to_owned());
    policy
}

/// Returns a policy's reference to a Service.
pub(crate) fn target(service: &str) -> TargetRef {
    TargetRef {
        kind: "Service".to_owned(),
        name: service.to_owned(),
        ..TargetRef::default()
    }
}

/// Returns the cluster settings of a recommendation.
#[must_use]
pub fn cluster(advice: &TrafficAdvice) -> raw::Cluster {
    let limits = raw::Limits {
        max_connections: Some(advice.max_connections.value),
        max_requests: Some(advice.max_requests.value),
        max_pending_requests: Some(advice.max_pending_requests.value),
        queue_timeout: Some(TimeSpan(advice.queue_timeout.value)),
        ..raw::Limits::default()
    };
    let mut cluster = raw::Cluster {
        limits: Some(limits),
        max_idle_connections: Some(advice.max_idle_connections.value),
        slow_start: Some(raw::SlowStart {
            window: Some(TimeSpan(advice.slow_start.value)),
            ..raw::SlowStart::default()
        }),
        ..raw::Cluster::default()
    };
    if let Some(retry) = &advice.retry {
        cluster.retry_budget = Some(raw::RetryBudget {
            percent: Some(retry.value.budget_percent),
            ..raw::RetryBudget::default()
        });
    }
    if let Some(breaker) = &advice.breaker {
        (cluster.circuit_breaker, cluster.outlier_ejection) = breakers(&breaker.value);
        cluster.panic_threshold = Some(50);
    }
    cluster
}

/// Returns the route settings of a recommendation.
#[must_use]
pub fn route(advice: &TrafficAdvice) -> raw::Route {
    let retry = |advice: &RetryAdvice| raw::Retry {
        attempts: Some(advice.attempts),
        retry_on: Some(OneOrMany(RETRY_ON.map(str::to_owned).to_vec())),
        per_try_timeout: Some(TimeSpan(advice.per_try_timeout)),
        ..raw::Retry::default()
    };
    raw::Route {
        timeout: Some(TimeSpan(advice.timeout.value)),
        retry: advice
            .retry
            .as_ref()
            .map(|advice| Short(retry(&advice.value))),
        ..raw::Route::default()
    }
}

/// Returns the circuit breakers of the whole service and of single endpoints. The latter use only fields that Istio
/// also has.
fn breakers(advice: &BreakerAdvice) -> (Option<raw::CircuitBreaker>, Option<raw::OutlierEjection>) {
    let breaker = raw::CircuitBreaker {
        consecutive_failures: Some(advice.consecutive_failures),
        failure_percent: Some(advice.failure_percent),
        minimum_requests: Some(advice.minimum_requests),
        interval: Some(TimeSpan(advice.interval)),
        ..raw::CircuitBreaker::default()
    };
    let ejection = raw::OutlierEjection {
        consecutive_5xx: Some(advice.consecutive_failures),
        consecutive_gateway_failure: Some(0),
        consecutive_local_origin_failure: Some(0),
        interval: Some(TimeSpan(advice.interval)),
        base_ejection_time: Some(TimeSpan(advice.ejection_time)),
        max_ejection_percent: Some(50),
        always_eject_one_host: Some(true),
        enforcing_success_rate: Some(0),
        ..raw::OutlierEjection::default()
    };
    (Some(breaker), Some(ejection))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use maglor_balance::Time;
    use maglor_manifests::istio::{
        DestinationRule, VirtualService, destination_rule, virtual_service,
    };
    use maglor_service_graph::advise::{Advisor, Params};
    use maglor_service_graph::file;

    use super::*;
    use crate::crd::check;

    /// Returns recommendations for services with all error rates, call rates and latencies. There is none for a
    /// service that is not called.
    fn advice() -> Vec<TrafficAdvice> {
        let mut all = Vec::new();
        for (rps, latency, failing) in [
            (0.0, 0.0, 0.0),
            (0.1, 1.0, 0.5),
            (50.0, 20.0, 0.02),
            (50.0, 20.0, 0.3),
            (1e6, 2e4, 1.0),
            (1e15, 2e4, 0.4),
        ] {
            let failures = rps * failing;
            let snapshot = format!(
                "{{services: [{{name: a, replicas: 1}}, {{name: b, replicas: 3}}], edges: [{{from: a, \
                 to: b, rps: {rps}, latency_ms: {latency}, failures: {failures}}}]}}"
            );
            let (_, snapshot) = file::snapshots(&snapshot).unwrap().remove(0);
            let mut advisor = Advisor::new(Params::default());
            for minute in 0..5 {
                advisor.observe(Time::ZERO + Duration::from_secs(60 * minute), &snapshot);
            }
            all.extend(advisor.advise().remove(1).traffic);
        }
        assert!(all.iter().any(|advice| advice.retry.is_some()));
        assert!(all.iter().any(|advice| advice.breaker.is_some()));
        assert_eq!(all.len(), 5);
        all
    }

    #[test]
    fn the_proxy_would_take_it() {
        for advice in advice() {
            let policy = traffic_policy("shop", "b", &advice);
            let spec = &policy.spec;
            let checked = check::blocks(spec.cluster.as_ref(), spec.route.as_ref());
            assert_eq!(checked, Ok(()), "{advice:?}");
        }
    }

    /// A policy that is exported to Istio's format and read again is unchanged, except for settings that Istio does
    /// not have.
    #[test]
    fn istio_s_words_mean_the_same() {
        for advice in advice() {
            let (cluster, route) = (cluster(&advice), route(&advice));
            let rule = destination_rule("b", &cluster);
            let mut kept = cluster.clone();
            (
                kept.circuit_breaker,
                kept.retry_budget,
                kept.max_idle_connections,
            ) = Default::default();
            if let Some(limits) = &mut kept.limits {
                limits.queue_timeout = None;
            }
            let read = DestinationRule::read(&rule.spec);
            assert!(read.findings.is_empty(), "{:?}", read.findings);
            assert_eq!(read.value.unwrap().settings(80, None).cluster, kept);
            let out = [
                "circuit_breaker",
                "limits.queue_timeout",
                "max_idle_connections",
                "retry_budget",
            ];
            for field in &rule.left_out {
                assert!(out.iter().any(|known| field.starts_with(known)), "{field}");
            }

            let service = virtual_service("b", &route);
            assert!(service.left_out.is_empty(), "{:?}", service.left_out);
            let read = VirtualService::read(&service.spec);
            assert!(read.findings.is_empty(), "{:?}", read.findings);
            let mut action = read.value.unwrap().rules.remove(0).action;
            // Envoy retries any method.
            if let Some(Short(retry)) = &mut action.retry {
                retry.non_idempotent = None;
            }
            assert_eq!(action, route);
        }
    }
}
