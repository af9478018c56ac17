//! Configuration from a control plane: hosts and addresses that workers look up on demand, and settings of
//! this workload's inbound listeners.
//!
//! Runs on the control thread. [`maglor_xds::discovery`] implements the protocol; this module handles the stream and
//! the hosts with waiting requests, and applies changes. While the control plane is unavailable, all known resources
//! continue to be used.

mod credential;
mod discovered;
mod link;
mod load;
mod outgoing;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use maglor_balance::{Rng, Time};
use maglor_config as config;
use maglor_xds::Message as _;
use maglor_xds::discovery::{Changes, Discovery, Target};
use maglor_xds::frame::frame;
use maglor_xds::proto::envoy::config::core::v3::Node;
use maglor_xds::proto::envoy::service::discovery::v3::DeltaDiscoveryResponse;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::credential::Credential;
use self::discovered::compile;
use self::link::{Event, Link};
use self::load::Reporter;
use crate::control::app::SharedApp;
use crate::control::cache::Cache;
use crate::control::ticker;
use crate::routing::on_demand::{Ask, Found, Key, OnDemand};
use crate::upstream::grpc::CallError;

/// Time without a response on an open stream after which the known resources count as current; also the pause before
/// the next stream if the control plane's cluster is missing.
const MOMENT: Duration = Duration::from_secs(1);
/// Maximum number of followed targets; beyond it, the least recently used one is dropped.
const MAX_FOLLOWED: usize = 1024;

/// Time without any response after which cached resources are used.
const PATIENCE: Duration = Duration::from_secs(2);

/// State of the subscription to the control plane.
struct Source {
    app: SharedApp,
    settings: config::ControlPlane,
    discovery: Discovery,
    followed: BTreeMap<String, Followed>,
    link: Option<Link>,
    /// Load reports to the control plane.
    reporter: Rc<RefCell<Reporter>>,
    rng: Rng,
    /// Why the known workload resources are not applied; `None` if they are.
    unapplied: Option<String>,
    /// Whether the control plane has answered this process.
    answered: bool,
    /// Since when the stream is accepted; `None` if it is not.
    accepted: Option<Instant>,
    /// Since when there is neither a stream nor a response; `None` otherwise.
    away: Option<Instant>,
    /// Cache of received resources for the next start; `None` if none is configured.
    cache: Option<Cache>,
    /// The identity that the control plane requires.
    credential: Credential,
}

/// A target, and the chains and names for which it was looked up.
#[derive(Default)]
struct Followed {
    lookups: Vec<Lookup>,
    waiting: Vec<oneshot::Sender<()>>,
    /// Whether the target is known and its compiled form is in use.
    settled: bool,
}

struct Lookup {
    chain: Weak<OnDemand>,
    key: Key,
    found: Arc<Found>,
}

/// Answers lookups of workers; never returns.
pub(crate) async fn run(
    app: SharedApp,
    settings: config::ControlPlane,
    asks: UnboundedReceiver<Ask>,
    seed: u64,
) {
    let has_identity = app.borrow().config().identity.is_some();
    let node = Node {
        id: settings.node_id.clone(),
        cluster: settings.node_cluster.clone(),
        user_agent_name: "maglor-proxy".to_owned(),
        user_agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Node::default()
    };
    let issued = app.borrow().live().filter(|_| app.borrow().is_enrolled());
    let reporter = Rc::new(RefCell::new(Reporter::new(Rc::clone(&app), node.clone())));
    let mut discovery = Discovery::new(node, has_identity);
    if app.borrow().is_enrolled() {
        discovery.follow_bundle();
    }
    let cache = settings.cache_dir.as_deref().map(Cache::new);
    if let Some(cache) = &cache {
        discovery.keep(cache.resources());
    }
    let source = Source {
        answered: false,
        accepted: None,
        away: Some(Instant::now()),
        cache,
        credential: Credential::new(issued),
        app,
        settings,
        discovery,
        followed: BTreeMap::new(),
        unapplied: None,
        link: None,
        reporter,
        rng: Rng::seed(seed),
    };
    source.serve(asks).await;
}

