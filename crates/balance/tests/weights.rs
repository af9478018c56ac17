//! Weights and slow start: every policy that promises shares keeps them at every load.
//!
//! Requests come as a Poisson stream and stay for an exponential time wherever they are, so that a
//! server's share of the requests is its share of those in progress, and nothing but the policy decides it.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use maglor_balance::queue_protocol::{
    Admission, Admitted, Answer, Decision, Inbound, Ledger, Member, Name, Question, Step,
};
use maglor_balance::{
    Balancer, Endpoint, Index, Outstanding, PickCtx, Rng, SlowStart, Time, ViewParams,
};
use support::{balancer_with, key, seed};

/// Servers with one balancer before them; messages take no time.
struct Fixture {
    balancer: Balancer,
    inbounds: Vec<Arc<Inbound>>,
    ledger: Option<Ledger>,
    /// Whether the ledger answers.
    answers: bool,
    held: Vec<(usize, Outstanding, Admitted)>,
    rng: Rng,
    nanos: f64,
}

/// Mean time of a request.
const SERVICE: f64 = 20e6;

impl Fixture {
    fn new(policy: &str, endpoints: Vec<Endpoint>, params: &ViewParams, number: u64) -> Self {
        let balancer = balancer_with(policy, endpoints, params);
        let view = balancer.view();
        let member = |endpoint: &Endpoint| Member {
            name: Name::of(&endpoint.key),
            weight: endpoint.weight.get(),
            joined: endpoint.added_at,
            offered: true,
        };
        let members = view.endpoints().iter().map(member);
        Self {
            inbounds: view.endpoints().iter().map(|_| Arc::default()).collect(),
            ledger: policy
                .starts_with("ledger")
                .then(|| Ledger::new(members, params.slow_start.clone(), 1)),
            answers: true,
            balancer,
            held: Vec::new(),
            rng: Rng::seed(seed(number)),
            nanos: 0.0,
        }
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.nanos as u64)
    }

    /// The servers of the requests that come until `end`, at `erlang` requests a service time.
    fn run(&mut self, erlang: f64, end: f64, mut sent: impl FnMut(usize)) {
        while self.nanos < end {
            let rate = erlang + self.held.len() as f64;
            self.nanos -= (1.0 - self.rng.unit()).ln() / rate * SERVICE;
            if self.rng.unit() * rate < erlang {
                sent(self.arrive());
            } else {
                self.depart();
            }
        }
    }

    fn depart(&mut self) {
        let at = self.rng.below(self.held.len() as u32) as usize;
        let (server, outstanding, admitted) = self.held.swap_remove(at);
        outstanding.finish(self.now());
        let report = admitted.finish(self.now()).unwrap();
        let now = self.now();
        if let Some(ledger) = &mut self.ledger {
            ledger.report(Name::of(&key(server)), &report, now);
        }
    }

    fn arrive(&mut self) -> usize {
        let ctx = PickCtx::new(self.now());
        let mut decision = Decision::new();
        let mut step = self.balancer.begin(&mut decision, &ctx, &mut self.rng);
        loop {
            step = match step {
                Step::Send {
                    to,
                    admission,
                    ticket,
                } => match self.inbounds[to.get()].admit(admission, ticket, self.now()) {
                    Ok(admitted) => {
                        let stats = &self.balancer.view().endpoint(to).unwrap().stats;
                        self.held
                            .push((to.get(), stats.begin(self.now()), admitted));
                        return to.get();
                    }
                    Err(in_flight) => {
                        assert_ne!(admission, Admission::Always);
                        let refusal = (to, in_flight);
                        self.balancer
                            .refused(&mut decision, refusal, &ctx, &mut self.rng)
                    }
                },
                Step::Ask { to, question, .. } => self.ask(&mut decision, &to, question, &ctx),
                other => panic!("{other:?}"),
            };
        }
    }

    fn ask(
        &mut self,
        decision: &mut Decision,
        to: &[Index],
        question: Question,
        ctx: &PickCtx<'_>,
    ) -> Step {
        let mut step = Step::Wait;
        for from in to {
            let answer = match question {
                Question::Load => Answer::Load(self.inbounds[from.get()].load()),
                Question::Referral if self.answers => {
                    let ledger = self.ledger.as_mut().unwrap();
                    let (referral, audit) = ledger.ask(ctx.now, &mut self.rng);
                    if let Some(audit) = audit {
                        let at = (0..self.inbounds.len()).find(|at| Name::of(&key(*at)) == audit.0);
                        let report = self.inbounds[at.unwrap()].report();
                        ledger.report(audit.0, &report, ctx.now);
                    }
                    Answer::Referral(referral)
                }
                _ => return self.balancer.timed_out(decision, ctx, &mut self.rng),
            };
            step = self
                .balancer
                .answered(decision, (*from, answer), ctx, &mut self.rng);
        }
        step
    }
}

fn servers(weights: &[u32]) -> Vec<Endpoint> {
    support::weighted(weights)
}

