//! The decision rule: which balancing policy is predicted to be fastest in a situation, and by how much. An evaluation
//! takes microseconds, so that a controller can evaluate the rule for every service continuously.
//!
//! The predictions (`laws.rs`) are formulas where theory provides them (the supermarket model, Erlang's loss formula,
//! random queues as the limit of many balancers) and fits to the simulator otherwise; `crates/lab/tests/rule.rs`
//! compares the predictions with the simulator. They assume Poisson arrivals and exponential service. Heavier tails
//! favour policies that know the true queues more than the rule predicts; so the rule tends to recommend no change.
//!
//! Unequal servers are modelled with two speeds, half of the servers each, with the given variation.

mod governor;
mod laws;
mod tables;
mod telemetry;

use std::time::Duration;

pub use governor::{Budget, Change, Governor, Limits, Reason, View};
pub use telemetry::Telemetry;

/// The parameters of a service and its callers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Situation {
    /// M: the number of balancers (sidecars of the callers) that send requests to the service, 1 or more.
    pub balancers: u32,
    /// N: the number of servers of the service, 1 or more.
    pub servers: u32,
    /// ρ: the mean utilization of the servers, above 0 and below 1.
    pub rho: f64,
    /// Ts: the mean service time without queueing, at a server of mean speed.
    pub service_time: Duration,
    /// The round-trip time from a balancer to a server's proxy.
    pub round_trip: Duration,
    /// The standard deviation of the servers' speeds, relative to their mean, 0–0.9.
    pub speed_variation: f64,
    /// m: the number of Proxy-Service instances that the load would need, 1 or more.
    pub proxies: u32,
    /// The latency that a Proxy-Service adds to a request; the paper measured 1.08 ms (Fig. 8f).
    pub proxy_penalty: Duration,
}

/// A balancing policy, and where it runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Choice {
    /// `bounce(tries=3)` in the sidecars.
    Bounce,
    /// `ledger(group=40)` in the sidecars.
    Ledger,
    /// `lor(choices=2)` in the sidecars, independently of each other.
    Local,
    /// `lor(choices=2)` in the instances of a Proxy-Service.
    ProxyService,
}

/// The predicted mean latency of a choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The predicted choice.
    pub choice: Choice,
    /// The mean latency: waiting, service, messages and proxies together.
    pub mean: Duration,
}

/// The predictions of all choices, the fastest first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// A prediction for each choice, the fastest first.
    pub predictions: [Prediction; 4],
}

/// The reason why a situation is invalid.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum SituationError {
    /// A count of the situation is zero.
    #[error("balancers, servers and proxies must be 1 or more")]
    Empty,
    /// ρ is out of range, so that there is no steady state.
    #[error("rho = {0}: the load must be above 0 and below 1")]
    Rho(f64),
    /// The service time is zero.
    #[error("the service time must be above zero")]
    ServiceTime,
    /// The variation of speeds is out of range.
    #[error("speed_variation = {0} is out of range; valid: 0-0.9")]
    SpeedVariation(f64),
}

impl Choice {
    /// Returns the name of the choice in statuses and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bounce => "bounce",
            Self::Ledger => "ledger",
            Self::Local => "local",
            Self::ProxyService => "proxy-service",
        }
    }

    /// Returns the policy of the sidecars, or of the instances of a Proxy-Service, in the notation of the proxy's
    /// configuration.
    #[must_use]
    pub fn policy(self) -> &'static str {
        match self {
            Self::Bounce => "bounce(tries=3)",
            Self::Ledger => "ledger(group=40)",
            Self::Local | Self::ProxyService => "lor(choices=2)",
        }
    }

    /// Returns whether the choice needs sidecars at the servers, which report their queue lengths.
    #[must_use]
    pub fn is_collaborative(self) -> bool {
        matches!(self, Self::Bounce | Self::Ledger)
    }
}

impl Situation {
    /// Predicts the latency of all choices.
    ///
    /// # Errors
    ///
    /// If the situation is invalid.
    pub fn decide(&self) -> Result<Verdict, SituationError> {
        self.check()?;
        let mut predictions = [
            Choice::Local,
            Choice::Bounce,
            Choice::Ledger,
            Choice::ProxyService,
        ]
        .map(|choice| Prediction {
            choice,
            mean: self.predict(choice),
        });
        // Stable: among equals the simpler one, which comes first, wins.
        predictions.sort_by_key(|prediction| prediction.mean);
        Ok(Verdict { predictions })
    }

    fn check(&self) -> Result<(), SituationError> {
        if self.balancers == 0 || self.servers == 0 || self.proxies == 0 {
            return Err(SituationError::Empty);
        }
        if !(self.rho > 0.0 && self.rho < 1.0) {
            return Err(SituationError::Rho(self.rho));
        }
        if self.service_time.is_zero() {
            return Err(SituationError::ServiceTime);
        }
        if !(0.0..=0.9).contains(&self.speed_variation) {
            return Err(SituationError::SpeedVariation(self.speed_variation));
        }
        Ok(())
    }

