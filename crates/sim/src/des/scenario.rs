//! What is simulated, and which of it makes sense.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use maglor_balance::{Endpoint, Spec, SpecError, Time, View, ViewParams};

use super::arrivals::Arrivals;
use super::distribution::Service;
use super::graph::Graph;
use super::guards::{Faults, Guards};
use super::server::Discipline;

/// Requests of a run: of fewer there is no mean to speak of.
pub const LEAST_REQUESTS: u64 = 100;

/// A system of balancers and servers, the load on it, and how long to look at it.
///
/// # Defaults
///
/// One balancer, 40 servers, `lor(choices=2)`, ρ = 0.75, exponential service of 20 ms, Poisson
/// arrivals, FIFO, equal speeds, 0.25 ms a message, nothing lost: the paper's §II.D. Ten runs of
/// 100 000 requests, seed 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// How balancers choose.
    pub policy: Spec,
    /// M: balancers in front of the first service, 1–100 000.
    pub balancers: u32,
    /// N: servers of each service, 1–100 000.
    pub servers: u32,
    /// ρ: load relative to the nominal capacity of all servers together, above 0 and below 1; requests in
    /// progress a server of speed 1 where they do not slow each other down
    /// ([`Discipline::Parallel`]), up to 1000.
    pub rho: f64,
    /// Ts: mean time that a server of speed 1 works on a request, 1 µs – 1 h.
    pub service_time: Duration,
    /// When requests come.
    pub arrivals: Arrivals,
    /// What they cost.
    pub service: Service,
    /// How servers divide their capacity.
    pub discipline: Discipline,
    /// Speeds of the servers, by turns; not empty, each above 0.
    pub speeds: Vec<f64>,
    /// Weights that balancers give the servers, by turns; not empty, each above 0.
    pub weights: Vec<u32>,
    /// How messages travel.
    pub network: Network,
    /// Which services there are.
    pub graph: Graph,
    /// Balancing by a few proxies between the callers and each service, if any.
    pub proxies: Option<Proxies>,
    /// Speeds that change with time, if any.
    pub antagonist: Option<Antagonist>,
    /// Things that happen at given times, in any order.
    pub disturbances: Vec<Disturbance>,
    /// Each balancer, and each ledger, learns of servers that leave and return at a moment of its own,
    /// this much later at most.
    pub view_lag: Duration,
    /// How many of each service's servers, its last ones, report to no ledger from the beginning and
    /// answer no audits; at most all of them.
    pub silent: u32,
    /// Servers that fail, if any.
    pub faults: Option<Faults>,
    /// What balancers do about failures.
    pub guards: Guards,
    /// Users' requests in each run, those of the warm-up included, at least [`LEAST_REQUESTS`].
    pub requests: u64,
    /// Independent runs, 2–1000. Intervals come from what differs between them.
    pub runs: u32,
    /// The length of an interval of [`Outcome::timeline_ms`](super::Outcome::timeline_ms); zero: none is
    /// made.
    pub timeline: Duration,
    /// Determines all chance.
    pub seed: u64,
}

/// How a policy's messages travel. Requests and responses take no time; see the parent module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// One way, 0–10 s.
    pub delay: Duration,
    /// The share of messages that is lost, from 0 to below 1. Requests are not: a connection repeats
    /// what it loses.
    pub loss: f64,
    /// Of those that are not lost so, the share of servers' reports that is: a network that loses one
    /// way.
    pub report_loss: f64,
}

/// The paper's Proxy-Service (§III): few balancers that all callers go through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proxies {
    /// m: how many of them, for each service; a request takes a random one. 1–100 000.
    pub instances: u32,
    /// What the way through one adds to a request; 2 ms in the paper's Fig. 9.
    pub penalty: Duration,
}

/// Something else that runs on the machines: at any time, one server in `one_in` has only
/// `factor` of its speed; after `lasts` it is the next one's turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Antagonist {
    /// 1 or more.
    pub one_in: u32,
    /// Above 0, at most 1.
    pub factor: f64,
    /// At least 1 ms.
    pub lasts: Duration,
}

/// A change at a time, in every run and every service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disturbance {
    /// Since the beginning of the run.
    pub at: Duration,
    /// What changes.
    pub change: Change,
}

