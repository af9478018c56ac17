//! The server's end of load feedback: a server's proxy counts and reports the server's requests in flight.
//!
//! A load reporter belongs to a filter chain with `load_reports`. It counts the requests in flight at the server
//! behind the chain, from all clients, and answers balancers. If the other servers of the service are configured
//! (`cluster`, `endpoint`), it also hosts the ledger of its group if it was chosen for this, or else reports to the
//! ledger's host.
//!
//! A load reporter is kept by a reload that keeps the name of its chain, so that counts continue. All workers share
//! it.

mod channel_server;
mod in_flight;
mod subscribers;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use maglor_balance::queue_protocol::{
    Admission, Admitted, Among, Announce, Groups, Inbound, Ledger, Load, Member, Name, Referral,
    Report,
};
use maglor_balance::{Index, Rng, Time};
use tokio::sync::Notify;

use self::subscribers::{Outbox, Subscribers};
use crate::mesh::load_feedback::queue_protocol::{Frame, QueueRequest, Reporter};
use crate::telemetry::metrics::LoadReporterMetrics;
use crate::upstream::{Cluster, Endpoints, Target};

pub(crate) use self::channel_server::{Host, serve};
pub(crate) use self::in_flight::{Ending, InFlightGuard};

/// The load reporter of a filter chain.
#[derive(Debug)]
pub(crate) struct LoadReporter {
    inbound: Arc<Inbound>,
    peers: ArcSwapOption<Peers>,
    ledger_host: Mutex<LedgerHost>,
    /// Whether a worker runs its supervision task.
    supervised: AtomicBool,
    /// Notified of load changes that no finished request reports.
    changed: Arc<Notify>,
    /// Balancers with a subscription.
    subscribers: Subscribers,
    /// Whether responses also contain ORCA's field.
    speaks_orca: bool,
    pub(crate) metrics: LoadReporterMetrics,
}

/// The servers of the service.
#[derive(Debug)]
struct Peers {
    cluster: Arc<Cluster>,
    own: Name,
}

/// The ledger, on the proxy that hosts it.
#[derive(Debug, Default)]
struct LedgerHost {
    /// The ledger, and the membership for which it was created; `None` until it is needed.
    ledger: Option<(Arc<Endpoints>, Ledger)>,
    /// Channels on which to request reports.
    reporters: Vec<(Name, Outbox)>,
}

/// A server that reports, and the host of its ledger.
struct Reported {
    /// Name of the server.
    own: Name,
    /// When the server joined its group, as far as this proxy knows.
    joined: Time,
    ledger: LedgerLocation,
}

/// Host of the ledger.
enum LedgerLocation {
    /// This proxy.
    Own,
    /// The inbound proxy of another server.
    Host(Arc<Cluster>, Arc<Target>),
}

impl LoadReporter {
    pub(crate) fn new(speaks_orca: bool, metrics: LoadReporterMetrics) -> Self {
        Self {
            inbound: Arc::default(),
            peers: ArcSwapOption::empty(),
            ledger_host: Mutex::default(),
            supervised: AtomicBool::new(false),
            changed: Arc::default(),
            subscribers: Subscribers::default(),
            speaks_orca,
            metrics,
        }
    }

    /// Returns whether responses also contain ORCA's field.
    pub(crate) fn speaks_orca(&self) -> bool {
        self.speaks_orca
    }

    /// Sets the cluster of the service's servers, and the name of the server behind this proxy.
    pub(crate) fn set_peers(&self, peers: Option<(Arc<Cluster>, String)>) {
        let peers = peers.map(|(cluster, own)| {
            Arc::new(Peers {
                cluster,
                own: Name::of(&own),
            })
        });
        self.peers.store(peers);
    }

    /// Admits a request, or returns the number of requests in flight.
    fn admit(&self, asked: Option<QueueRequest>, shard: usize, now: Time) -> Result<Admitted, u32> {
        let (admission, ticket) = match asked {
            Some(asked) => (asked.admission, asked.ticket),
            None => (Admission::Always, None),
        };
        let admitted = self.inbound.admit(admission, ticket, now);
        let metrics = &self.metrics;
        match &admitted {
            Ok(admitted) if admitted.ahead() == 0 => metrics.idle.inc(shard),
            Ok(_) => metrics.busy.inc(shard),
            Err(_) => metrics.refused.inc(shard),
        }
        admitted
    }

    /// Returns true if no worker supervises this reporter yet; the caller must then do so.
    fn claim_supervision(&self) -> bool {
        !self.supervised.load(Ordering::Relaxed) && !self.supervised.swap(true, Ordering::Relaxed)
    }

    /// Returns the number of requests in flight at the server.
    pub(crate) fn in_flight(&self) -> u32 {
        self.inbound.in_flight()
    }

    fn load(&self) -> Load {
        self.inbound.load()
    }

    /// Returns the server to report and the ledger's host; `None` if there is no ledger.
    fn reported_server(&self) -> Option<Reported> {
        let peers = self.peers.load_full()?;
        let endpoints = peers.cluster.endpoints();
        let balancer = endpoints.balancer();
        if balancer.spec().announce() != Announce::Ledger {
            return None;
        }
        let groups = endpoints.groups()?;
        let own = groups.named(peers.own)?;
        let host = groups.host(groups.of(own)?)?;
        let joined = balancer.view().endpoint(own)?.added_at;
        let ledger = if host == own {
            LedgerLocation::Own
        } else {
            let target = endpoints.targets().get(host.get())?;
            LedgerLocation::Host(Arc::clone(&peers.cluster), Arc::clone(target))
        };
        Some(Reported {
            own: peers.own,
            joined,
            ledger,
        })
    }