/// Policies that promise shares by weight.
const PROMISING: &[&str] = &[
    "random",
    "round-robin",
    "lor(choices=2)",
    "lor(choices=3)",
    "lor(choices=all)",
    "a-lsq(choices=2)",
    "bounce(tries=2)",
    "bounce(tries=3)",
    "probe(choices=2)",
    "probe(choices=3)",
    "ledger(group=40)",
];

/// The same with a host that does not answer.
const DEAD: &[&str] = &[
    "ledger(group=40,fallback=bounce)",
    "ledger(group=40,fallback=lor)",
    "ledger(group=40,fallback=probe)",
];

const LOADS: &[f64] = &[0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

/// The greatest relative deviation of a share from its weight.
fn deviation(counts: &[f64], weights: &[f64]) -> f64 {
    let (all, sum): (f64, f64) = (counts.iter().sum(), weights.iter().sum());
    let deviations = counts.iter().zip(weights);
    deviations
        .map(|(count, weight)| (count / all * sum / weight - 1.0).abs())
        .fold(0.0, f64::max)
}

#[test]
fn shares_follow_the_weights_at_every_load() {
    let mut failures = Vec::new();
    let dead = DEAD.iter().map(|policy| (policy, false));
    for (policy, answers) in PROMISING.iter().map(|p| (p, true)).chain(dead) {
        for weights in [&[99_u32, 1][..], &[10, 1], &[3, 2, 1]] {
            let real: Vec<f64> = weights.iter().map(|w| f64::from(*w)).collect();
            let mut row = Vec::new();
            for erlang in LOADS {
                let mut fixture =
                    Fixture::new(policy, servers(weights), &ViewParams::default(), 71);
                fixture.answers = answers;
                let mut counts = vec![0.0; weights.len()];
                // The light server's count has a standard deviation of 3.5 %.
                let requests = 800.0 * real.iter().sum::<f64>() / real.last().unwrap();
                let end = requests / erlang * SERVICE;
                fixture.run(*erlang, end, |server| counts[server] += 1.0);
                row.push(deviation(&counts, &real));
            }
            println!("{policy:>32} {weights:?} {row:.3?}");
            if row.iter().any(|deviation| *deviation > 0.1) {
                failures.push((policy, weights, row));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Shares of a server that joins three others, in fifths of its window, compared with those of its curve.
fn ramp(policy: &str, erlang: f64) -> Vec<(f64, f64)> {
    const FIFTHS: usize = 5;
    let window = Duration::from_secs(300);
    let slow_start = SlowStart {
        window,
        ..SlowStart::default()
    };
    let params = ViewParams {
        slow_start: Some(slow_start.clone()),
        ..ViewParams::default()
    };
    let joined = Time::from_nanos(500_000_000_000);
    let mut endpoints = servers(&[1; 4]);
    endpoints[3].added_at = joined;
    let mut fixture = Fixture::new(policy, endpoints, &params, 72);
    fixture.nanos = joined.as_nanos() as f64;
    let fifth = window / FIFTHS as u32;
    let mut shares = Vec::new();
    for at in 0..FIFTHS as u32 {
        let begin = joined + fifth * at;
        let (mut all, mut new) = (0.0, 0.0);
        fixture.run(erlang, (begin + fifth).as_nanos() as f64, |server| {
            all += 1.0;
            new += f64::from(u8::from(server == 3));
        });
        let of_curve = |step: u32| {
            let factor = slow_start.factor(joined, begin + fifth * step / 100);
            factor / (3.0 + factor)
        };
        let curve = (0..100).map(of_curve).sum::<f64>() / 100.0;
        shares.push((new / all, curve));
    }
    shares
}

#[test]
fn slow_start_follows_its_curve_under_every_policy() {
    for policy in PROMISING {
        for erlang in [2.0, 12.0] {
            let shares = ramp(policy, erlang);
            let off: Vec<f64> = shares
                .iter()
                .map(|(own, curve)| own / curve - 1.0)
                .collect();
            println!("{policy:>18} {erlang:>4} {off:.3?}");
            assert!(
                off.iter().all(|off| off.abs() < 0.2),
                "{policy} at {erlang} erlang: {shares:.4?}"
            );
        }
    }
}

/// One server with a low weight among many of equal weight must not randomize these: what is compared among
/// them are whole requests.
#[test]
fn a_light_server_does_not_disturb_the_balance_of_the_others() {
    for policy in ["lor(choices=all)", "ledger(group=40)"] {
        let mut fixture = Fixture::new(
            policy,
            servers(&[100, 100, 100, 1]),
            &ViewParams::default(),
            73,
        );
        let mut busy_while_idle = 0;
        fixture.run(1.5, 20_000.0 * SERVICE, |_| {});
        for _ in 0..20_000 {
            let in_flight: Vec<u32> = fixture.inbounds.iter().map(|i| i.in_flight()).collect();
            let to = fixture.arrive();
            busy_while_idle +=
                u32::from(to < 3 && in_flight[to] > 0 && in_flight[..3].contains(&0));
            while fixture.held.len() > 2 {
                fixture.depart();
            }
        }
        assert_eq!(busy_while_idle, 0, "{policy}");
    }
}