/// What can change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// This server leaves: balancers send it nothing new, it ends what it has.
    Leave(u32),
    /// The ledger or board of this group stops answering; its server goes on.
    LedgerDies(u32),
    /// The ledger or board of this group starts again, knowing nothing.
    LedgerRestarts(u32),
    /// The ledger or board of this group takes up what has arrived since it stalled, in that order.
    LedgerResumes(u32),
    /// The ledger or board of this group does nothing until it resumes; what arrives waits.
    LedgerStalls(u32),
    /// This server reports to ledgers and answers audits from now on.
    Reporting(u32),
    /// This server comes back.
    Return(u32),
    /// This server reports to no ledger any more and answers no audits; it serves on.
    Silent(u32),
}

/// Why a scenario makes no sense. One line each.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// A disturbance of something that is not there.
    #[error("there is no {0}")]
    Absent(String),
    /// The graph has too few or too many services.
    #[error("graph {0}: a chain or hub has 2-64 services")]
    Graph(Graph),
    /// The policy's parameters are out of range.
    #[error(transparent)]
    Policy(#[from] SpecError),
    /// The system has no steady state.
    #[error(
        "rho = {0}: the load must be above 0 and below 1, else queues grow for ever or are empty; \
         with the discipline `parallel`, 1000 at most"
    )]
    Rho(f64),
    /// A number is out of range.
    #[error("{what} = {value} is out of range; valid: {valid}")]
    Range {
        /// Which number.
        what: &'static str,
        /// As given.
        value: String,
        /// What it may be.
        valid: &'static str,
    },
}

/// Requests in progress a server, where they do not slow each other down.
const MOST_PARALLEL: f64 = 1000.0;
/// A pair takes some 200 bytes, in each run under way.
const MOST_PAIRS: u64 = 5_000_000;
/// Time is counted in nanoseconds, in 64 bits; some of them are for what comes later than expected.
const LONGEST_NANOS: f64 = 1e18;

impl Default for Scenario {
    fn default() -> Self {
        Self {
            policy: Spec::default(),
            balancers: 1,
            servers: 40,
            rho: 0.75,
            service_time: Duration::from_millis(20),
            arrivals: Arrivals::Poisson,
            service: Service::Exponential,
            discipline: Discipline::Fifo,
            speeds: vec![1.0],
            weights: vec![1],
            network: Network {
                delay: Duration::from_micros(250),
                loss: 0.0,
                report_loss: 0.0,
            },
            graph: Graph::Single,
            proxies: None,
            antagonist: None,
            disturbances: Vec::new(),
            view_lag: Duration::ZERO,
            silent: 0,
            faults: None,
            guards: Guards::default(),
            requests: 100_000,
            runs: 10,
            timeline: Duration::ZERO,
            seed: 1,
        }
    }
}

impl Scenario {
    /// The default scenario with another policy.
    #[must_use]
    pub fn of(policy: Spec) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    /// Checks every number.
    ///
    /// # Errors
    ///
    /// The first one that makes no sense.
    pub fn check(&self) -> Result<(), ScenarioError> {
        self.policy.validate()?;
        let parallel = self.discipline == Discipline::Parallel && self.rho <= MOST_PARALLEL;
        if !(self.rho > 0.0 && (self.rho < 1.0 || parallel)) {
            return Err(ScenarioError::Rho(self.rho));
        }
        if !self.graph.is_valid() {
            return Err(ScenarioError::Graph(self.graph));
        }
        self.check_sizes()?;
        self.check_disturbances()?;
        self.check_times()
    }

    fn check_disturbances(&self) -> Result<(), ScenarioError> {
        let mut hosts = None;
        for disturbance in &self.disturbances {
            let (what, at, count) = match disturbance.change {
                Change::Leave(server)
                | Change::Reporting(server)
                | Change::Return(server)
                | Change::Silent(server) => ("server", server, self.servers),
                Change::LedgerDies(group)
                | Change::LedgerRestarts(group)
                | Change::LedgerResumes(group)
                | Change::LedgerStalls(group) => {
                    let hosts = *hosts.get_or_insert_with(|| self.hosts());
                    ("ledger or board", group, hosts)
                }
            };
            if at >= count {
                return Err(ScenarioError::Absent(match count.checked_sub(1) {
                    Some(last) => format!("{what} {at}; the last one is {last}"),
                    None => format!("{what} under the policy {}", self.policy),
                }));
            }
        }
        Ok(())
    }

    /// How many ledgers or boards the first service has: groups follow from the names of servers.
    fn hosts(&self) -> u32 {
        let endpoint = |server: u32| Endpoint::new(Arc::from(format!("s0-{server}")));
        let endpoints: Vec<Endpoint> = (0..self.servers).map(endpoint).collect();
        let view = View::build(endpoints, &ViewParams::default(), Time::ZERO);
        let groups = self.policy.groups(&view);
        groups.map_or(0, |groups| groups.len() as u32)
    }

