//! Validates scenarios.

use std::sync::Arc;
use std::time::Duration;

use maglor_balance::{BuildPolicy as _, Endpoint, Time, View, ViewParams};

use super::{Change, Disturbance, LEAST_REQUESTS, Network, Scenario, ScenarioError};
use crate::comparison::Compared;
use crate::des::server::Discipline;

/// The limit of requests in progress at a server, if they do not slow each other down.
const MOST_PARALLEL: f64 = 1000.0;
/// The limit of balancer-server pairs: each takes some 200 bytes, in each concurrent run.
const MOST_PAIRS: u64 = 5_000_000;
/// Time is counted in nanoseconds, in 64 bits; the limit leaves a margin for later events.
const LONGEST_NANOS: f64 = 1e18;

impl Scenario {
    /// Validates every number.
    ///
    /// # Errors
    ///
    /// The first invalid one.
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
        self.check_nodes()?;
        self.check_slow_start()?;
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

    fn check_nodes(&self) -> Result<(), ScenarioError> {
        let Some(nodes) = &self.nodes else {
            return Ok(());
        };
        let useless = |why| Err(ScenarioError::Useless { what: "nodes", why });
        let count = nodes.callers.len();
        let fits = count >= 2 && count <= self.servers as usize;
        let valid = "2 up to the number of servers: on one node all calls are local";
        refuse_unless(fits, "nodes", &count, valid)?;
        let all: u64 = nodes.callers.iter().map(|count| u64::from(*count)).sum();
        let shown = format!("{:?}", nodes.callers);
        let fits = (1..=100_000).contains(&all);
        refuse_unless(fits, "callers on nodes", &shown, "1-100000 in all")?;
        let fits = (0.0..=1.0).contains(&nodes.slack);
        refuse_unless(fits, "slack of nodes", &nodes.slack, "0-1")?;
        if self.proxies.is_some() {
            return useless("calls go to a random proxy, wherever it is");
        }
        if matches!(self.policy, Compared::JoinIdleQueue { .. }) {
            return useless("join-idle-queue does not distinguish the nodes of idle servers");
        }
        if self.weights.iter().any(|weight| *weight != self.weights[0]) {
            return useless("with local-first routing, weights are computed from the nodes");
        }
        Ok(())
    }

    fn check_slow_start(&self) -> Result<(), ScenarioError> {
        let returns = |one: &Disturbance| matches!(one.change, Change::Return(_));
        let returns = self.disturbances.iter().any(returns) || self.guards.ejection.is_some();
        match &self.slow_start {
            Some(ramp) if ramp.window.is_zero() => Err(ScenarioError::Useless {
                what: "slow start",
                why: "its window is 0",
            }),
            Some(_) if !returns => Err(ScenarioError::Useless {
                what: "slow start",
                why: "no server returns, so none is new",
            }),
            _ => Ok(()),
        }
    }

    /// Returns the number of ledgers or boards of the first service: groups are derived from the
    /// names of servers.
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

    /// Returns the number of balancer-server pairs.
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
            "large enough that the requests of a run arrive within 30 years",
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
