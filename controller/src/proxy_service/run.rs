//! The operator: watches all objects that concern Services with proxies, and takes steps until none is left. Only the
//! leader writes.

mod round;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use maglor_service_graph::rule::Limits;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::advisor::Advisor;
use super::api::{Kind, Server, Written};
use super::manifests::text;
use super::observed::{Claim, Observed};
use super::progress::Progress;
use super::sharing::Sharing;
use super::steps::{Next, Step, next};
use super::{LABEL, RECORD, Settings};
use crate::api_server;
use crate::app::threads::all_end;
use crate::graph::Graphs;
use crate::graph::replicas::Replicas;
use crate::index::facts::Key;
use crate::index::facts::service::PROXY_GROUP;
use crate::lease::Term;
use crate::scope::Scope;
use crate::serve::Table;
use round::{Rounds, Version};

/// First pause before a Service that waits for pods or endpoints is checked again; each further one is longer.
const SOON: Duration = Duration::from_millis(200);
const LATER: Duration = Duration::from_secs(5);
/// Interval of full checks, independent of watches.
const ROUND: Duration = Duration::from_secs(60);
/// The step limit of one reconciliation, more than any path needs: above it another writer is probably reverting our
/// changes.
const STEPS: usize = 32;
/// Maximum length of a reported error of the API server.
const LONGEST: usize = 500;
/// Pause after a failed watch.
const REST: Duration = Duration::from_secs(2);

/// The Service that an event may concern.
#[derive(Clone, Debug)]
enum Hint {
    /// It certainly concerns this Service.
    Ours(Key),
    /// It concerns this Service if that has proxies.
    Perhaps(Key),
    /// A `ProxyService` of this namespace names this Service; it may have named another one before.
    Claim(Key),
    /// A `ProxyService` that names no Service; `None` = it was deleted.
    Wide(Key, Option<Version>),
}

/// Runs until the sender of the term is dropped. `inserts`: the namespaces where proxies may be started; elsewhere
/// statuses report that they may not, and nothing else is written.
pub(crate) async fn run(
    (replicas, graphs, table): (Replicas, Arc<Graphs>, Table),
    (settings, inserts): (Settings, Scope),
    limits: Limits,
    term: watch::Receiver<Term>,
) {
    let settings = settings.for_cluster(&replicas.client).await;
    let server = Server::new(replicas.client.clone(), settings, &replicas.namespace);
    let (hints, heard) = mpsc::unbounded_channel();
    let mut watches = tokio::task::JoinSet::new();
    for kind in [
        Kind::Deployment,
        Kind::ProxyService,
        Kind::Service,
        Kind::TrafficPolicy,
    ] {
        watches.spawn(watch_kind(server.clone(), kind, hints.clone()));
    }
    drop(hints);
    let operator = Operator {
        server,
        inserts,
        term,
        sharing: Sharing::new(replicas.clone(), table),
        advisor: Advisor::new(replicas, graphs, limits),
        pause: limits.pause(),
        known: BTreeSet::new(),
        due: BTreeMap::new(),
        wide: BTreeMap::new(),
        rejected: BTreeMap::new(),
        rounds: Rounds::new(),
    };
    tokio::select! {
        () = operator.work(heard) => {}
        () = all_end(&mut watches) => {}
    }
}

/// Takes the next step for a Service, if there is one; the caller must hold the Lease. `root` is the namespace whose
/// `ProxyService`s may apply to the mesh. The ports of shared proxies are not queried, so no Service joins a group by
/// it.
///
/// # Errors
/// The API server does not respond, or rejects a request.
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

struct Operator {
    server: Server,
    /// The namespaces where proxies may be started.
    inserts: Scope,
    term: watch::Receiver<Term>,
    advisor: Advisor,
    sharing: Sharing,
    /// The interval of checks of Services in automatic mode.
    pause: Duration,
    /// Services that have, or had, proxies or a `ProxyService`.
    known: BTreeSet<Key>,
    /// When they are checked next, and the pause after that.
    due: BTreeMap<Key, (Instant, Duration)>,
    /// The last known versions of `ProxyService`s that name no Service.
    wide: BTreeMap<Key, Version>,
    /// Steps that the API server rejected at the last attempt, by Service.
    rejected: BTreeMap<Key, String>,
    rounds: Rounds,
}

/// The state after the last step.
struct Left {
    next: Next,
    /// A `ProxyService` for many Services applies; without created objects these are checked together.
    wide: bool,
}

