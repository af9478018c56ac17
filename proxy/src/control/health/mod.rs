//! Active health checks on the control thread: a task for each endpoint of a cluster that configures them.
//!
//! [`maglor_balance::guard::health`] decides when to check and what results mean; this module makes the checks. The
//! state of an endpoint survives a reload that does not change the checks. Otherwise the first result after each
//! reload would determine the state, regardless of the thresholds. [`check`] also probes ejected endpoints.

mod ask;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use maglor_balance::guard::health::{Checker, Health};
use maglor_balance::{Rng, Time};
use maglor_config::HealthCheck;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

pub(crate) use ask::{check, grpc_question, is_serving};

use crate::runtime::shared::Shared;
use crate::upstream::{Cluster, Pools, Target};

/// Interval at which added and removed endpoints are noticed.
const LOOK: Duration = Duration::from_secs(1);

/// Health check states of the endpoints of a cluster, by target id.
type Known = Rc<RefCell<HashMap<u64, Checker>>>;

/// A cluster whose endpoints are checked.
#[derive(Debug)]
struct Followed {
    cluster: Arc<Cluster>,
    known: Known,
    task: AbortHandle,
}

/// Checks the clusters of the current configuration until the process ends.
pub(crate) async fn run(
    shared: Arc<Shared>,
    mut clusters: watch::Receiver<Vec<Arc<Cluster>>>,
    seed: u64,
) {
    let mut rng = Rng::seed(seed);
    let mut tasks = JoinSet::new();
    let mut followed: HashMap<Arc<str>, Followed> = HashMap::new();
    loop {
        let mut before = std::mem::take(&mut followed);
        for cluster in clusters.borrow_and_update().iter() {
            let Some(config) = &cluster.config().health_check else {
                pardon(cluster, &shared);
                continue;
            };
            let old = before.remove(cluster.name());
            let now = match old {
                Some(old) if Arc::ptr_eq(&old.cluster, cluster) => old,
                old => {
                    let known = old.and_then(|old| old.end(config)).unwrap_or_default();
                    let follow = Follow {
                        shared: Arc::clone(&shared),
                        cluster: Arc::clone(cluster),
                        config: config.clone(),
                        known: Rc::clone(&known),
                        rng: Rng::seed(rng.next_u64()),
                    };
                    Followed {
                        cluster: Arc::clone(cluster),
                        known,
                        task: tasks.spawn_local(follow.run()),
                    }
                }
            };
            followed.insert(Arc::clone(cluster.name()), now);
        }
        before.into_values().for_each(|gone| gone.task.abort());
        while tasks.try_join_next().is_some() {}
        if clusters.changed().await.is_err() {
            return;
        }
    }
}

impl Followed {
    /// Stops the checks. Returns their state if `wanted` is the same configuration.
    fn end(self, wanted: &HealthCheck) -> Option<Known> {
        self.task.abort();
        let same = self.cluster.config().health_check.as_ref() == Some(wanted);
        same.then_some(self.known)
    }
}

/// Marks every endpoint of a cluster without checks as healthy.
fn pardon(cluster: &Cluster, shared: &Shared) {
    let endpoints = cluster.endpoints();
    let mut changed = false;
    for target in endpoints.targets() {
        changed |= target.stats.set_healthy(true);
    }
    if changed {
        cluster.refresh(shared.time(Instant::now()));
    }
}

/// Keeps one check task for each endpoint of a cluster.
struct Follow {
    shared: Arc<Shared>,
    cluster: Arc<Cluster>,
    config: HealthCheck,
    known: Known,
    rng: Rng,
}