    fn check_sizes(&self) -> Result<(), ScenarioError> {
        let count = |what, value: u32| {
            let fits = (1..=100_000).contains(&value);
            refuse_unless(fits, what, &value, "1-100000")
        };
        count("balancers", self.balancers)?;
        count("servers", self.servers)?;
        if let Some(proxies) = &self.proxies {
            count("proxies", proxies.instances)?;
        }
        refuse_unless(
            self.requests >= LEAST_REQUESTS,
            "requests",
            &self.requests,
            "100 or more",
        )?;
        refuse_unless(
            (2..=1000).contains(&self.runs),
            "runs",
            &self.runs,
            "2-1000",
        )?;
        let speeds =
            !self.speeds.is_empty() && self.speeds.iter().all(|s| (1e-3..=1e3).contains(s));
        refuse_unless(
            speeds,
            "speeds",
            &format!("{:?}", self.speeds),
            "numbers of 0.001-1000",
        )?;
        let weights = !self.weights.is_empty() && !self.weights.contains(&0);
        refuse_unless(
            weights,
            "weights",
            &format!("{:?}", self.weights),
            "whole numbers above 0",
        )?;
        self.check_failures()?;
        refuse_unless(
            self.silent <= self.servers,
            "silent",
            &self.silent,
            "up to the number of servers",
        )?;
        self.check_losses()?;
        let pairs = self.pairs();
        refuse_unless(
            pairs <= MOST_PAIRS,
            "balancers x servers, over all services",
            &pairs,
            "up to 5000000: each balancer keeps an account of each server",
        )
    }

    fn check_losses(&self) -> Result<(), ScenarioError> {
        let Network {
            loss, report_loss, ..
        } = self.network;
        refuse_unless((0.0..1.0).contains(&loss), "loss", &loss, "0 to below 1")?;
        let fits = (0.0..=1.0).contains(&report_loss);
        refuse_unless(fits, "loss of reports", &report_loss, "0-1")?;
        Ok(())
    }

    fn check_failures(&self) -> Result<(), ScenarioError> {
        if let Some(faults) = &self.faults {
            let (servers, all) = (faults.servers, self.servers);
            if servers > all {
                let absent = format!("server {}; the last one is {}", servers - 1, all - 1);
                return Err(ScenarioError::Absent(absent));
            }
            let share = (0.0..=1.0).contains(&faults.share);
            refuse_unless(share, "share of failures", &faults.share, "0-1")?;
            let work = (0.0..=1000.0).contains(&faults.work);
            refuse_unless(work, "work of a failure", &faults.work, "0-1000")?;
            let status = (400..600).contains(&faults.status);
            refuse_unless(status, "status of a failure", &faults.status, "400-599")?;
        }
        if let Some(retries) = &self.guards.retries {
            let fits = retries.attempts <= 20;
            refuse_unless(fits, "retries", &retries.attempts, "0-20, as in the proxy")?;
        }
        if let Some(most) = self.guards.max_requests {
            refuse_unless(most > 0, "max_requests", &most, "1 or more")?;
        }
        Ok(())
    }

    /// How many accounts balancers keep of servers.
    fn pairs(&self) -> u64 {
        let (balancers, servers) = (u64::from(self.balancers), u64::from(self.servers));
        let proxies = self.proxies.map(|proxies| u64::from(proxies.instances));
        let calls = u64::from(self.graph.services()) - 1;
        servers * (proxies.unwrap_or(balancers) + calls * servers)
    }

    fn check_times(&self) -> Result<(), ScenarioError> {
        let within = |what, value: Duration, least: Duration, most: Duration, valid| {
            let fits = (least..=most).contains(&value);
            refuse_unless(fits, what, &format!("{value:?}"), valid)
        };
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
        let micro = Duration::from_micros(1);
        within("service time", self.service_time, micro, hour, "1 us - 1 h")?;
        refuse_unless(
            self.requests as f64 / self.rate() <= LONGEST_NANOS,
            "rho",
            &format!("{:e}", self.rho),
            "so much that a run's requests come within 30 years",
        )?;
        within(
            "delay",
            self.network.delay,
            Duration::ZERO,
            10 * second,
            "0-10 s",
        )?;
        within("view lag", self.view_lag, Duration::ZERO, hour, "0-1 h")?;
        if !self.timeline.is_zero() {
            let least = Duration::from_millis(1);
            within("timeline", self.timeline, least, hour, "1 ms - 1 h")?;
        }
        if let Some(proxies) = &self.proxies {
            within(
                "penalty",
                proxies.penalty,
                Duration::ZERO,
                10 * second,
                "0-10 s",
            )?;
        }
        let Some(antagonist) = &self.antagonist else {
            return Ok(());
        };
        refuse_unless(
            antagonist.one_in > 0,
            "one_in",
            &antagonist.one_in,
            "1 or more",
        )?;
        let factor = antagonist.factor;
        refuse_unless(
            factor > 0.0 && factor <= 1.0,
            "factor",
            &factor,
            "above 0, at most 1",
        )?;
        within(
            "lasts",
            antagonist.lasts,
            Duration::from_millis(1),
            24 * hour,
            "1 ms or more",
        )
    }