impl Operator {
    async fn work(mut self, mut heard: mpsc::UnboundedReceiver<Hint>) {
        let mut round = tokio::time::interval(ROUND);
        let mut led = None;
        loop {
            let first = self.due.values().map(|(at, _)| *at).min();
            let first = first.map_or(self.rounds.due, |first| first.min(self.rounds.due));
            let sleep = tokio::time::sleep_until(first);
            tokio::select! {
                hint = heard.recv() => match hint {
                    Some(hint) => self.hear(hint),
                    None => return,
                },
                _ = round.tick() => self.all(),
                changed = self.term.changed() => if changed.is_err() { return },
                () = sleep => {}
            }
            while let Ok(hint) = heard.try_recv() {
                self.hear(hint);
            }
            let term = *self.term.borrow_and_update();
            if !term.holds(Instant::now()) {
                led = None;
                self.advisor.clear();
                // Only the leader observes Services: each term starts with all known objects.
                self.due.clear();
                self.rounds.due = Instant::now() + ROUND;
                continue;
            }
            if led.replace(term.number()) != Some(term.number()) {
                self.all();
                self.rounds = Rounds::new();
            }
            if self.rounds.due <= Instant::now() {
                self.round().await;
            }
            let now = Instant::now();
            let due: Vec<(Key, Duration)> = self
                .due
                .iter()
                .filter(|(_, (at, _))| *at <= now)
                .map(|(key, (_, pause))| (key.clone(), *pause))
                .collect();
            for (key, pause) in due {
                self.due.remove(&key);
                self.attend(&key, pause).await;
            }
        }
    }

    fn hear(&mut self, hint: Hint) {
        match hint {
            Hint::Ours(key) => self.soon(key),
            Hint::Perhaps(key) => {
                if self.known.contains(&key) {
                    self.soon(key);
                }
            }
            Hint::Claim(key) => {
                let beside = self
                    .known
                    .iter()
                    .filter(|one| one.namespace == key.namespace);
                let beside: Vec<Key> = beside.cloned().collect();
                beside
                    .into_iter()
                    .chain([key])
                    .for_each(|one| self.soon(one));
            }
            Hint::Wide(key, version) => {
                let before = match &version {
                    Some(version) => self.wide.insert(key, version.clone()),
                    None => self.wide.remove(&key),
                };
                if before != version {
                    self.all();
                    self.rounds.due = Instant::now();
                }
            }
        }
    }

    /// Schedules a check, unless one is scheduled already.
    fn attend_soon(&mut self, key: Key) {
        self.known.insert(key.clone());
        self.due.entry(key).or_insert((Instant::now(), SOON));
    }

    fn writes(&self) -> bool {
        self.term.borrow().holds(Instant::now())
    }

    fn soon(&mut self, key: Key) {
        self.known.insert(key.clone());
        self.due.insert(key, (Instant::now(), SOON));
    }

    fn all(&mut self) {
        let known: Vec<Key> = self.known.iter().cloned().collect();
        known.into_iter().for_each(|key| self.soon(key));
    }

    /// Takes all steps that are possible now for a Service.
    async fn attend(&mut self, key: &Key, pause: Duration) {
        let again = match self.steps(key).await {
            Ok(Some(Left { next, wide })) => {
                let done = match next.progress {
                    Progress::Withdrawn => true,
                    Progress::NotAdvised | Progress::Refused(_) => wide && !next.waits,
                    _ => false,
                };
                if done {
                    self.known.remove(key);
                    if self.wide.values().any(Version::is_leaving) {
                        // Its deletion may have waited for this Service.
                        self.rounds.due = Instant::now();
                    }
                } else if self.advisor.governs(key) {
                    self.due
                        .insert(key.clone(), (Instant::now() + self.pause, SOON));
                }
                next.waits
            }
            Ok(None) => true,
            Err(error) => {
                tracing::warn!(service = %key, %error, "reconciliation of ProxyServices failed; retrying");
                true
            }
        };
        if again && !self.due.contains_key(key) {
            let next = (pause * 3 / 2).min(LATER);
            self.due.insert(key.clone(), (Instant::now() + pause, next));
        }
    }

    /// Takes steps, and returns the state after the last one; `None` if this replica may not write any more, or if
    /// the step limit was reached.
    async fn steps(&mut self, key: &Key) -> Result<Option<Left>, kube::Error> {
        for _ in 0..STEPS {
            let mut seen = self.server.observe(key).await?;
            seen.advice = self.advisor.advice(key, &seen).await;
            let proxied = seen.selected().is_some_and(|selected| selected.proxied);
            if let Some(group) = seen.group.as_mut().filter(|_| !proxied) {
                group.listening = self.sharing.listening().await;
            }
            let next = next(&seen);
            if !self.writes() {
                return Ok(None);
            }
            let reported = self.reported(key, &seen, &next);
            self.server.report(&seen, &reported).await?;
            let Some(step) = next
                .step
                .as_ref()
                .filter(|_| self.inserts.covers(&key.namespace))
            else {
                self.rejected.remove(key);
                let wide = seen.claims.first().is_some_and(|claim| claim.is_wide);
                return Ok(Some(Left { next, wide }));
            };
            if !self.writes() {
                return Ok(None);
            }
            tracing::debug!(service = %key, ?step, "applying step of a ProxyService");
            let taken = self.server.take(&seen, step).await;
            if let Err(error) = &taken
                && let Some(why) = rejection(step, error)
            {
                self.rejected.insert(key.clone(), why);
                let reported = self.reported(key, &seen, &next);
                self.server.report(&seen, &reported).await?;
            }
            if taken? == Written::Done {
                self.rejected.remove(key);
                self.server.announce(&seen, step, &next.progress).await;
            }
        }
        tracing::warn!(service = %key, "another writer keeps reverting changes of this controller");
        Ok(None)
    }
}

