//! Scenarios of a command line: one for each combination of the values of its lists.

use std::time::Duration;

use maglor_balance::SlowStart;
use maglor_balance::guard::breaker::BreakerParams;
use maglor_balance::guard::outlier::OutlierParams;
use maglor_lab::des::{
    Antagonist, Arrivals, Change, Discipline, Disturbance, Faults, Graph, Guards, LEAST_REQUESTS,
    Nodes, Proxies, Scenario, Service,
};

use super::options::Options;

/// The limit of simulations of a sweep.
const MOST: usize = 10_000;

impl Options {
    /// Returns the simulations, the balancers varying fastest.
    pub(super) fn scenarios(&self) -> Result<Vec<Scenario>, String> {
        let all = vec![self.common()?];
        let all = each(&all, &self.policies, |one, policy| {
            one.policy = policy.parse().map_err(|error| format!("{error}"))?;
            Ok(())
        })?;
        let all = each(&all, &self.servers.0, |one, servers| {
            one.servers = *servers;
            Ok(())
        })?;
        let all = each(&all, &self.rho.0, |one, rho| {
            one.rho = *rho;
            Ok(())
        })?;
        let all = each(&all, &self.service_ms.0, |one, service| {
            one.service_time = millis("--service-ms", *service)?;
            Ok(())
        })?;
        let all = each(&all, &self.delay_ms.0, |one, delay| {
            one.network.delay = millis("--delay-ms", *delay)?;
            Ok(())
        })?;
        let all = each(&all, &self.loss.0, |one, loss| {
            one.network.loss = *loss;
            Ok(())
        })?;
        let all = each(&all, &self.report_loss.0, |one, loss| {
            one.network.report_loss = *loss;
            Ok(())
        })?;
        let all = each(&all, &self.silent.0, |one, silent| {
            one.silent = *silent;
            Ok(())
        })?;
        let penalty = millis("--proxy-ms", self.proxy_ms)?;
        let proxies = self.proxies.as_ref().map(|counts| &*counts.0);
        let all = match proxies {
            None => all,
            Some(counts) => each(&all, counts, |one, instances| {
                let instances = *instances;
                one.proxies = Some(Proxies { instances, penalty });
                Ok(())
            })?,
        };
        let all = each(&all, &self.seed.0, |one, seed| {
            one.seed = *seed;
            Ok(())
        })?;
        let mut all = each(&all, &self.balancers.0, |one, balancers| {
            one.balancers = *balancers;
            Ok(())
        })?;
        for scenario in &mut all {
            scenario.nodes = self.nodes(scenario.servers)?;
            let rollout = self.rollout(scenario)?;
            scenario.disturbances.extend(rollout);
        }
        Ok(all)
    }

    /// Returns a scenario with all that has one value.
    fn common(&self) -> Result<Scenario, String> {
        let runs = u64::from(self.runs.max(1));
        if self.requests / runs < LEAST_REQUESTS {
            return Err(format!(
                "--requests {}: {runs} runs need at least {}",
                self.requests,
                LEAST_REQUESTS * runs
            ));
        }
        let parse_all = |texts: &[String]| texts.iter().map(|text| text.parse()).collect();
        let disturbances: Result<Vec<Disturbance>, String> = parse_all(&self.changes);
        let slow_start = self.slow_start_ms.map(|window| {
            Ok::<_, String>(SlowStart {
                window: millis("--slow-start-ms", window)?,
                ..SlowStart::default()
            })
        });
        let antagonist: Option<Antagonist> = self
            .antagonist
            .as_ref()
            .map(|text| text.parse())
            .transpose()?;
        Ok(Scenario {
            arrivals: self.arrivals.parse::<Arrivals>()?,
            service: self.service.parse::<Service>()?,
            discipline: self.discipline.parse::<Discipline>()?,
            speeds: self.speeds.clone(),
            weights: self.weights.clone(),
            slow_start: slow_start.transpose()?,
            graph: self.graph.parse::<Graph>()?,
            antagonist,
            disturbances: disturbances?,
            view_lag: millis("--view-lag-ms", self.view_lag_ms)?,
            faults: self.faults()?,
            guards: self.guards(),
            requests: self.requests / runs,
            runs: self.runs,
            timeline: millis("--timeline-ms", self.timeline_ms)?,
            ..Scenario::default()
        })
    }

    fn faults(&self) -> Result<Option<Faults>, String> {
        let Some(text) = &self.faults else {
            return Ok(None);
        };
        let faults: Faults = text.parse()?;
        Ok(Some(Faults {
            status: self.fault_status,
            ..faults
        }))
    }

    fn nodes(&self, servers: u32) -> Result<Option<Nodes>, String> {
        let Some(count) = self.nodes else {
            return Ok(None);
        };
        // Checked before a list of this length is allocated.
        if count > servers {
            return Err(format!(
                "--nodes {count}: must not exceed the number of servers ({servers})"
            ));
        }
        let mut nodes = Nodes::even(count);
        nodes.slack = self.node_slack / 100.0;
        if !self.node_callers.is_empty() {
            let given = self.node_callers.len();
            if given != count as usize {
                return Err(format!("--node-callers: {given} counts for {count} nodes"));
            }
            nodes.callers.clone_from(&self.node_callers);
        }
        Ok(Some(nodes))
    }

    /// Returns when each of the silent servers starts to report.
    fn rollout(&self, scenario: &Scenario) -> Result<Vec<Disturbance>, String> {
        let Some(lasts) = self.rollout_ms else {
            return Ok(Vec::new());
        };
        let lasts = millis("--rollout-ms", lasts)?;
        let first = scenario.servers.saturating_sub(scenario.silent);
        let begins = |at: u32| Disturbance {
            at: lasts.mul_f64(f64::from(at + 1) / f64::from(scenario.silent)),
            change: Change::Reporting(first + at),
        };
        Ok((0..scenario.silent).map(begins).collect())
    }

    fn guards(&self) -> Guards {
        let base = if self.retries > 0 {
            Guards::retrying(self.retries)
        } else {
            Guards::default()
        };
        Guards {
            ejection: self.eject.then(OutlierParams::default),
            breaker: self.breaker.then(BreakerParams::default),
            max_requests: self.max_requests,
            ..base
        }
    }
}

fn millis(option: &str, value: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(value / 1000.0)
        .map_err(|_| format!("{option} {value}: not a time in milliseconds"))
}

/// Returns the scenarios with each of the values; the values vary faster.
fn each<V>(
    scenarios: &[Scenario],
    values: &[V],
    set: impl Fn(&mut Scenario, &V) -> Result<(), String>,
) -> Result<Vec<Scenario>, String> {
    let count = scenarios.len() * values.len();
    if count > MOST {
        return Err(format!(
            "{count} combinations; at most {MOST} are simulated"
        ));
    }
    let with = |scenario: &Scenario, value| {
        let mut scenario = scenario.clone();
        set(&mut scenario, value).map(|()| scenario)
    };
    let all = scenarios.iter();
    all.flat_map(|scenario| values.iter().map(move |value| (scenario, value)))
        .map(|(scenario, value)| with(scenario, value))
        .collect()
}