impl Source {
    async fn serve(mut self, mut asks: UnboundedReceiver<Ask>) {
        let mut look = ticker::every_second();
        let mut again = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
        self.follow_workloads();
        let mut patience = std::pin::pin!(tokio::time::sleep(PATIENCE));
        let mut patient = true;
        loop {
            self.say();
            let (connected, waits) = (self.link.is_some(), !self.credential.is_usable());
            if self.credential.has_returned() && !connected {
                again.as_mut().reset(Instant::now());
            }
            tokio::select! {
                ask = asks.recv() => match ask {
                    Some(ask) => self.ask(ask),
                    None => return,
                },
                event = next(self.link.as_mut()) => {
                    if let Some(pause) = self.event(event) {
                        again.as_mut().reset(Instant::now() + pause);
                    }
                }
                () = self.credential.issued() => {}
                () = &mut again, if !connected && !waits => self.connect(&mut again),
                () = &mut patience, if patient => {
                    patient = false;
                    if !self.answered {
                        self.go_offline();
                    }
                }
                _ = look.tick() => {
                    self.follow_workloads();
                    self.forget();
                    self.keep();
                    self.take_silence();
                }
            }
        }
    }

    /// Sends the pending requests of the protocol.
    fn say(&mut self) {
        let Some(link) = &self.link else { return };
        while let Some(request) = self.discovery.request() {
            // If the send fails, the stream has ended, and its event reports that.
            let _ = link.requests.send(frame(&request));
        }
    }

    fn connect(&mut self, again: &mut std::pin::Pin<&mut tokio::time::Sleep>) {
        let app = self.app.borrow();
        let now = app.shared().time(Instant::now());
        match app.clusters().get(&self.settings.cluster) {
            Some(cluster) => {
                let reporter = Rc::clone(&self.reporter);
                self.link = Some(Link::begin(cluster, reporter, now, &mut self.rng));
                self.discovery.connected();
            }
            None => again.as_mut().reset(Instant::now() + MOMENT),
        }
    }

    /// Handles all events that have arrived on the stream. After the stream's end, returns the pause before the next
    /// one.
    fn event(&mut self, first: Event) -> Option<Duration> {
        let mut all = Changes::default();
        let mut next = Some(first);
        let mut pause = None;
        while let Some(event) = next {
            match event {
                Event::Open => self.connected(true),
                Event::Accepted => self.accepted = Some(Instant::now()),
                Event::Message(message) => match DeltaDiscoveryResponse::decode(message) {
                    Ok(response) => self.receive(response, &mut all),
                    Err(error) => pause = Some(self.lost(&error)),
                },
                Event::Ended(why) => {
                    if matches!(why, CallError::Unauthenticated(_)) {
                        self.app.borrow_mut().identity_refused();
                    }
                    pause = Some(self.lost(&why));
                }
            }
            next = self.link.as_mut().and_then(Link::try_next);
        }
        if all.bundle
            && let Some(bundle) = self.discovery.bundle()
        {
            self.app.borrow_mut().trust(bundle.clone());
            // The trust bundle file of the platform may be older, and certificates are cached less often.
            let kept = self.cache.as_ref().map(|cache| cache.keep_roots(bundle));
            if let Some(Err(error)) = kept {
                tracing::warn!(%error, "cannot write the roots to the cache");
            }
        }
        self.apply(&all);
        pause
    }

    fn lost(&mut self, why: &dyn std::error::Error) -> Duration {
        let pause = self.discovery.disconnected(&mut self.rng);
        let targets = self.discovery.targets().len();
        tracing::warn!(%why, retry_in = ?pause, targets, "control plane connection lost; keeping the last configuration");
        self.link = None;
        self.accepted = None;
        self.away.get_or_insert_with(Instant::now);
        self.connected(false);
        self.go_offline();
        pause
    }

