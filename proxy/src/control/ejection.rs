//! Outlier ejection on the control thread: a detector for each cluster, fed by reports of the workers.
//!
//! [`maglor_balance::guard::outlier`] makes the decisions; this module applies them: it sets the flags of endpoints,
//! replaces the cluster's view, updates metrics, logs, and probes ejected endpoints.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use maglor_balance::guard::health::HealthParams;
use maglor_balance::guard::outlier::{Detector, Event, OutlierParams, Watched};
use maglor_balance::{Rng, Time};
use maglor_config::{HealthCheck, HealthCheckKind};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::control::health;
use crate::runtime::shared::{Report, Shared};
use crate::upstream::{Cluster, Endpoints, Pools, Target};

/// Minimum time between log lines about failing endpoints of one cluster that are not ejected.
const PAUSE: Duration = Duration::from_secs(10);

/// Watches the clusters of the current configuration until the process ends.
pub(crate) async fn run(
    shared: Arc<Shared>,
    mut clusters: watch::Receiver<Vec<Arc<Cluster>>>,
    mut reports: UnboundedReceiver<Report>,
    seed: u64,
) {
    let mut ejections = Ejections {
        shared,
        watches: HashMap::new(),
        probes: JoinSet::new(),
        rng: Rng::seed(seed),
    };
    ejections.follow(&clusters.borrow_and_update());
    loop {
        let due = ejections.due();
        tokio::select! {
            changed = clusters.changed() => match changed {
                Ok(()) => ejections.follow(&clusters.borrow_and_update()),
                Err(_) => return,
            },
            Some(report) = reports.recv() => ejections.found(&report),
            Some(Ok(probed)) = ejections.probes.join_next() => ejections.probed(&probed),
            () = until(due) => ejections.tick(),
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => pending().await,
    }
}

/// The watched clusters and their running probes.
#[derive(Debug)]
struct Ejections {
    shared: Arc<Shared>,
    watches: HashMap<Arc<str>, Watch>,
    probes: JoinSet<Probed>,
    rng: Rng,
}

/// A cluster and its outlier detector.
#[derive(Debug)]
struct Watch {
    cluster: Arc<Cluster>,
    detector: Detector,
    /// The endpoints last passed to the detector; `None` before the first time.
    known: Option<Arc<Endpoints>>,
    spared: Spared,
}

/// Throttle for log lines about failing endpoints that are not ejected: the time of the last line, and the number of
/// lines suppressed since then. Where all endpoints fail, each further failure would otherwise cause a line.
#[derive(Debug, Default)]
struct Spared {
    said: Option<Time>,
    unsaid: u64,
}

impl Spared {
    /// Returns the number of lines suppressed since the last one; `None` if this line must be suppressed, too.
    fn say(&mut self, now: Time) -> Option<u64> {
        if self
            .said
            .is_some_and(|said| now.saturating_since(said) < PAUSE)
        {
            self.unsaid += 1;
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

/// The result of probing an ejected endpoint.
#[derive(Debug)]
struct Probed {
    cluster: Arc<str>,
    target: u64,
    answers: bool,
}

impl Ejections {
    fn now(&self) -> Time {
        self.shared.time(Instant::now())
    }

    /// Adopts the clusters of a new configuration. The state of an endpoint is kept if the parameters are unchanged.
    fn follow(&mut self, clusters: &[Arc<Cluster>]) {
        let now = self.now();
        let mut before = std::mem::take(&mut self.watches);
        for cluster in clusters {
            let Some(params) = &cluster.config().outlier else {
                continue;
            };
            let old = before.remove(cluster.name());
            let watch = Watch::new(cluster, params, old, now);
            self.watches.insert(Arc::clone(cluster.name()), watch);
        }
        let unwatched = clusters
            .iter()
            .filter(|cluster| before.contains_key(cluster.name()));
        unwatched.for_each(|cluster| pardon(cluster, now));
        self.look(now);
    }

    /// Updates the detectors with the current endpoints.
    fn look(&mut self, now: Time) {
        for watch in self.watches.values_mut() {
            let endpoints = watch.cluster.endpoints();
            let known = watch.known.as_ref();
            if known.is_some_and(|known| Arc::ptr_eq(known, &endpoints)) {
                continue;
            }
            watch.known = Some(Arc::clone(&endpoints));
            let watched = endpoints.targets().iter().map(|target| Watched {
                id: target.id,
                monitor: Arc::clone(&target.monitor),
            });
            let events = watch.detector.set_endpoints(watched, now);
            watch.take(events, now, &mut self.probes);
            // The removal of an ejected endpoint causes no event, but changes the count.
            watch.count();
        }
    }

    fn found(&mut self, report: &Report) {
        let now = self.now();
        self.look(now);
        let Some(watch) = self.watches.get_mut(&report.cluster) else {
            return;
        };
        let event = watch
            .detector
            .found(report.target, report.finding, now, &mut self.rng);
        watch.take(event, now, &mut self.probes);
    }

    fn probed(&mut self, probed: &Probed) {
        let now = self.now();
        let Some(watch) = self.watches.get_mut(&probed.cluster) else {
            return;
        };
        let event = watch.detector.probed(probed.target, probed.answers, now);
        watch.take(event, now, &mut self.probes);
    }

    fn tick(&mut self) {
        let now = self.now();
        self.look(now);
        for watch in self.watches.values_mut() {
            let events = watch.detector.tick(now, &mut self.rng);
            watch.take(events, now, &mut self.probes);
        }
    }

    fn due(&self) -> Option<Instant> {
        let due = self
            .watches
            .values()
            .map(|watch| watch.detector.due())
            .min()?;
        let ahead = due.saturating_since(self.now());
        Some(Instant::now() + ahead)
    }
}

impl Watch {
    fn new(cluster: &Arc<Cluster>, params: &OutlierParams, old: Option<Self>, now: Time) -> Self {
        let detector = match old {
            Some(old) if old.detector.params() == params => old.detector,
            old => {
                if old.is_some() {
                    pardon(cluster, now);
                }
                Detector::new(params.clone(), now)
            }
        };
        Self {
            cluster: Arc::clone(cluster),
            detector,
            known: None,
            spared: Spared::default(),
        }
    }

    /// Applies decisions of the detector.
    fn take(
        &mut self,
        events: impl IntoIterator<Item = Event>,
        now: Time,
        probes: &mut JoinSet<Probed>,
    ) {
        let mut changed = false;
        for event in events {
            changed |= self.take_one(event, now, probes);
        }
        if changed {
            self.cluster.refresh(now);
            self.count();
        }
    }

    /// Sets the gauge of ejected endpoints.
    fn count(&self) {
        let ejected = i64::try_from(self.detector.ejected()).unwrap_or(i64::MAX);
        self.cluster.metrics().guards.ejected.set(ejected);
    }

    /// Applies one decision; returns whether the view of the cluster has to change.
    fn take_one(&mut self, event: Event, now: Time, probes: &mut JoinSet<Probed>) -> bool {
        let cluster = self.cluster.name();
        let metrics = self.cluster.metrics();
        let (Event::Ejected { id, .. }
        | Event::Probe { id }
        | Event::Returned { id, .. }
        | Event::Spared { id, .. }) = event;
        let mut known = self.known.iter().flat_map(|known| known.targets());
        let Some(target) = known.find(|target| target.id == id) else {
            return false;
        };
        let endpoint = &target.address;
        match event {
            Event::Ejected {
                finding,
                time,
                count,
                ..
            } => {
                metrics.guards.ejection(finding);
                let reason = finding.name();
                tracing::warn!(%cluster, %endpoint, reason, ?time, count, "endpoint ejected");
                target.stats.set_ejected(true)
            }
            Event::Returned { after, .. } => {
                tracing::info!(%cluster, %endpoint, ?after, "endpoint ejection ended");
                target.rejoin(now);
                target.stats.set_ejected(false)
            }
            Event::Spared { finding, why, .. } => {
                metrics.guards.ejection_spared(why);
                let (reason, why) = (finding.name(), why.name());
                if let Some(unsaid) = self.spared.say(now) {
                    tracing::info!(%cluster, %endpoint, reason, why, suppressed = unsaid, "endpoint not ejected");
                }
                false
            }
            Event::Probe { .. } => {
                probes.spawn_local(probe(Arc::clone(&self.cluster), Arc::clone(target)));
                false
            }
        }
    }
}

/// Ends the ejection of all endpoints of a cluster that is no longer watched or whose parameters have changed.
fn pardon(cluster: &Cluster, now: Time) {
    let endpoints = cluster.endpoints();
    let mut changed = false;
    for target in endpoints.targets() {
        changed |= target.stats.set_ejected(false);
    }
    if changed {
        cluster.refresh(now);
    }
    cluster.metrics().guards.ejected.set(0);
}

/// Probes an ejected endpoint by its health check or, if none is configured, by opening a connection.
async fn probe(cluster: Arc<Cluster>, target: Arc<Target>) -> Probed {
    let anything = HealthCheckKind::Tcp {
        send: Vec::new(),
        receive: Vec::new(),
    };
    let check = cluster.config().health_check.clone();
    let check = check.unwrap_or_else(|| HealthCheck {
        kind: anything,
        params: HealthParams::default(),
        port: None,
    });
    let pools = Pools::of_control();
    let asked = health::check(&check, &cluster, &target, &pools);
    let answer = timeout(check.params.timeout, asked).await;
    Probed {
        cluster: Arc::clone(cluster.name()),
        target: target.id,
        answers: matches!(answer, Ok(Ok(()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_is_said_once_in_a_while() {
        let mut spared = Spared::default();
        let at = |seconds: u64| Time::ZERO + Duration::from_secs(seconds);
        let times = [0, 1, 9, 10, 11, 25, 40];
        let said = times.map(|seconds| spared.say(at(seconds)));
        let expected = [Some(0), None, None, Some(2), None, Some(1), Some(0)];
        assert_eq!(said, expected);
    }
}
