//! Limits callers' reports to what the called services confirm.
//!
//! A proxy knows the requests that it sends, and those that it forwards to its own application. Therefore the calls
//! that callers report are compared with the calls that the sidecars of the called service have accepted: successful
//! calls cannot exceed these, nor can failed calls as long as any call arrives. If callers together report more, one
//! of the reports is wrong, but it is unknown which one. In this case the callers' figures are scaled down to the
//! confirmed ones, and the service is marked as contradicted. Until the reports agree again, placement does not move
//! it, and calls to it are not kept local. Reports about services without sidecars are not confirmed; these services
//! are neither moved nor scaled.

use std::collections::BTreeMap;

use maglor_service_graph::Traffic;

/// Tolerated ratio of reported to confirmed calls, because callers and called services count at different times and
/// averages lag behind.
const TOLERANCE: f64 = 1.5;
/// Number of calls per second below which no comparison is possible.
const FEW: f64 = 1.0;

/// Calls that the sidecars of a service have reported as accepted.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    rps: f64,
    /// Number of sidecars that have reported.
    proxies: u32,
}

/// The limits of callers' reports.
#[derive(Debug, Default)]
pub(super) struct ReportLimits {
    /// The limits by the name of the service.
    limits: BTreeMap<String, Limit>,
}

/// The limit of callers' reports about a service.
#[derive(Clone, Copy, Debug)]
struct Limit {
    /// Successful calls per second.
    most: f64,
    /// Whether any calls arrive. If none does, all may fail.
    any: bool,
}

impl ReportLimits {
    /// Computes the limits from reports of accepted calls. `services` are those all of whose replicas report accepted
    /// calls, with their numbers of replicas.
    pub(super) fn new<'a>(
        services: impl Iterator<Item = (&'a str, u32)>,
        taken: impl Iterator<Item = (&'a str, f64)>,
    ) -> Self {
        let mut accepted: BTreeMap<&str, Taken> = BTreeMap::new();
        for (service, rps) in taken {
            let sum = accepted.entry(service).or_default();
            sum.rps += rps;
            sum.proxies += 1;
        }
        let limits = services.map(|(service, replicas)| {
            let taken = accepted.get(service).copied().unwrap_or_default();
            // Sidecars without a report are assumed to accept as much as the others.
            let all = f64::from(replicas.max(1)) / f64::from(taken.proxies.max(1));
            let limit = Limit {
                most: TOLERANCE * taken.rps * all.max(1.0) + FEW,
                any: taken.rps > 0.0,
            };
            (service.to_owned(), limit)
        });
        Self {
            limits: limits.collect(),
        }
    }

    /// Returns the factors by which calls to services are scaled down, for services whose callers report more calls
    /// than are confirmed.
    pub(super) fn factors<'a>(
        &self,
        calls: impl Iterator<Item = (&'a str, Traffic)>,
    ) -> BTreeMap<String, f64> {
        let mut reported: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for (service, traffic) in calls {
            let (good, failed) = reported.entry(service).or_default();
            *good += (traffic.rps - traffic.failures).max(0.0);
            *failed += traffic.failures;
        }
        let exceeding = reported
            .into_iter()
            .filter_map(|(service, (good, failed))| {
                let limit = *self.limits.get(service)?;
                // Failed calls may never have arrived.
                let calls = good.max(if limit.any { failed } else { 0.0 });
                (calls > limit.most).then(|| (service.to_owned(), limit.most / calls))
            });
        exceeding.collect()
    }
}

/// Scales traffic by a factor.
pub(super) fn scaled(traffic: Traffic, factor: f64) -> Traffic {
    Traffic {
        rps: traffic.rps * factor,
        failures: traffic.failures * factor,
        bytes_per_second: traffic.bytes_per_second * factor,
        connections: traffic.connections * factor,
        in_flight: traffic.in_flight * factor,
        latency_ms: traffic.latency_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(rps: f64, failures: f64) -> Traffic {
        Traffic {
            rps,
            failures,
            ..Traffic::default()
        }
    }

    fn factor(taken: &[f64], replicas: u32, reported: &[(f64, f64)]) -> Option<f64> {
        let services = [("shop/cart", replicas)].into_iter();
        let taken = taken.iter().map(|rps| ("shop/cart", *rps));
        let reported = reported.iter();
        let reported = reported.map(|(rps, failures)| ("shop/cart", calls(*rps, *failures)));
        let factors = ReportLimits::new(services, taken).factors(reported);
        factors.get("shop/cart").copied()
    }

    #[test]
    fn reports_are_limited_to_confirmed_calls() {
        assert_eq!(factor(&[50.0, 50.0], 2, &[(60.0, 0.0), (40.0, 0.0)]), None);
        // The accepted calls include those of callers outside of the mesh.
        assert_eq!(factor(&[500.0], 1, &[(60.0, 0.0)]), None);
        let lied = factor(&[50.0, 50.0], 2, &[(60.0, 0.0), (1e15, 0.0)]).unwrap();
        assert!(lied * 1e15 <= TOLERANCE * 100.0 + FEW, "{lied}");
        // Two of four replicas have reported so far.
        assert_eq!(factor(&[50.0, 50.0], 4, &[(200.0, 0.0)]), None);
        assert!(factor(&[50.0, 50.0], 2, &[(200.0, 0.0)]).is_some());
        // No calls are accepted.
        assert!(factor(&[], 2, &[(5.0, 0.0)]).is_some());
        assert_eq!(factor(&[], 2, &[(0.5, 0.0)]), None);
    }

    #[test]
    fn what_has_failed_need_not_have_arrived() {
        assert_eq!(factor(&[100.0], 1, &[(200.0, 110.0)]), None);
        assert!(factor(&[100.0], 1, &[(200.0, 10.0)]).is_some());
        // All calls fail and none arrives; this is ignored if other calls arrive.
        assert_eq!(factor(&[0.0], 1, &[(100.0, 100.0)]), None);
        assert!(factor(&[10.0], 1, &[(1e9, 1e9), (10.0, 0.0)]).is_some());
    }
}
