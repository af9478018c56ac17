//! Balancers on several nodes, each with priorities and weights of its own, and one ledger for all of them.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use maglor_balance::queue_protocol::{
    Admission, Admitted, Answer, Decision, Inbound, Ledger, Member, Name, Question, Step,
};
use maglor_balance::{
    Balancer, Endpoint, Index, Locality, PickCtx, PolicySpec, Rng, Time, ViewParams,
};
use support::{key, seed};

const NODES: usize = 3;
const SERVERS: usize = 12;

/// Mean time of a request, in nanoseconds.
const SERVICE: f64 = 20e6;

/// Weight (0: priority 1) of the servers of each node, at each node.
type Lists = [[u32; NODES]; NODES];

/// The shares of `localFirst` where two thirds of the calls come from the first node.
const LOCAL_FIRST: Lists = [[500, 250, 250], [0, 1000, 0], [0, 0, 1000]];

/// Three nodes with four servers each, and a balancer on each node.
struct Fixture {
    balancers: Vec<Balancer>,
    inbounds: Vec<Arc<Inbound>>,
    ledgers: BTreeMap<Name, Ledger>,
    /// Requests at a server, and when they end.
    held: Vec<Vec<(f64, Admitted)>>,
    rng: Rng,
    nanos: f64,
    questions: u32,
    fallbacks: u32,
    /// Mean time at a server, of all requests.
    times: (f64, u32),
}

fn node_of(server: usize) -> usize {
    server % NODES
}

fn list(weights: &[u32; NODES]) -> Vec<Endpoint> {
    let endpoint = |server: usize| {
        let node = node_of(server);
        let mut endpoint = Endpoint::new(key(server));
        endpoint.locality = Some(Locality::new("eu", "z", format!("node-{node}")));
        match weights[node] {
            0 => endpoint.priority = 1,
            weight => endpoint.weight = weight.try_into().unwrap(),
        }
        endpoint
    };
    (0..SERVERS).map(endpoint).collect()
}

impl Fixture {
    fn new(policy: &str, lists: &Lists, number: u64) -> Self {
        let spec: PolicySpec = policy.parse().unwrap();
        let build = |weights| {
            Balancer::build(&spec, list(weights), &ViewParams::default(), Time::ZERO).unwrap()
        };
        let balancers: Vec<_> = lists.iter().map(build).collect();
        // Each host has the list of its own node.
        let mut ledgers = BTreeMap::new();
        let groups = spec.groups(balancers[0].view());
        for group in 0..groups.as_ref().map_or(0, |groups| groups.len() as u32) {
            let groups = groups.as_ref().unwrap();
            let host = groups.host(group).unwrap().get();
            let view = balancers[node_of(host)].view();
            let member = |at: &Index| {
                let endpoint = view.endpoint(*at).unwrap();
                Member::new(Name::of(&endpoint.key), endpoint.weight.get())
            };
            let members = groups.members(group).iter().map(member);
            ledgers.insert(Name::of(&key(host)), Ledger::new(members, None, 1));
        }
        Self {
            balancers,
            inbounds: (0..SERVERS).map(|_| Arc::default()).collect(),
            ledgers,
            held: (0..SERVERS).map(|_| Vec::new()).collect(),
            rng: Rng::seed(seed(number)),
            nanos: 0.0,
            questions: 0,
            fallbacks: 0,
            times: (0.0, 0),
        }
    }

    /// Sends `requests` at this load, in turn of `calls` from each node; the shares of servers by the node of
    /// the caller.
    fn run(&mut self, load: f64, calls: [u32; NODES], requests: u32) -> [Vec<f64>; NODES] {
        let mut counts: [Vec<f64>; NODES] = std::array::from_fn(|_| vec![0.0; SERVERS]);
        let gap = SERVICE / (SERVERS as f64 * load);
        let all: u32 = calls.iter().sum();
        for _ in 0..requests {
            self.nanos -= gap * (1.0 - self.rng.unit()).ln();
            self.end_requests();
            let mut left = self.rng.below(all);
            let from = (0..NODES).find(|node| {
                let found = left < calls[*node];
                left = left.wrapping_sub(calls[*node]);
                found
            });
            let from = from.unwrap();
            let to = self.send(from);
            counts[from][to] += 1.0;
        }
        for counts in &mut counts {
            let sum: f64 = counts.iter().sum();
            counts.iter_mut().for_each(|count| *count /= sum.max(1.0));
        }
        counts
    }