    fn connected(&self, connected: bool) {
        let app = self.app.borrow();
        app.shared().metrics.xds.connected.set(i64::from(connected));
    }

    fn receive(&mut self, response: DeltaDiscoveryResponse, all: &mut Changes) {
        self.away = None;
        let changes = self.discovery.receive(response);
        self.answered();
        let app = self.app.borrow();
        let metrics = &app.shared().metrics.xds;
        match changes.refused.is_empty() {
            true => metrics.accepted.add_shared(1),
            false => metrics.refused.add_shared(1),
        }
        for error in &changes.refused {
            tracing::error!(%error, "resource rejected; keeping its last valid version");
        }
        all.bundle |= changes.bundle;
        all.routing |= changes.routing;
        all.inbound |= changes.inbound;
        all.endpoints.extend(changes.endpoints);
    }

    /// Falls back to cached resources for all targets that are wanted and unknown.
    fn go_offline(&mut self) {
        if self.discovery.is_offline() {
            return;
        }
        let changes = self.discovery.go_offline();
        if self.discovery.is_offline() && !self.answered {
            tracing::warn!("control plane unavailable; using cached resources");
        }
        self.show_offline();
        self.apply(&changes);
    }

    fn answered(&mut self) {
        self.answered = true;
        self.discovery.go_online();
        self.show_offline();
    }

    /// Counts an accepted stream without messages as an answer: there are no changes.
    fn take_silence(&mut self) {
        let since = self.accepted.filter(|_| !self.answered);
        if since.is_some_and(|since| since.elapsed() >= MOMENT) {
            self.answered();
        }
    }

    fn show_offline(&self) {
        let offline = self.discovery.is_offline() && !self.answered;
        self.app
            .borrow()
            .shared()
            .metrics
            .xds
            .cached
            .set(i64::from(offline));
    }

    /// Writes the known resources to the cache.
    fn keep(&mut self) {
        if let Some(cache) = &self.cache
            && let Some(kept) = self.discovery.kept()
            && let Err(error) = cache.keep_resources(&kept)
        {
            tracing::warn!(%error, "cannot write resources to the cache");
        }
    }

    /// Applies changes.
    fn apply(&mut self, changes: &Changes) {
        if changes.routing {
            let used = self.discovery.clusters().collect();
            self.app.borrow_mut().discover(used);
        } else {
            for name in &changes.endpoints {
                let used = self.discovery.cluster(name);
                if let Some(endpoints) = used.and_then(|used| used.endpoints) {
                    self.app.borrow_mut().assign(name, &endpoints);
                }
            }
        }
        if changes.routing || !changes.endpoints.is_empty() {
            self.settle(changes.routing);
        }
        if changes.inbound {
            self.set_workloads();
        }
    }

    /// Subscribes to the workload resources that the current listeners need; a new file may have other listeners.
    fn follow_workloads(&mut self) {
        let wanted: Vec<_> = self.app.borrow().wanted_workloads().cloned().collect();
        // A failed update is retried, since a port that was taken may be free by now.
        if self.discovery.want_workloads(wanted.into_iter()) || self.unapplied.is_some() {
            self.set_workloads();
        }
    }

    fn set_workloads(&mut self) {
        let known = self.discovery.workloads();
        let mut app = self.app.borrow_mut();
        let failed = app.set_workloads(known).err().map(|why| why.to_string());
        if let Some(error) = failed.as_ref().filter(|_| failed != self.unapplied) {
            app.shared().metrics.xds.refused.add_shared(1);
            tracing::error!(%error, "inbound settings rejected; keeping the last valid ones");
        }
        let outcome = failed.as_deref().map_or(Ok(()), Err);
        self.discovery.confirm_workloads(outcome);
        self.unapplied = failed;
    }