    fn predict(&self, choice: Choice) -> Duration {
        let service = self.service_time.as_secs_f64();
        let servers = laws::Servers {
            count: f64::from(self.servers),
            rho: self.rho,
            variation: self.speed_variation,
        };
        let round_trip = self.round_trip.as_secs_f64() / service;
        let (latency, penalty) = match choice {
            Choice::Bounce => (servers.bounce(round_trip), Duration::ZERO),
            Choice::Ledger => (servers.ledger(round_trip), Duration::ZERO),
            Choice::Local => (servers.local(f64::from(self.balancers)), Duration::ZERO),
            Choice::ProxyService => (servers.local(f64::from(self.proxies)), self.proxy_penalty),
        };
        // Saturates at a duration that no caller distinguishes from infinity.
        let latency = Duration::try_from_secs_f64(latency * service).unwrap_or(Duration::MAX);
        latency.saturating_add(penalty)
    }
}

impl Verdict {
    /// Returns the prediction for the fastest choice.
    #[must_use]
    pub fn winner(&self) -> Prediction {
        self.predictions[0]
    }

    /// Returns the prediction for a choice.
    #[must_use]
    pub fn of(&self, choice: Choice) -> Option<Prediction> {
        let mut predictions = self.predictions.iter().copied();
        predictions.find(|prediction| prediction.choice == choice)
    }

    /// Returns the predicted share of the present latency that a change from `choice` to the winner saves; 0 if
    /// `choice` is the winner.
    #[must_use]
    pub fn gain_over(&self, choice: Choice) -> f64 {
        let present = self.of(choice).map_or(Duration::ZERO, |p| p.mean);
        if present.is_zero() {
            return 0.0;
        }
        1.0 - self.winner().mean.as_secs_f64() / present.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paper(balancers: u32) -> Situation {
        Situation {
            balancers,
            servers: 40,
            rho: 0.75,
            service_time: Duration::from_millis(20),
            round_trip: Duration::from_micros(500),
            speed_variation: 0.0,
            proxies: 1,
            proxy_penalty: Duration::from_millis(2),
        }
    }

    #[test]
    fn at_the_papers_point_it_says_what_was_simulated() {
        let verdict = paper(20).decide().unwrap();
        let order = verdict.predictions.map(|p| p.choice);
        let expected = [
            Choice::Ledger,
            Choice::Bounce,
            Choice::ProxyService,
            Choice::Local,
        ];
        assert_eq!(order, expected);
        let gain = verdict.gain_over(Choice::Local);
        assert!((gain - (1.0 - 21.1 / 61.1)).abs() < 0.02, "{gain}");
        assert!(verdict.gain_over(Choice::Ledger).abs() < 1e-12);
    }

    #[test]
    fn slow_messages_and_light_loads_leave_things_as_they_are() {
        let far = Situation {
            round_trip: Duration::from_millis(40),
            rho: 0.1,
            ..paper(2)
        };
        assert_eq!(far.decide().unwrap().winner().choice, Choice::Local);
        let light = Situation {
            rho: 0.3,
            round_trip: Duration::from_millis(2),
            ..paper(20)
        };
        assert_eq!(light.decide().unwrap().winner().choice, Choice::Bounce);
    }

    #[test]
    fn more_load_never_makes_anything_faster() {
        for balancers in [1, 7, 100, 5000] {
            for variation in [0.0, 0.1, 0.3, 0.5] {
                let mut before = [Duration::ZERO; 4];
                for percent in 1..100 {
                    let situation = Situation {
                        rho: f64::from(percent) / 100.0,
                        speed_variation: variation,
                        ..paper(balancers)
                    };
                    let choices = [
                        Choice::Local,
                        Choice::Bounce,
                        Choice::Ledger,
                        Choice::ProxyService,
                    ];
                    let now = choices.map(|choice| situation.predict(choice));
                    for (before, now) in before.iter().zip(&now) {
                        let grown = now.as_secs_f64() >= before.as_secs_f64() * 0.999;
                        assert!(grown, "{situation:?}: {before:?} {now:?}");
                    }
                    before = now;
                }
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let edits: [fn(&mut Situation); 5] = [
            |s| s.balancers = 0,
            |s| s.rho = 1.0,
            |s| s.rho = f64::NAN,
            |s| s.service_time = Duration::ZERO,
            |s| s.speed_variation = 1.0,
        ];
        for edit in edits {
            let mut situation = paper(20);
            edit(&mut situation);
            assert!(situation.decide().is_err(), "{situation:?}");
        }
    }
}