    fn end_requests(&mut self) {
        for server in 0..SERVERS {
            while let Some((until, _)) = self.held[server].first().filter(|one| one.0 <= self.nanos)
            {
                let now = Time::from_nanos(*until as u64);
                let (_, admitted) = self.held[server].remove(0);
                if let Some(report) = admitted.finish(now) {
                    for ledger in self.ledgers.values_mut() {
                        ledger.report(Name::of(&key(server)), &report, now);
                    }
                }
            }
        }
    }

    fn send(&mut self, from: usize) -> usize {
        let now = Time::from_nanos(self.nanos as u64);
        let ctx = PickCtx::new(now);
        let mut decision = Decision::new();
        let mut step = self.balancers[from].begin(&mut decision, &ctx, &mut self.rng);
        loop {
            step = match step {
                Step::Ask { to, question, .. } => {
                    let mut last = Step::Wait;
                    for to in to {
                        let answer = (to, self.answer(to, question, now));
                        last = self.balancers[from].answered(
                            &mut decision,
                            answer,
                            &ctx,
                            &mut self.rng,
                        );
                    }
                    last
                }
                Step::Send {
                    to,
                    admission,
                    ticket,
                } => {
                    self.fallbacks += u32::from(decision.has_fallen_back());
                    match self.inbounds[to.get()].admit(admission, ticket, now) {
                        Ok(admitted) => {
                            self.hold(to.get(), admitted);
                            return to.get();
                        }
                        Err(count) => {
                            assert_ne!(admission, Admission::Always);
                            let refusal = (to, count);
                            self.balancers[from].refused(
                                &mut decision,
                                refusal,
                                &ctx,
                                &mut self.rng,
                            )
                        }
                    }
                }
                other => panic!("{other:?}"),
            };
        }
    }

    fn answer(&mut self, host: Index, question: Question, now: Time) -> Answer {
        self.questions += 1;
        let among = match question {
            Question::Load => return Answer::Load(self.inbounds[host.get()].load()),
            Question::ReferralAmong(among) => Some(among),
            _ => None,
        };
        let ledger = self.ledgers.get_mut(&Name::of(&key(host.get())));
        let ledger = ledger.expect("all nodes know the same hosts");
        let (referral, audit) = ledger.ask_among(among, now, &mut self.rng);
        if let Some(audit) = audit {
            let at = (0..SERVERS)
                .find(|at| Name::of(&key(*at)) == audit.0)
                .unwrap();
            ledger.report(audit.0, &self.inbounds[at].report(), now);
        }
        Answer::Referral(referral)
    }

    /// Servers work on one request after the other.
    fn hold(&mut self, server: usize, admitted: Admitted) {
        let begins = self.held[server]
            .last()
            .map_or(self.nanos, |last| last.0.max(self.nanos));
        let until = begins - SERVICE * (1.0 - self.rng.unit()).ln();
        self.times.0 += until - self.nanos;
        self.times.1 += 1;
        self.held[server].push((until, admitted));
    }

    fn mean(&self) -> Duration {
        Duration::from_nanos((self.times.0 / f64::from(self.times.1)) as u64)
    }
}

/// The shares that the servers of each node have of the calls from each node.
fn by_node(shares: &[Vec<f64>; NODES]) -> [[f64; NODES]; NODES] {
    let of = |shares: &Vec<f64>| {
        let mut sums = [0.0; NODES];
        for (server, share) in shares.iter().enumerate() {
            sums[node_of(server)] += share;
        }
        sums
    };
    [of(&shares[0]), of(&shares[1]), of(&shares[2])]
}