impl Operator {
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

/// Returns the error if an API server rejects a step permanently: by a quota, a policy of the cluster, or a missing
/// permission.
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

async fn watch_kind(server: Server, kind: Kind, hints: mpsc::UnboundedSender<Hint>) {
    let config = match kind {
        // Deployments of groups have another label than those of single Services.
        Kind::Deployment => api_server::watch().labels("app.kubernetes.io/part-of=maglor"),
        Kind::TrafficPolicy => api_server::watch().labels(LABEL),
        _ => api_server::watch(),
    };
    let api: Api<DynamicObject> = server.all(kind);
    let mut stream = pin!(watcher(api, config));
    while let Some(watched) = stream.next().await {
        let (object, there) = match watched {
            Ok(Event::Apply(object) | Event::InitApply(object)) => (object, true),
            Ok(Event::Delete(object)) => (object, false),
            Ok(Event::Init | Event::InitDone) => continue,
            Err(error) => {
                note(kind, &error);
                tokio::time::sleep(REST).await;
                continue;
            }
        };
        for hint in heard_of(kind, &object, there) {
            if hints.send(hint).is_err() {
                return;
            }
        }
    }
}

fn note(kind: Kind, error: &watcher::Error) {
    let kind = kind.resource().kind;
    tracing::debug!(kind, %error, "watch failed; retrying");
}

/// Returns which Services an object may concern.
fn heard_of(kind: Kind, object: &DynamicObject, there: bool) -> Vec<Hint> {
    let meta = &object.metadata;
    let key = |name: &str| Key::new(meta.namespace.as_deref().unwrap_or_default(), name);
    let labels = meta.labels.as_ref();
    if !labels.is_some_and(|labels| labels.contains_key(PROXY_GROUP)) {
        return hint(kind, object, there).into_iter().collect();
    }
    if let Some(service) = labels.and_then(|labels| labels.get(LABEL)) {
        // A member joins or leaves: the other members check what they share.
        return vec![Hint::Claim(key(service))];
    }
    let owners = meta.owner_references.iter().flatten();
    let owners = owners.filter(|owner| owner.kind == "Service");
    owners.map(|owner| Hint::Ours(key(&owner.name))).collect()
}

/// Returns which Service an object outside of groups may concern.
fn hint(kind: Kind, object: &DynamicObject, there: bool) -> Option<Hint> {
    let meta = &object.metadata;
    let key = |name: &str| Key::new(meta.namespace.as_deref().unwrap_or_default(), name);
    let label = meta.labels.as_ref().and_then(|labels| labels.get(LABEL));
    if let Some(service) = label {
        return Some(Hint::Ours(key(service)));
    }
    match kind {
        Kind::ProxyService => {
            let claim = Claim::read(&serde_json::to_value(object).unwrap_or_default());
            Some(match claim.is_wide {
                true => Hint::Wide(claim.key.clone(), there.then(|| Version::of(&claim))),
                false => Hint::Claim(key(&claim.service)),
            })
        }
        Kind::Service => {
            let name = meta.name.as_deref()?;
            let touched = meta.annotations.as_ref();
            match touched.is_some_and(|all| all.contains_key(RECORD)) {
                true => Some(Hint::Ours(key(name))),
                false => Some(Hint::Perhaps(key(name))),
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_an_api_server_does_not_take_is_said() {
        let deployment = json!({"kind": "Deployment", "metadata": {"name": "web-proxy-service"}});
        let step = Step::Apply(Box::new(deployment));
        let answer = |code, said: &str| {
            let status = Status::failure(said, "").with_code(code);
            rejection(&step, &kube::Error::Api(status.boxed()))
        };
        let quota = answer(403, "exceeded quota");
        let expected = "Deployment web-proxy-service: exceeded quota";
        assert_eq!(quota.as_deref(), Some(expected));
        assert!(answer(422, &"x".repeat(9000)).unwrap().len() < 600);
        // These pass by themselves.
        assert_eq!(
            [429, 500, 504].map(|code| answer(code, "later")),
            [const { None }; 3]
        );
    }
}
