//! Derives the parameters of the rule from observations.
//!
//! ρ and Ts of a service are not measured. But λ, M, N and the mean response time r are known, and with a known policy
//! r follows from Ts alone, for ρ = λ Ts / N: inverting the law that predicts r yields Ts. If servers process several
//! requests at a time, the observations look like those of more and slower servers, and the predicted gain is lower
//! than the real one.

use std::time::Duration;

use super::{Choice, Situation};

/// The maximum ρ; an overload is not distinguished from it.
const BUSIEST: f64 = 0.98;
/// The number of bisections of the interval that contains Ts, which determine Ts to a millionth of the interval.
const HALVINGS: u32 = 20;

/// The observations of a service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Telemetry {
    /// M: the number of balancers that send requests to the service.
    pub balancers: u32,
    /// N: the number of servers of the service.
    pub servers: u32,
    /// λ: the number of requests per second from all balancers together.
    pub rps: f64,
    /// r: the mean response time, measured by the balancers.
    pub latency: Duration,
    /// The choice in use during the observation.
    pub choice: Choice,
    /// The round-trip time; see [`Situation::round_trip`].
    pub round_trip: Duration,
    /// The variation of speeds; see [`Situation::speed_variation`].
    pub speed_variation: f64,
    /// The number of Proxy-Service instances; see [`Situation::proxies`].
    pub proxies: u32,
    /// The latency that a Proxy-Service adds; see [`Situation::proxy_penalty`].
    pub proxy_penalty: Duration,
}

impl Telemetry {
    /// Returns the situation that would lead to these observations; `None` without requests, servers or balancers.
    #[must_use]
    pub fn situation(&self) -> Option<Situation> {
        let none = self.balancers == 0 || self.servers == 0 || self.proxies == 0;
        if none || self.latency.is_zero() || !(self.rps > 0.0 && self.rps.is_finite()) {
            return None;
        }
        let each = self.rps / f64::from(self.servers);
        let (mut low, mut high) = (0.0, BUSIEST / each);
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            match self.with(middle).predict(self.choice) < self.latency {
                true => low = middle,
                false => high = middle,
            }
        }
        // Above zero, as its validation requires.
        Some(self.with(high).at_least(Duration::from_nanos(1)))
    }

    /// Returns the situation with the same load and another service time, in seconds.
    fn with(&self, service_time: f64) -> Situation {
        Situation {
            balancers: self.balancers,
            servers: self.servers,
            rho: self.rps * service_time / f64::from(self.servers),
            service_time: Duration::try_from_secs_f64(service_time).unwrap_or(Duration::MAX),
            round_trip: self.round_trip,
            speed_variation: self.speed_variation,
            proxies: self.proxies,
            proxy_penalty: self.proxy_penalty,
        }
    }
}

impl Situation {
    fn at_least(mut self, service_time: Duration) -> Self {
        self.service_time = self.service_time.max(service_time);
        self
    }

    /// Returns the situation with the same servers at another load, λ in requests per second. The load is limited to
    /// one that can be distinguished from an overload.
    #[must_use]
    pub fn at_rate(mut self, rps: f64) -> Self {
        let rho = rps * self.service_time.as_secs_f64() / f64::from(self.servers);
        self.rho = rho.clamp(f64::MIN_POSITIVE, BUSIEST);
        self
    }

    /// Returns the number of requests per second.
    #[must_use]
    pub fn rps(&self) -> f64 {
        self.rho * f64::from(self.servers) / self.service_time.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn telemetry(situation: &Situation, choice: Choice) -> Telemetry {
        Telemetry {
            balancers: situation.balancers,
            servers: situation.servers,
            rps: situation.rps(),
            latency: situation.predict(choice),
            choice,
            round_trip: situation.round_trip,
            speed_variation: situation.speed_variation,
            proxies: situation.proxies,
            proxy_penalty: situation.proxy_penalty,
        }
    }

    #[test]
    fn what_is_observed_leads_back_to_what_it_came_from() {
        for choice in [
            Choice::Local,
            Choice::Bounce,
            Choice::Ledger,
            Choice::ProxyService,
        ] {
            for (balancers, servers, rho) in
                [(1, 1, 0.5), (20, 40, 0.75), (5, 4, 0.1), (300, 60, 0.95)]
            {
                let situation = Situation {
                    balancers,
                    servers,
                    rho,
                    service_time: Duration::from_millis(20),
                    round_trip: Duration::from_micros(500),
                    speed_variation: 0.2,
                    proxies: 2,
                    proxy_penalty: Duration::from_millis(1),
                };
                let back = telemetry(&situation, choice).situation().unwrap();
                assert!((back.rho - rho).abs() < 1e-3, "{choice:?} {back:?}");
                assert!((back.rps() - situation.rps()).abs() < 1e-3 * situation.rps());
            }
        }
    }

    #[test]
    fn overload_is_the_highest_reported_load_and_nothing_is_nothing() {
        let calm = Situation {
            balancers: 20,
            servers: 40,
            rho: 0.5,
            service_time: Duration::from_millis(20),
            round_trip: Duration::ZERO,
            speed_variation: 0.0,
            proxies: 1,
            proxy_penalty: Duration::ZERO,
        };
        let observed = telemetry(&calm, Choice::Local);
        let slow = Telemetry {
            latency: Duration::from_secs(60),
            ..observed
        };
        assert!((slow.situation().unwrap().rho - BUSIEST).abs() < 1e-3);
        let edits: [fn(&mut Telemetry); 5] = [
            |t| t.rps = 0.0,
            |t| t.rps = f64::NAN,
            |t| t.latency = Duration::ZERO,
            |t| t.servers = 0,
            |t| t.balancers = 0,
        ];
        for edit in edits {
            let mut none = observed;
            edit(&mut none);
            assert_eq!(none.situation(), None, "{none:?}");
        }
        assert!((calm.at_rate(1e9).rho - BUSIEST).abs() < 1e-12);
        assert!((calm.at_rate(500.0).rho - 0.25).abs() < 1e-12);
    }
}