#[test]
fn weights_of_nodes_give_the_shares_and_true_queues_the_server() {
    let lor = {
        let mut lor = Fixture::new("lor(choices=2)", &LOCAL_FIRST, 1);
        lor.run(0.75, [4, 1, 1], 40_000);
        lor.mean()
    };
    let anywhere = {
        let mut anywhere = Fixture::new("ledger(group=40)", &[[1; NODES]; NODES], 1);
        anywhere.run(0.75, [4, 1, 1], 40_000);
        anywhere.mean()
    };
    println!("lor {lor:?}; ledger without weights {anywhere:?}");
    for (policy, at_most) in [
        ("ledger(group=40)", 0.85),
        ("ledger(group=5)", 0.95),
        ("bounce(tries=3)", 0.95),
        ("probe(choices=2)", 1.05),
    ] {
        for load in [0.2, 0.75] {
            let mut fixture = Fixture::new(policy, &LOCAL_FIRST, 2);
            let shares = by_node(&fixture.run(load, [4, 1, 1], 40_000));
            let wanted = [[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
            for (shares, wanted) in shares.iter().zip(wanted) {
                for (share, wanted) in shares.iter().zip(wanted) {
                    assert!(
                        (share - wanted).abs() < 0.015,
                        "{policy} at {load}: {shares:?}"
                    );
                }
            }
            assert!(
                fixture.fallbacks < 400,
                "{policy} at {load}: {}",
                fixture.fallbacks
            );
            if load > 0.5 {
                let ratio = fixture.mean().as_secs_f64() / lor.as_secs_f64();
                println!("{policy}: {:?}, {ratio:.2} of lor", fixture.mean());
                assert!(ratio < at_most, "{policy}: {ratio} of lor");
            }
        }
    }
}

#[test]
fn a_lower_priority_of_one_node_is_not_that_of_another() {
    // Each node prefers its own servers (`trafficDistribution`), with weights as given.
    let lists = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
    for policy in [
        "ledger(group=40)",
        "ledger(group=3)",
        "bounce(tries=3)",
        "probe(choices=2)",
    ] {
        let mut fixture = Fixture::new(policy, &lists, 3);
        let shares = by_node(&fixture.run(0.6, [1, 1, 1], 6000));
        for (node, shares) in shares.iter().enumerate() {
            assert!(shares[node] > 0.9999, "{policy}: {shares:?}");
        }
        let asked = f64::from(fixture.questions) / 6000.0;
        assert!(
            !policy.starts_with("ledger(group=40") || asked > 0.99,
            "{policy}: {asked}"
        );
        assert_eq!(fixture.fallbacks, 0, "{policy}");
    }
}

/// Two of three nodes happen to have the same weight at one node, and others where the ledger is.
#[test]
fn the_weights_of_the_ledgers_node_do_not_enter() {
    for other in [[100, 900, 500], [900, 100, 500]] {
        let lists = [[300, 300, 0], other, other];
        let mut fixture = Fixture::new("ledger(group=40)", &lists, 4);
        let shares = fixture.run(0.7, [1, 0, 0], 20_000);
        for (server, share) in shares[0]
            .iter()
            .enumerate()
            .filter(|(at, _)| node_of(*at) < 2)
        {
            assert!((share - 1.0 / 8.0).abs() < 0.02, "{server}: {share}");
        }
    }
}

#[test]
fn servers_that_a_balancer_must_not_use_are_not_named_to_it() {
    let mut fixture = Fixture::new("ledger(group=40)", &[[1; 3]; 3], 5);
    let endpoints = Arc::clone(fixture.balancers[0].view().endpoints());
    endpoints[4].stats.set_ejected(true);
    let rebuilt = fixture.balancers[0].rebuild(endpoints, &ViewParams::default(), Time::ZERO);
    fixture.balancers[0] = rebuilt;
    let shares = fixture.run(0.5, [1, 0, 0], 4000);
    assert!(
        shares[0][4].abs() < 1e-9 && shares[0][3] > 0.05,
        "{shares:?}"
    );
    assert_eq!(
        fixture.fallbacks, 0,
        "it is the idlest of all, and yet it is not named"
    );
}

#[test]
fn a_group_too_large_to_name_a_part_of_is_left_to_the_fallback() {
    let spec: PolicySpec = "ledger(group=1000)".parse().unwrap();
    let endpoints: Vec<_> = (0..300)
        .map(|at| Endpoint::new(key(at)).priority(u8::from(at >= 100)))
        .collect();
    let balancer = Balancer::build(&spec, endpoints, &ViewParams::default(), Time::ZERO).unwrap();
    let (mut decision, mut rng) = (Decision::new(), Rng::seed(seed(6)));
    for _ in 0..100 {
        match balancer.begin(&mut decision, &PickCtx::new(Time::ZERO), &mut rng) {
            Step::Send { to, admission, .. } => {
                assert!(to.get() < 100 && admission == Admission::AtMost(0));
            }
            other => panic!("{other:?}"),
        }
    }
}
