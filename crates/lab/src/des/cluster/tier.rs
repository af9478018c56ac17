//! One service: its servers, the balancers in front of it, and the inbound proxies of its servers
//! under collaborative policies.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use maglor_balance::queue_protocol::{Groups, Inbound, Ledger, Member, Name};
use maglor_balance::{
    Endpoint, Index, PolicySpec, Rng, SlowStart, SubsetParams, Time, Usual, View, ViewParams,
};

use super::guarded::Guarded;
use crate::comparison::{Board, Compared, Reports};
use crate::des::nodes::Lists;
use crate::des::post::Mail;
use crate::des::scenario::Scenario;

/// A balancer of any policy.
pub(super) type Balancer = maglor_balance::Balancer<Compared>;

/// A service; see the module's documentation. Servers are numbered from 0 within it.
#[derive(Debug)]
pub(super) struct Tier {
    pub(super) balancers: Vec<Balancer>,
    /// The index of its first server among those of all tiers.
    pub(super) first: u32,
    /// The services that its servers call.
    pub(super) calls: Vec<u16>,
    /// The number of proxies before it, if any.
    pub(super) proxies: Option<NonZeroU32>,
    /// Whether balancers need the latency of requests.
    pub(super) uses_latency: bool,
    /// The number of servers without requests.
    pub(super) idle: u32,
    /// The guards by balancer; empty if responses are not evaluated.
    pub(super) guards: Vec<Guarded>,
    /// The usual duration of good responses, by balancer.
    pub(super) usual: Vec<Usual>,
    /// The inbound proxies; `None` if the policy needs none.
    pub(super) help: Option<Help>,
    params: ViewParams,
}

/// The inbound side.
#[derive(Debug)]
pub(super) struct Help {
    pub(super) inbounds: Vec<Arc<Inbound>>,
    pub(super) reports: Reports,
    pub(super) groups: Option<Groups>,
    /// The host of each group.
    pub(super) hosts: Vec<Host>,
    /// The names by server.
    pub(super) names: Vec<Name>,
    /// Servers that have left.
    absent: Vec<bool>,
    /// Servers that report to no ledger.
    pub(super) silent: Vec<bool>,
    /// The join time of each server, from its own view, and from the view of hosts that have
    /// existed all the time.
    joined: Vec<Time>,
    listed: Vec<Time>,
    weights: Vec<u32>,
    slow_start: Option<SlowStart>,
}

/// The components at the host of a group. Only one of them is used.
#[derive(Debug)]
pub(super) struct Host {
    /// When it started: it has observed the events since.
    since: Time,
    pub(super) ledger: Ledger,
    pub(super) board: Board,
    pub(super) alive: bool,
    /// The queued messages while it stalls; `None` while it does not.
    pub(super) stalled: Option<Vec<Mail>>,
}

impl Tier {
    pub(super) fn new(scenario: &Scenario, service: u16, rng: &mut Rng) -> Self {
        let callers = if service == 0 {
            scenario.balancers
        } else {
            scenario.servers
        };
        let proxies = scenario.proxies.map(|proxies| proxies.instances);
        let keys: Vec<Arc<str>> = (0..scenario.servers)
            .map(|server| format!("s{service}-{server}").into())
            .collect();
        let params = ViewParams {
            slow_start: scenario.slow_start.clone(),
            ..ViewParams::default()
        };
        let lists = scenario.lists(service);
        let balancers: Vec<Balancer> = (0..proxies.unwrap_or(callers))
            .map(|balancer| {
                let endpoints = endpoints(scenario, service, balancer, lists.as_ref(), &keys);
                build(&spec_of(&scenario.policy, balancer), endpoints, &params)
            })
            .collect();
        let view = balancers.first().map(Balancer::view);
        let help = view
            .filter(|_| scenario.policy.is_collaborative())
            .map(|view| Help::new(scenario, view, rng));
        let guarded = if scenario.is_guarded() {
            balancers.len()
        } else {
            0
        };
        Self {
            guards: (0..guarded).map(|_| Guarded::new(scenario)).collect(),
            usual: balancers.iter().map(|_| Usual::new()).collect(),
            balancers,
            first: u32::from(service) * scenario.servers,
            calls: scenario.graph.calls(service),
            proxies: proxies.and_then(NonZeroU32::new),
            uses_latency: scenario.policy.uses_latency(),
            idle: scenario.servers,
            help,
            params,
        }
    }

    /// Removes a server from, or returns it to, one balancer's view.
    pub(super) fn set_ejected(&mut self, balancer: u32, server: usize, ejected: bool, now: Time) {
        let balancer = &mut self.balancers[balancer as usize];
        let endpoints = Arc::clone(balancer.view().endpoints());
        if endpoints[server].stats.set_ejected(ejected) {
            let endpoints = since(endpoints, server, now, ejected);
            *balancer = balancer.rebuild(endpoints, &self.params, now);
        }
    }

    /// Removes a server from, or returns it to, every balancer's view, and every ledger.
    pub(super) fn set_absent(&mut self, server: u32, absent: bool, now: Time) {
        for balancer in 0..self.balancers.len() as u32 {
            self.set_absent_for(balancer, server, absent, now);
        }
        if let Some(help) = &mut self.help {
            help.set_absent(server, absent, now);
        }
    }

    /// Removes a server from, or returns it to, one balancer's view, because it has left or
    /// returned.
    pub(super) fn set_absent_for(&mut self, balancer: u32, server: u32, absent: bool, now: Time) {
        let balancer = &mut self.balancers[balancer as usize];
        let endpoints = Arc::clone(balancer.view().endpoints());
        if let Some(endpoint) = endpoints.get(server as usize) {
            endpoint.stats.set_draining(absent);
            let endpoints = since(endpoints, server as usize, now, absent);
            *balancer = balancer.rebuild(endpoints, &self.params, now);
        }
    }
}

