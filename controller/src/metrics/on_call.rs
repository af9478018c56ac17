//! Metrics for alerts: expiry of certificates, age of the known cluster state, and latency of acknowledgements by
//! proxies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use maglor_identity::x509;
use maglor_telemetry::{Buckets, Counter, Gauge, Histogram, Registry};
use maglor_xds::Kind;
use tokio::time::Instant;

use crate::identity::authority::{InForce, Watched};
use crate::index::Status;
use crate::index::facts::{Key, Kind as Facet};
use crate::panics;

/// The expiry times of certificates. Clones share the same state.
#[derive(Clone, Debug, Default)]
pub struct Expiries(Arc<Mutex<Certificates>>);

#[derive(Debug, Default)]
struct Certificates {
    ca: Option<Watched>,
    controller: Option<SystemTime>,
    webhook: Option<SystemTime>,
    /// Number of connected members, by the expiry time of their certificates.
    members: BTreeMap<SystemTime, usize>,
}

/// A connected member; removed when dropped.
#[derive(Debug)]
pub(crate) struct Connected {
    all: Expiries,
    expires: SystemTime,
}

impl Drop for Connected {
    fn drop(&mut self) {
        let members = &mut self.all.lock().members;
        if let Some(count) = members.get_mut(&self.expires) {
            *count -= 1;
            if *count == 0 {
                members.remove(&self.expires);
            }
        }
    }
}

impl Expiries {
    fn lock(&self) -> MutexGuard<'_, Certificates> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the certificate authority whose expiry is reported.
    pub(crate) fn of_authority(&self, ca: Watched) {
        self.lock().ca = Some(ca);
    }

    /// Sets the expiry of the controller's own certificate.
    pub(crate) fn of_controller(&self, expires: SystemTime) {
        self.lock().controller = Some(expires);
    }

    /// Sets the expiry of the webhook's certificate.
    pub(crate) fn of_webhook(&self, expires: SystemTime) {
        self.lock().webhook = Some(expires);
    }

    /// Adds a connected member with the expiry of its certificate.
    pub(crate) fn of_member(&self, expires: SystemTime) -> Connected {
        *self.lock().members.entry(expires).or_default() += 1;
        Connected {
            all: self.clone(),
            expires,
        }
    }

    /// Returns the earliest expiry of each type of certificate; unknown ones are omitted.
    fn all(&self) -> Vec<(&'static str, SystemTime)> {
        let known = self.lock();
        let ca = known.ca.as_ref().and_then(|ca| ca.borrow().clone());
        let ca = ca.as_deref();
        let all = [
            ("authority", ca.and_then(|ca| ca.issuer.expires())),
            ("controller", known.controller),
            ("member", known.members.keys().next().copied()),
            ("root", ca.and_then(first_root)),
            ("webhook", known.webhook),
        ];
        let known = all.into_iter();
        known
            .filter_map(|(what, expires)| Some((what, expires?)))
            .collect()
    }
}

/// Returns when the first of the roots that members trust expires.
fn first_root(ca: &InForce) -> Option<SystemTime> {
    let roots = ca.bundle.certificates().iter();
    let expires = roots.filter_map(|root| Some(x509::parse(root)?.expires()));
    expires.min()
}

