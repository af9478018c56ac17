//! Active health checks, on the control thread: a task for each endpoint of a cluster that has them.
//!
//! When to ask and what the answers mean is decided by [`maglor_balance::guard::health`]; here it is
//! asked. [`check`] is also how an ejected endpoint is probed.

mod ask;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use maglor_balance::Rng;
use maglor_balance::guard::health::{Checker, Health};
use maglor_config::HealthCheck;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

pub(crate) use ask::{check, grpc_question, is_serving};

use crate::shared::Shared;
use crate::upstream::{Cluster, Pools, Target};

/// How often endpoints that have come or gone are noticed.
const LOOK: Duration = Duration::from_secs(1);

/// Checks the clusters of the configuration in force until the process ends.
pub(crate) async fn run(
    shared: Arc<Shared>,
    mut clusters: watch::Receiver<Vec<Arc<Cluster>>>,
    seed: u64,
) {
    let mut rng = Rng::seed(seed);
    loop {
        let mut checked = JoinSet::new();
        for cluster in clusters.borrow_and_update().iter() {
            match &cluster.config().health_check {
                Some(config) => {
                    let seed = rng.next_u64();
                    let (config, cluster) = (config.clone(), Arc::clone(cluster));
                    checked.spawn_local(follow(Arc::clone(&shared), cluster, config, seed));
                }
                None => pardon(cluster, &shared),
            }
        }
        // Those of the configuration before end here.
        if clusters.changed().await.is_err() {
            return;
        }
    }
}

/// Without checks every endpoint counts as healthy.
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

/// Keeps a task for each endpoint of a cluster.
async fn follow(shared: Arc<Shared>, cluster: Arc<Cluster>, config: HealthCheck, seed: u64) {
    let mut rng = Rng::seed(seed);
    let pools = Rc::new(Pools::default());
    let mut tasks = JoinSet::new();
    let mut known = HashMap::new();
    loop {
        let endpoints = cluster.endpoints();
        let mut before = std::mem::take(&mut known);
        for target in endpoints.targets() {
            let task = before.remove(&target.id).unwrap_or_else(|| {
                let checks = Checks {
                    shared: Arc::clone(&shared),
                    cluster: Arc::clone(&cluster),
                    target: Arc::clone(target),
                    pools: Rc::clone(&pools),
                    config: config.clone(),
                    rng: Rng::seed(rng.next_u64()),
                };
                tasks.spawn_local(checks.run())
            });
            known.insert(target.id, task);
        }
        before.into_values().for_each(|gone| gone.abort());
        pools.sweep(Instant::now());
        sleep(LOOK).await;
    }
}

/// The checks of one endpoint.
struct Checks {
    shared: Arc<Shared>,
    cluster: Arc<Cluster>,
    target: Arc<Target>,
    pools: Rc<Pools>,
    config: HealthCheck,
    rng: Rng,
}

impl Checks {
    async fn run(mut self) {
        let params = self.config.params;
        let now = self.shared.time(Instant::now());
        let mut checker = Checker::new(params, now, &mut self.rng);
        loop {
            let ahead = checker
                .due()
                .saturating_since(self.shared.time(Instant::now()));
            sleep_until(Instant::now() + ahead).await;
            let asked = check(&self.config, &self.cluster, &self.target, &self.pools);
            let answer = timeout(params.timeout, asked).await;
            let result = answer.unwrap_or_else(|_| Err("timeout".into()));
            self.cluster.metrics().guards.health_check(result.is_ok());
            let now = self.shared.time(Instant::now());
            if let Some(health) = checker.report(result.is_ok(), now, &mut self.rng) {
                self.changed(health, result.err());
            }
        }
    }

    fn changed(&self, health: Health, reason: Option<String>) {
        let (cluster, endpoint) = (self.cluster.name(), self.target.address);
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