    /// Wakes waiting requests, and updates the routes of the chains that use a target.
    fn settle(&mut self, routing: bool) {
        for (name, followed) in &mut self.followed {
            if followed.settled && !routing {
                continue;
            }
            let target = self.discovery.target(name);
            // Until the target is complete, the previous state stays in force.
            followed.settled = !matches!(target, Target::Pending);
            if !followed.settled {
                continue;
            }
            for lookup in &followed.lookups {
                let Some(chain) = lookup.chain.upgrade() else {
                    continue;
                };
                let discovered = compile(&self.app.borrow(), &chain, name, &target);
                lookup.found.set(discovered);
                chain.insert(&lookup.key, &lookup.found);
            }
            // The receiver of a cancelled request no longer exists.
            followed.waiting.drain(..).for_each(|waiting| {
                let _ = waiting.send(());
            });
        }
        let targets = i64::try_from(self.followed.len()).unwrap_or(i64::MAX);
        self.app.borrow().shared().metrics.xds.targets.set(targets);
    }

    fn now(&self) -> Time {
        self.app.borrow().shared().time(Instant::now())
    }

    /// Handles the lookup of a host or an address by a worker.
    fn ask(&mut self, ask: Ask) {
        let Ask {
            chain,
            key,
            target,
            answered,
        } = ask;
        let now = self.now();
        if self.followed.len() >= MAX_FOLLOWED && !self.followed.contains_key(&target) {
            self.make_room();
        }
        let followed = self.followed.entry(target.clone()).or_default();
        followed.waiting.push(answered);
        let here = |lookup: &Lookup| {
            lookup.key == key && std::ptr::eq(lookup.chain.as_ptr(), Arc::as_ptr(&chain))
        };
        if !followed.lookups.iter().any(here) {
            followed.lookups.push(Lookup {
                chain: Arc::downgrade(&chain),
                key,
                found: Found::new(now),
            });
        }
        followed.settled = false;
        let timeout = chain.settings.timeout;
        let known = self.discovery.want(&target);
        self.apply(&known);
        self.settle(false);
        // The request need not wait: the control plane has been unavailable for longer than the timeout.
        if self.away.is_some_and(|since| since.elapsed() >= timeout)
            && let Some(followed) = self.followed.get_mut(&target)
        {
            followed.waiting.clear();
        }
    }

    /// Drops the least recently used target.
    fn make_room(&mut self) {
        let used = |followed: &Followed| followed.lookups.iter().map(|one| one.found.used()).max();
        let oldest = self
            .followed
            .iter()
            .min_by_key(|(_, followed)| used(followed));
        let Some(name) = oldest.map(|(name, _)| name.clone()) else {
            return;
        };
        for lookup in self
            .followed
            .remove(&name)
            .into_iter()
            .flat_map(|gone| gone.lookups)
        {
            if let Some(chain) = lookup.chain.upgrade() {
                chain.remove(&lookup.key);
            }
        }
        self.discovery.forget(&name);
    }

    /// Drops targets that are no longer used, unless the control plane is unavailable, when they could not be fetched
    /// again.
    fn forget(&mut self) {
        if self.link.is_none() {
            return;
        }
        let now = self.now();
        let mut gone = Vec::new();
        for (name, followed) in &mut self.followed {
            followed.lookups.retain(|lookup| {
                let Some(chain) = lookup.chain.upgrade() else {
                    return false;
                };
                let idle = now.saturating_since(lookup.found.used());
                let stays = idle < chain.settings.idle_timeout || chain.settings.host.is_some();
                if !stays {
                    chain.remove(&lookup.key);
                }
                stays
            });
            followed.waiting.retain(|waiting| !waiting.is_closed());
            if followed.lookups.is_empty() {
                gone.push(name.clone());
            }
        }
        if gone.is_empty() {
            return;
        }
        for name in gone {
            tracing::debug!(target = %name, "unused target dropped");
            self.followed.remove(&name);
            self.discovery.forget(&name);
        }
        self.apply(&Changes {
            routing: true,
            ..Changes::default()
        });
    }
}

async fn next(link: Option<&mut Link>) -> Event {
    if let Some(link) = link
        && let Some(event) = link.next().await
    {
        return event;
    }
    std::future::pending().await
}