/// When the API server has last served each kind. Clones share the same state.
#[derive(Clone, Debug, Default)]
pub struct Answered(Arc<Mutex<BTreeMap<&'static str, Served>>>);

#[derive(Clone, Copy, Debug)]
struct Served {
    /// The number of responses that have begun and not ended, such as open watches.
    open: usize,
    /// When the last response has ended.
    last: Instant,
}

/// A response of the API server, until it is dropped.
pub(crate) struct Response {
    to: Answered,
    kind: &'static str,
}

impl Drop for Response {
    fn drop(&mut self) {
        if let Some(served) = self.to.lock().get_mut(self.kind) {
            served.open -= 1;
            served.last = Instant::now();
        }
    }
}

impl Answered {
    /// Records the beginning of a response, or of the first request.
    pub(crate) fn begin(&self, kind: &'static str) -> Response {
        let (open, last) = (0, Instant::now());
        let mut known = self.lock();
        known.entry(kind).or_insert(Served { open, last }).open += 1;
        let to = self.clone();
        Response { to, kind }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Served>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ages(&self, now: Instant) -> Vec<(&'static str, Duration)> {
        let known = self.lock();
        let age = |served: &Served| match served.open {
            0 => now.duration_since(served.last),
            _ => Duration::ZERO,
        };
        let known = known.iter();
        known.map(|(kind, served)| (*kind, age(served))).collect()
    }
}

/// Stored policies that are invalid or without effect. Clones share the same state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unusable(Arc<Mutex<BTreeSet<(Facet, Key)>>>);

impl Unusable {
    /// Records the status of a policy; `None` if it was deleted.
    pub(crate) fn record(&self, kind: Facet, key: &Key, status: Option<&Status>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = (kind, key.clone());
        match status.is_some_and(Status::is_unusable) {
            true => all.insert(id),
            false => all.remove(&id),
        };
    }

    fn counts(&self) -> BTreeMap<&'static str, u32> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = BTreeMap::from(POLICIES.map(|kind| (kind.label(), 0)));
        for (kind, _) in all.iter() {
            *counts.entry(kind.label()).or_default() += 1;
        }
        counts
    }
}

/// Kinds of policies whose metric is present even if it is zero.
const POLICIES: [Facet; 7] = [
    Facet::AuthorizationPolicy,
    Facet::DestinationRule,
    Facet::IstioAuthorizationPolicy,
    Facet::MeshConfig,
    Facet::PeerAuthentication,
    Facet::Telemetry,
    Facet::TrafficPolicy,
];

/// Metrics of proxies' acknowledgements and rejections.
#[derive(Clone, Debug)]
pub struct PushMetrics {
    delays: Histogram,
    refused: [(Kind, Counter); Kind::ALL.len()],
}

impl PushMetrics {
    fn new(registry: &Registry) -> Self {
        let delays = registry.histogram(
            "controller_push_seconds",
            "Delay from a change to its acknowledgement or rejection by a proxy, in seconds.",
            &[],
            Buckets::latency(),
        );
        let refused = registry.counter(
            "controller_pushes_refused_total",
            "Responses rejected by a proxy, by kind.",
            &["kind"],
        );
        Self {
            delays: delays.with(&[]),
            refused: Kind::ALL.map(|kind| (kind, refused.with(&[&kind.to_string()]))),
        }
    }

    /// Records acknowledgements and rejections; see [`maglor_xds::grpc_server::Policy::answered`].
    pub(crate) fn answered(&self, delays: &[Duration], refused: Option<Kind>) {
        for delay in delays {
            self.delays.observe_shared(*delay);
        }
        let of_kind = |(kind, _): &&(Kind, Counter)| Some(*kind) == refused;
        for (_, counter) in self.refused.iter().filter(of_kind) {
            counter.add_shared(1);
        }
    }
}

/// The metrics for alerts.
#[derive(Debug)]
pub(crate) struct OnCall {
    pub(crate) expiries: Expiries,
    pub(crate) answered: Answered,
    pub(crate) pushes: PushMetrics,
    pub(crate) unusable: Unusable,
    pending: Gauge,
    panics: Counter,
}

impl OnCall {
    pub(super) fn new(registry: &Registry) -> Self {
        let pending = registry.gauge(
            "controller_push_pending_seconds",
            "Age of the oldest unacknowledged response, in seconds.",
            &[],
        );
        let panics = registry.counter("controller_panics_total", "Panics of tasks.", &[]);
        let (expiries, answered) = (Expiries::default(), Answered::default());
        let certificates = expiries.clone();
        registry.sampled_gauge(
            "controller_expiry_seconds",
            "Earliest expiry of the certificates of a kind, in seconds since the Unix epoch.",
            &["certificate"],
            move |out| {
                for (what, expires) in certificates.all() {
                    let since = expires.duration_since(UNIX_EPOCH).unwrap_or_default();
                    out.push(&[what], since.as_secs_f64().floor());
                }
            },
        );
        let watches = answered.clone();
        registry.sampled_gauge(
            "controller_watch_age_seconds",
            "Time since the API server has last served a list or watch, by kind, in seconds; 0 while a watch is open.",
            &["kind"],
            move |out| {
                for (kind, age) in watches.ages(Instant::now()) {
                    out.push(&[kind], age.as_secs_f64());
                }
            },
        );
        let unusable = Unusable::default();
        let policies = unusable.clone();
        registry.sampled_gauge(
            "controller_unusable_policies",
            "Stored policies that are invalid, by kind.",
            &["kind"],
            move |out| {
                for (kind, count) in policies.counts() {
                    out.push(&[kind], f64::from(count));
                }
            },
        );
        Self {
            expiries,
            answered,
            pushes: PushMetrics::new(registry),
            unusable,
            pending: pending.with(&[]),
            panics: panics.with(&[]),
        }
    }

    /// Updates gauges from state that is held elsewhere: the age of the oldest unacknowledged response, and the number
    /// of panics.
    pub(super) fn refresh(&self, longest_unanswered: Duration) {
        let pending = longest_unanswered.as_secs();
        self.pending.set(i64::try_from(pending).unwrap_or(i64::MAX));
        let counted = panics::counted().saturating_sub(self.panics.value());
        self.panics.add_shared(counted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::Condition;

    #[test]
    fn the_first_certificate_of_the_members_counts_while_they_are_connected() {
        let registry = Registry::new(1);
        let on_call = OnCall::new(&registry);
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let shown = || registry.encode();
        assert!(
            !shown().contains("controller_expiry_seconds{"),
            "none is known"
        );
        let late = on_call.expiries.of_member(at(200));
        let twice = [100, 100].map(|seconds| on_call.expiries.of_member(at(seconds)));
        let line = |seconds| {
            format!("maglor_controller_expiry_seconds{{certificate=\"member\"}} {seconds}\n")
        };
        assert!(shown().contains(&line(100)));
        let [one, other] = twice;
        drop(one);
        assert!(shown().contains(&line(100)));
        drop(other);
        assert!(shown().contains(&line(200)));
        drop(late);
        assert!(!shown().contains("certificate=\"member\""));
        on_call.expiries.of_webhook(at(300));
        assert!(shown().contains("{certificate=\"webhook\"} 300\n"));
    }

    #[test]
    fn a_watch_ages_from_the_end_of_the_last_answer() {
        let answered = Answered::default();
        let late = Duration::from_secs(90);
        let age = || {
            let [("Pod", age)] = answered.ages(Instant::now() + late)[..] else {
                panic!("one kind");
            };
            age
        };
        drop(answered.begin("Pod"));
        assert!(age() >= late);
        let watch = answered.begin("Pod");
        drop(answered.begin("Pod"));
        assert_eq!(age(), Duration::ZERO);
        drop(watch);
        assert!(age() >= late);
    }

    #[test]
    fn policies_count_as_long_as_they_cannot_be_used() {
        let registry = Registry::new(1);
        let unusable = OnCall::new(&registry).unusable;
        let key = Key::new("shop", "web");
        let is_counted = |holds, reason| {
            let condition = Condition::new("Accepted", holds, reason, "why", None);
            let status = Status::Kept(vec![condition], None);
            unusable.record(Facet::AuthorizationPolicy, &key, Some(&status));
            let shown = registry.encode();
            let line = "unusable_policies{kind=\"AuthorizationPolicy\"} 1\n";
            shown.contains(line)
        };
        assert!(is_counted(false, "Invalid"));
        assert!(!is_counted(true, "Accepted"));
        assert!(is_counted(false, "DefinitionOutdated"));
        unusable.record(Facet::AuthorizationPolicy, &key, None);
        assert!(
            registry
                .encode()
                .contains("{kind=\"AuthorizationPolicy\"} 0\n")
        );
    }

    #[test]
    fn refusals_and_delays_are_counted() {
        let registry = Registry::new(1);
        let pushes = PushMetrics::new(&registry);
        pushes.answered(&[Duration::from_millis(3); 2], Some(Kind::Cluster));
        pushes.answered(&[], None);
        let shown = registry.encode();
        assert!(
            shown.contains("maglor_controller_push_seconds_count 2\n"),
            "{shown}"
        );
        assert!(shown.contains("maglor_controller_pushes_refused_total{kind=\"cluster\"} 1\n"));
    }
}