/// Returns the same endpoints, one of which exists since `now`, unless it has left.
fn since(all: Arc<[Endpoint]>, server: usize, now: Time, gone: bool) -> Arc<[Endpoint]> {
    if gone {
        return all;
    }
    let joined = |(at, one): (usize, &Endpoint)| match at == server {
        true => one.clone().added_at(now),
        false => one.clone(),
    };
    all.iter().enumerate().map(joined).collect()
}

/// Returns the policy of a balancer: each is a separate client to policies that number them.
fn spec_of(policy: &Compared, balancer: u32) -> Compared {
    match policy {
        Compared::Proxy(PolicySpec::Subset(params)) => {
            Compared::Proxy(PolicySpec::Subset(SubsetParams {
                client: balancer,
                ..*params
            }))
        }
        other => other.clone(),
    }
}

/// Returns the servers of a service as known to one balancer.
fn endpoints(
    scenario: &Scenario,
    service: u16,
    balancer: u32,
    lists: Option<&Lists>,
    keys: &[Arc<str>],
) -> Vec<Endpoint> {
    let from = scenario.node_of_caller(service, balancer);
    let endpoint = |(server, key)| {
        let endpoint = Endpoint::new(Arc::clone(key)).weight(scenario.weight(server));
        match lists {
            Some(lists) => lists.describe(endpoint, from, scenario.node_of(server)),
            None => endpoint,
        }
    };
    (0..).zip(keys).map(endpoint).collect()
}

fn build(policy: &Compared, endpoints: Vec<Endpoint>, params: &ViewParams) -> Balancer {
    let built = Balancer::build(policy, endpoints, params, Time::ZERO);
    built.expect("the scenario's policy was checked")
}

impl Help {
    fn new(scenario: &Scenario, view: &View, rng: &mut Rng) -> Self {
        let policy = &scenario.policy;
        let reporting = scenario.servers - scenario.silent;
        let names: Vec<Name> = view.endpoints().iter().map(|e| Name::of(&e.key)).collect();
        let groups = policy.groups(view);
        let mut help = Self {
            inbounds: names.iter().map(|_| Arc::new(Inbound::new())).collect(),
            reports: policy.reports(),
            hosts: Vec::new(),
            absent: vec![false; names.len()],
            silent: (0..scenario.servers).map(|s| s >= reporting).collect(),
            joined: vec![Time::ZERO; names.len()],
            listed: vec![Time::ZERO; names.len()],
            // With local-first routing each host knows its own node's list, which is not used here:
            // balancers name the intended servers, and these have equal shares.
            weights: view.endpoints().iter().map(|e| e.weight.get()).collect(),
            slow_start: scenario.slow_start.clone(),
            names,
            groups,
        };
        let count = help.groups.as_ref().map_or(0, Groups::len) as u32;
        for group in 0..count {
            let host = help.start_host(group, Time::ZERO, rng);
            help.hosts.push(host);
        }
        help
    }

    /// Returns an empty ledger or board: a board is informed of servers when they become idle, so
    /// at the beginning of the simulation it gets all of them.
    fn start_host(&self, group: u32, now: Time, rng: &mut Rng) -> Host {
        let mut board = Board::default();
        for member in self.members(group, now).iter().filter(|one| one.offered) {
            board.post(member.name);
        }
        Host {
            since: now,
            ledger: Ledger::new(
                self.members(group, now),
                self.slow_start.clone(),
                rng.next_u32(),
            ),
            board,
            alive: true,
            stalled: None,
        }
    }

    /// Returns a group's servers as known to a host that has existed since then; servers that have
    /// left are not offered.
    fn members(&self, group: u32, since: Time) -> Vec<Member> {
        let members = self.groups.as_ref().map_or(&[][..], |g| g.members(group));
        let describe = |index: &Index| Member {
            joined: self.listed[index.get()].max(since),
            offered: !self.absent[index.get()],
            ..Member::new(self.names[index.get()], self.weights[index.get()])
        };
        members.iter().map(describe).collect()
    }

    /// Records that a server has returned, from its own view.
    pub(super) fn joins(&mut self, server: u32, now: Time) {
        self.joined[server as usize] = now;
    }

    /// Returns how long a server has existed, from its own view.
    pub(super) fn age(&self, server: u32, now: Time) -> Duration {
        now.saturating_since(self.joined[server as usize])
    }

    /// Informs ledgers that a server has left or returned.
    pub(super) fn set_absent(&mut self, server: u32, absent: bool, now: Time) {
        self.absent[server as usize] = absent;
        if !absent {
            self.listed[server as usize] = now;
        }
        for group in 0..self.hosts.len() {
            let members = self.members(group as u32, self.hosts[group].since);
            let ramp = self.slow_start.clone();
            self.hosts[group].ledger.set_members(members, ramp);
        }
    }

    /// Restarts a group's host: the ledger or board is empty.
    pub(super) fn restart(&mut self, group: u32, now: Time, rng: &mut Rng) {
        let mut host = self.start_host(group, now, rng);
        host.board = Board::default();
        if let Some(place) = self.hosts.get_mut(group as usize) {
            *place = host;
        }
    }

    /// Returns the host of the group that a server belongs to, if it is alive.
    pub(super) fn host_of(&mut self, server: u32) -> Option<&mut Host> {
        let group = self.groups.as_ref()?.of(Index::new(server as usize))?;
        self.hosts.get_mut(group as usize).filter(|host| host.alive)
    }
}