impl Follow {
    async fn run(mut self) {
        let pools = Rc::new(Pools::of_control());
        let mut tasks = JoinSet::new();
        let mut checked: HashMap<u64, AbortHandle> = HashMap::new();
        loop {
            let endpoints = self.cluster.endpoints();
            let mut before = std::mem::take(&mut checked);
            for target in endpoints.targets() {
                let task = before
                    .remove(&target.id)
                    .unwrap_or_else(|| tasks.spawn_local(self.checks(target, &pools).run()));
                checked.insert(target.id, task);
            }
            before.into_values().for_each(|gone| gone.abort());
            while tasks.try_join_next().is_some() {}
            let is_checked = |id: &u64, _: &mut Checker| checked.contains_key(id);
            self.known.borrow_mut().retain(is_checked);
            pools.sweep(Instant::now());
            sleep(LOOK).await;
        }
    }

    /// Returns the checks of one endpoint, starting from its known state.
    fn checks(&mut self, target: &Arc<Target>, pools: &Rc<Pools>) -> Checks {
        let mut rng = Rng::seed(self.rng.next_u64());
        let now = self.shared.time(Instant::now());
        let new = |rng: &mut Rng| Checker::new(self.config.params, now, rng);
        let mut known = self.known.borrow_mut();
        known.entry(target.id).or_insert_with(|| new(&mut rng));
        Checks {
            shared: Arc::clone(&self.shared),
            cluster: Arc::clone(&self.cluster),
            target: Arc::clone(target),
            pools: Rc::clone(pools),
            config: self.config.clone(),
            known: Rc::clone(&self.known),
            rng,
        }
    }
}

/// The checks of one endpoint.
struct Checks {
    shared: Arc<Shared>,
    cluster: Arc<Cluster>,
    target: Arc<Target>,
    pools: Rc<Pools>,
    config: HealthCheck,
    known: Known,
    rng: Rng,
}

impl Checks {
    /// Runs until the endpoint is removed.
    async fn run(mut self) {
        let params = self.config.params;
        while let Some(due) = self.due() {
            let ahead = due.saturating_since(self.shared.time(Instant::now()));
            sleep_until(Instant::now() + ahead).await;
            let asked = check(&self.config, &self.cluster, &self.target, &self.pools);
            let answer = timeout(params.timeout, asked).await;
            let result = answer.unwrap_or_else(|_| Err("timeout".into()));
            if let Err(ill) = &result
                && ill.unasked
            {
                tracing::debug!(endpoint = %self.target.address, reason = ill.why, "health check skipped");
                sleep(params.interval).await;
                continue;
            }
            self.cluster.metrics().guards.health_check(result.is_ok());
            let news = self.report(result.is_ok());
            if let Some(health) = news.or_else(|| self.unsaid()) {
                self.changed(health, result.err().map(|ill| ill.why));
            }
        }
    }

    fn due(&self) -> Option<Time> {
        let known = self.known.borrow();
        known.get(&self.target.id).map(Checker::due)
    }

    fn report(&mut self, passed: bool) -> Option<Health> {
        let now = self.shared.time(Instant::now());
        let mut known = self.known.borrow_mut();
        let checker = known.get_mut(&self.target.id)?;
        checker.report(passed, now, &mut self.rng)
    }

    /// Returns the endpoint's health if it has to be reported although this checker has not seen it change: the
    /// endpoint is healthy, and earlier checks had marked it unhealthy.
    fn unsaid(&self) -> Option<Health> {
        let known = self.known.borrow();
        let health = known.get(&self.target.id)?.health();
        let unsaid = health == Health::Healthy && !self.target.stats.is_healthy();
        unsaid.then_some(health)
    }

    fn changed(&self, health: Health, reason: Option<String>) {
        let (cluster, endpoint) = (self.cluster.name(), &self.target.address);
        let now = self.shared.time(Instant::now());
        if health == Health::Unhealthy {
            let reason = reason.unwrap_or_default();
            tracing::warn!(%cluster, %endpoint, reason, "endpoint is unhealthy");
        }
        if self.target.stats.set_healthy(health != Health::Unhealthy) {
            if health == Health::Healthy {
                tracing::info!(%cluster, %endpoint, "endpoint is healthy again");
                self.target.rejoin(now);
            }
            self.cluster.refresh(now);
        }
    }
}
