//! The operator: takes steps for each Service that has, or had, proxies or a `ProxyService`, until none is left.
//!
//! Watches show whether there is a step. They may be outdated to different degrees, so the step itself and the next
//! one are computed from the current objects, which are read from the API server, as far as they matter for the step.

mod round;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use maglor_service_graph::policy_choice::Limits;
use tokio::sync::watch;

use super::Settings;
use super::advisor::Advisor;
use super::api::{Server, Written};
use super::fields::text;
use super::observed::Observed;
use super::progress::Progress;
use super::sharing::Sharing;
use super::steps::{Next, Step, next};
use super::watched::{Unit, Watched};
use crate::graph::Graphs;
use crate::graph::replicas::Replicas;
use crate::index::facts::Key;
use crate::lease::Term;
use crate::reconcile::{self, Again, Reconciler, Watches};
use crate::resource_server::Table;
use crate::scope::Scope;
use round::Reported;

/// Pause before a waiting Service with shared proxies is checked again: changes of the proxies' ports, and the
/// passing of time for open requests, cause no events.
const SHARED: Duration = Duration::from_millis(500);
/// Maximum number of steps in one reconciliation, more than any sequence needs. If it is reached, another writer is
/// probably reverting the changes.
const STEPS: usize = 32;
/// Pause after the maximum number of steps was reached.
const DISPUTED: Duration = Duration::from_secs(5);
/// Maximum length of a reported API server error in bytes.
const LONGEST: usize = 500;

/// The dependencies and permissions of the operator.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) client: Client,
    /// The controller's namespace, whose `ProxyService`s may apply to the whole mesh.
    pub(crate) root: String,
    pub(crate) replicas: Replicas,
    pub(crate) graphs: Arc<Graphs>,
    /// The clients of this replica, which report the ports of shared proxies.
    pub(crate) table: Table,
    pub(crate) settings: Settings,
    /// The namespaces where proxies may be started. In other namespaces, statuses report that they may not, and no
    /// other objects are written.
    pub(crate) inserts: Scope,
    /// Thresholds for the automatic mode.
    pub(crate) limits: Limits,
}

/// Runs the operator until the process ends.
pub(crate) async fn run(options: Options, term: watch::Receiver<Term>) {
    let options = Options {
        settings: options.settings.for_cluster(&options.client).await,
        ..options
    };
    reconcile::run(term, |watches| Operator::new(options.clone(), watches)).await;
}

/// Takes the next step for a Service, if there is one. The caller must hold the Lease. `root` is the namespace whose
/// `ProxyService`s may apply to the whole mesh. The ports of shared proxies are not queried, so no Service can join a
/// group.
///
/// # Errors
/// If the API server does not respond or rejects a request.
pub async fn step(
    client: Client,
    settings: Settings,
    root: &str,
    key: &Key,
) -> Result<Option<Step>, kube::Error> {
    let server = Server::new(client, settings, root);
    let seen = server.observe(key).await?;
    let Some(step) = next(&seen).step else {
        return Ok(None);
    };
    let written = server.take(&seen, &step).await?;
    Ok(Some(step).filter(|_| written == Written::Done))
}

/// The part of an observation that is read from the API server; the rest is as of the last events of watches.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Current {
    Nothing,
    /// Objects that are named, without lists of pods, endpoints and `ProxyService`s.
    Objects,
    All,
}

impl Current {
    /// Returns what a step requires. Endpoints and pods decide when requests may change their target, and the other
    /// members of a group which ports are free.
    fn needed(step: &Step, seen: &Observed) -> Self {
        match step {
            Step::Apply(_) | Step::Hold(_) if seen.group.is_none() => Self::Objects,
            _ => Self::All,
        }
    }
}

struct Operator {
    server: Server,
    /// The same server, which reads lists from watches.
    listed: Server,
    /// The same server, which reads from watches.
    cached: Server,
    watched: Arc<Watched>,
    watches: Watches<Unit>,
    root: String,
    inserts: Scope,
    advisor: Advisor,
    sharing: Sharing,
    /// Interval at which Services in automatic mode are checked.
    pause: Duration,
    /// Steps that the API server has rejected at the last attempt, by Service.
    rejected: BTreeMap<Key, String>,
    /// The reported results of the last survey of Services.
    reported: Reported,
}

impl Reconciler for Operator {
    type Unit = Unit;

    const NAME: &'static str = "ProxyServices";

    async fn reconcile(&mut self, unit: &Unit) -> Result<Again, kube::Error> {
        match unit {
            Unit::Service(key) => self.attend(key).await,
            Unit::Survey => self.survey().await,
        }
    }
}

impl Operator {
    fn new(options: Options, watches: Watches<Unit>) -> Self {
        let Options {
            client,
            root,
            replicas,
            graphs,
            table,
            settings,
            inserts,
            limits,
        } = options;
        let watched = Watched::open(&client, &watches, Arc::clone(&graphs));
        let (watched, server) = (Arc::new(watched), Server::new(client, settings, &root));
        Self {
            cached: server.with(&watched),
            listed: server.with_lists(&watched),
            server,
            watched,
            watches,
            root,
            inserts,
            sharing: Sharing::new(replicas.clone(), table),
            advisor: Advisor::new(replicas, graphs, limits),
            pause: limits.pause(),
            rejected: BTreeMap::new(),
            reported: Reported::new(),
        }
    }