    /// Whether answers are judged.
    pub(super) fn is_guarded(&self) -> bool {
        self.faults.is_some() || self.guards.are_on()
    }

    /// The speed of a server without antagonist.
    pub(super) fn speed(&self, server: u32) -> f64 {
        self.speeds[server as usize % self.speeds.len()]
    }

    /// The weight that balancers give a server.
    pub(super) fn weight(&self, server: u32) -> NonZeroU32 {
        let weight = self.weights[server as usize % self.weights.len()];
        NonZeroU32::new(weight).unwrap_or(NonZeroU32::MIN)
    }

    /// Users' requests a nanosecond.
    pub(super) fn rate(&self) -> f64 {
        let capacity: f64 = (0..self.servers).map(|server| self.speed(server)).sum();
        self.rho * capacity / self.service_time.as_nanos() as f64
    }
}

fn refuse_unless(
    fits: bool,
    what: &'static str,
    value: &impl ToString,
    valid: &'static str,
) -> Result<(), ScenarioError> {
    if fits {
        return Ok(());
    }
    Err(ScenarioError::Range {
        what,
        value: value.to_string(),
        valid,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_makes_sense_and_nonsense_is_refused_in_one_line() {
        let base = Scenario::default();
        assert_eq!(base.check(), Ok(()));
        let change = |change| Disturbance {
            at: Duration::ZERO,
            change,
        };
        let with = |policy: &str, last| Scenario {
            policy: policy.parse().unwrap(),
            disturbances: vec![change(last)],
            ..Scenario::default()
        };
        for (policy, groups) in [("ledger(group=20)", 2), ("join-idle-queue(boards=4)", 4)] {
            let good = with(policy, Change::LedgerDies(groups - 1));
            assert_eq!(good.check(), Ok(()));
            let error = with(policy, Change::LedgerRestarts(groups)).check();
            let error = error.unwrap_err().to_string();
            let last = groups - 1;
            assert_eq!(
                error,
                format!("there is no ledger or board {groups}; the last one is {last}")
            );
        }
        let error = with("lor(choices=2)", Change::LedgerDies(0)).check();
        assert_eq!(
            error.unwrap_err().to_string(),
            "there is no ledger or board under the policy lor(choices=2)"
        );
        let edits: [fn(&mut Scenario); 26] = [
            |s| {
                s.faults = Some(Faults {
                    servers: 41,
                    share: 0.5,
                    work: 1.0,
                    status: 500,
                });
            },
            |s| s.guards = Guards::retrying(21),
            |s| s.guards.max_requests = Some(0),
            |s| s.rho = 1.0,
            |s| s.rho = f64::NAN,
            |s| s.rho = 0.0,
            |s| s.rho = 1e-12,
            |s| s.rho = 1e-300,
            |s| (s.balancers, s.servers) = (100_000, 100_000),
            |s| (s.balancers, s.servers) = (20_000, 5000),
            |s| (s.graph, s.servers) = (Graph::Chain { services: 64 }, 2000),
            |s| s.balancers = 0,
            |s| s.servers = 0,
            |s| s.requests = 1,
            |s| s.runs = 1,
            |s| s.speeds = vec![],
            |s| s.speeds = vec![1.0, 0.0],
            |s| s.network.loss = 1.0,
            |s| s.network.report_loss = 1.1,
            |s| s.silent = 41,
            |s| s.weights = vec![],
            |s| s.weights = vec![1, 0],
            |s| s.view_lag = Duration::from_secs(4000),
            |s| {
                s.faults = Some(Faults {
                    servers: 1,
                    share: 0.5,
                    work: 1.0,
                    status: 200,
                });
            },
            |s| s.service_time = Duration::ZERO,
            |s| s.graph = Graph::Chain { services: 1 },
        ];
        for edit in edits {
            let mut scenario = base.clone();
            edit(&mut scenario);
            let error = scenario.check().unwrap_err().to_string();
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