    /// Handles a report under this name; `outbox` sends to the reporting proxy. Names come from the network: those
    /// that the ledger does not know use no memory.
    fn reported(&self, from: Name, report: &Report, outbox: Option<&Outbox>, now: Time) {
        let mut ledger_host = self.ledger_host();
        let Some((_, ledger)) = &mut ledger_host.ledger else {
            return;
        };
        if ledger.estimated_load(from).is_none() {
            return;
        }
        ledger.report(from, report, now);
        if let Some(outbox) = outbox {
            ledger_host.remember(from, outbox);
        }
    }

    /// Returns the server to which a request should be sent, according to the ledger; `None` if another proxy hosts
    /// the ledger.
    fn refer(&self, among: Option<Among>, now: Time, rng: &mut Rng) -> Option<Referral> {
        let peers = self.peers.load_full()?;
        let endpoints = peers.cluster.endpoints();
        let mut ledger_host = self.ledger_host();
        let ledger = ledger_host.ledger(&endpoints, peers.own, rng)?;
        let (referral, audit) = ledger.ask_among(among, now, rng);
        match audit {
            // The audited server is the one behind this proxy.
            Some(audit) if audit.0 == peers.own => {
                ledger.report(peers.own, &self.inbound.report(), now);
            }
            Some(audit) => ledger_host.audit(audit.0),
            None => {}
        }
        drop(ledger_host);
        self.metrics.referrals.add_shared(1);
        referral
    }

    fn ledger_host(&self) -> std::sync::MutexGuard<'_, LedgerHost> {
        // A panic while the lock is held leaves counts that the next reports correct.
        self.ledger_host
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reporter for LoadReporter {
    fn report(&self) -> Report {
        self.inbound.report()
    }
}

impl LedgerHost {
    /// Returns the ledger of the group that `own` belongs to, for the current servers. `None` if, as far as this
    /// proxy knows, another server hosts it: servers then do not report here, and old reports are outdated when this
    /// proxy becomes the host again.
    fn ledger(
        &mut self,
        endpoints: &Arc<Endpoints>,
        own: Name,
        rng: &mut Rng,
    ) -> Option<&mut Ledger> {
        let current = self
            .ledger
            .as_ref()
            .is_some_and(|(of, _)| Arc::ptr_eq(of, endpoints));
        if !current {
            let groups = endpoints.groups()?;
            let own = groups.named(own)?;
            let group = groups.of(own)?;
            if groups.host(group) != Some(own) {
                self.ledger = None;
                return None;
            }
            let members = members(endpoints, groups, group);
            let slow_start = endpoints.balancer().view().slow_start().cloned();
            let ledger = match self.ledger.take() {
                Some((_, mut ledger)) => {
                    ledger.set_members(members, slow_start);
                    ledger
                }
                None => Ledger::new(members, slow_start, rng.below(u32::MAX)),
            };
            self.ledger = Some((Arc::clone(endpoints), ledger));
        }
        self.ledger.as_mut().map(|(_, ledger)| ledger)
    }

    fn remember(&mut self, from: Name, outbox: &Outbox) {
        match self.reporters.iter_mut().find(|(name, _)| *name == from) {
            Some((_, known)) if known.is_same(outbox) => {}
            Some((_, known)) => *known = outbox.clone(),
            None => {
                self.reporters.retain(|(_, outbox)| outbox.is_open());
                self.reporters.push((from, outbox.clone()));
            }
        }
    }

    fn audit(&self, of: Name) {
        let reporter = self.reporters.iter().find(|(name, _)| *name == of);
        if let Some((_, outbox)) = reporter {
            outbox.send(&Frame::Audit { of });
        }
    }
}

/// Returns the servers of a group. Unusable servers are included but not offered: balancers refer to servers by
/// position, and may consider a server usable that this proxy considers unusable.
fn members(endpoints: &Endpoints, groups: &Groups, group: u32) -> Vec<Member> {
    let view = endpoints.balancer().view();
    let describe = |at: &Index| {
        let endpoint = view.endpoint(*at)?;
        Some(Member {
            name: Name::of(&endpoint.key),
            weight: endpoint.weight.get(),
            joined: endpoint.added_at,
            offered: view.is_usable(*at),
        })
    };
    let members = groups.members(group).iter();
    members.filter_map(describe).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::telemetry::metrics::Metrics;

    #[test]
    fn names_that_the_ledger_does_not_know_are_not_remembered() {
        let load_reporter = LoadReporter::new(false, Metrics::new(1).load_reporter("web"));
        let (outbox, _end) = Outbox::new();
        let report = Report {
            in_flight: 1,
            latest: None,
            pace: Duration::ZERO,
            age: None,
        };
        let known = Name::from_bits(1);
        let notify = |from| load_reporter.reported(from, &report, Some(&outbox), Time::ZERO);
        notify(known);
        assert!(
            load_reporter.ledger_host().reporters.is_empty(),
            "there is no ledger"
        );
        let yaml = "listeners: [{name: l, address: '127.0.0.1:80', tcp: {cluster: a}}]
clusters: [{name: a, endpoints: ['127.0.0.1:80']}]";
        let config = maglor_config::parse(yaml, "test").unwrap().config;
        let metrics = Metrics::new(1);
        let cluster = Cluster::new(
            Arc::clone(&config.clusters[0]),
            None,
            &metrics,
            None,
            Time::ZERO,
        );
        let endpoints = cluster.unwrap().endpoints();
        load_reporter.ledger_host().ledger =
            Some((endpoints, Ledger::new([Member::new(known, 1)], None, 1)));
        (0..1000).map(Name::from_bits).for_each(notify);
        let ledger_host = load_reporter.ledger_host();
        let names: Vec<_> = ledger_host
            .reporters
            .iter()
            .map(|(name, _)| *name)
            .collect();
        assert_eq!(names, [known]);
    }
}