    /// Takes all steps that are currently possible for a Service. Returns when to check the Service again without an
    /// event.
    async fn attend(&mut self, key: &Key) -> Result<Again, kube::Error> {
        let mut current = Current::Nothing;
        for _ in 0..STEPS {
            let seen = self.observe(key, current).await?;
            let next = next(&seen);
            let allowed = self.inserts.covers(&key.namespace);
            let step = next.step.as_ref().filter(|_| allowed);
            let needed = step.map_or(current, |step| Current::needed(step, &seen));
            if current < needed {
                current = needed;
                continue;
            }
            let Some(step) = step else {
                self.report_progress(key, &seen, &next).await?;
                self.rejected.remove(key);
                return Ok(self.again(key, &seen, &next));
            };
            tracing::debug!(service = %key, ?step, "applying step of a ProxyService");
            let taken = self.server.take(&seen, step).await;
            if let Err(error) = &taken {
                if let Some(why) = rejection(step, error) {
                    self.rejected.insert(key.clone(), why);
                }
                self.report_progress(key, &seen, &next).await?;
            }
            if taken? == Written::Done {
                self.rejected.remove(key);
                self.server.announce(&seen, step, &next.progress).await;
            }
        }
        tracing::warn!(service = %key, "another writer keeps reverting changes of this controller");
        Ok(Some(DISPUTED))
    }

    async fn observe(&mut self, key: &Key, current: Current) -> Result<Observed, kube::Error> {
        let server = match current {
            Current::Nothing => &self.cached,
            Current::Objects => &self.listed,
            Current::All => &self.server,
        };
        let mut seen = server.observe(key).await?;
        seen.advice = self.advisor.advice(key, &seen).await;
        let proxied = seen.selected().is_some_and(|selected| selected.proxied);
        if let Some(group) = seen.group.as_mut().filter(|_| !proxied) {
            group.listening = self.sharing.listening().await;
        }
        Ok(seen)
    }

    /// Returns when to check a Service again that needs no step now.
    fn again(&self, key: &Key, seen: &Observed, next: &Next) -> Again {
        if next.progress == Progress::Withdrawn && self.watched.is_any_leaving() {
            // The deletion of the `ProxyService` may have waited for this Service.
            self.watches.reconcile(Unit::Survey);
        }
        if next.waits && seen.group.is_some() {
            return Some(SHARED);
        }
        // Services without created objects to which a `ProxyService` for many applies are checked together.
        let alone = match next.progress {
            Progress::NotAdvised | Progress::Refused(_) => {
                next.waits || !seen.claims.first().is_some_and(|claim| claim.is_wide)
            }
            ref progress => *progress != Progress::Withdrawn,
        };
        (alone && self.advisor.governs(key)).then_some(self.pause)
    }
}

impl Operator {
    /// Writes the statuses of a Service's `ProxyService`s. The watch contains the last ones, so nothing is read to
    /// compare them.
    async fn report_progress(
        &self,
        key: &Key,
        seen: &Observed,
        next: &Next,
    ) -> Result<(), kube::Error> {
        let reported = self.reported(key, seen, next);
        self.cached.report(seen, &reported).await
    }

    /// Returns the progress to report. A rejection is reported until the step succeeds, so that the status does not
    /// alternate.
    fn reported(&self, key: &Key, seen: &Observed, next: &Next) -> Progress {
        if next.step.is_some() && !self.inserts.covers(&key.namespace) {
            return Progress::SwitchedOff;
        }
        let starts = matches!(next.progress, Progress::Starting(_));
        let why = match next.step {
            Some(_) => self.rejected.get(key).cloned(),
            None => seen.refused_pods().filter(|_| starts),
        };
        let rollout = seen.rollout();
        let rejected = why.map(|why| Progress::Rejected { rollout, why });
        rejected.unwrap_or_else(|| next.progress.clone())
    }
}

/// Returns the error if the API server rejects a step permanently, because of a quota, a policy of the cluster, or a
/// missing permission.
fn rejection(step: &Step, error: &kube::Error) -> Option<String> {
    let kube::Error::Api(status) = error else {
        return None;
    };
    let lasting = matches!(status.code, 400..500) && !matches!(status.code, 408 | 429);
    let what = match step {
        Step::Apply(resource) | Step::Delete(resource) => {
            let name = &resource["metadata"]["name"];
            format!("{} {}", text(&resource["kind"]), text(name))
        }
        Step::Hold(claim) | Step::Release(claim) => format!("ProxyService {}", claim.name),
        Step::Restore(service) | Step::Switch(service) => {
            format!("Service {}", text(&service["metadata"]["name"]))
        }
    };
    let said: String = status.message.chars().take(LONGEST).collect();
    lasting.then(|| format!("{what}: {said}"))
}

#[cfg(test)]
mod tests;
