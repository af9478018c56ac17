//! Formulas for mean latencies, in units of the mean service time of a server of mean speed.
//!
//! With speed variation h half of the servers have speed 1 + h, and half have speed 1 − h. The coefficients are fits to
//! the simulator at N = 2 … 200, M = 1 … 1000, ρ = 0.3 … 0.95 and speeds 1:1 to 1:3.

use super::tables::{recovered, shortest_queue};

/// The number of servers in a group of a ledger (`ledger(group=40)`).
const GROUP: f64 = 40.0;

/// The h above which a ledger distinguishes servers by speed: one server is then faster by a factor of about 1.3.
const DISTINGUISHABLE: f64 = 0.13;

/// Parameters of [`Servers::local`], fitted to unequal servers.
const WAY: f64 = 1.0;
const CROWD: f64 = 0.75;
const CRITICAL: f64 = 1.5;
const UNEQUAL: f64 = 2.0;

/// The servers of a service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Servers {
    pub(super) count: f64,
    pub(super) rho: f64,
    /// h: the variation of the servers' speeds.
    pub(super) variation: f64,
}

impl Servers {
    /// Predicts the latency of `lor(choices=2)` with this number of balancers. It lies between that of one balancer
    /// (the supermarket model) and that of random choice (Theorem 1 of the paper), at the tabulated position.
    ///
    /// Random choice sends a slow server more than it can process when ρ > 1 − h. Then `lor` is stable only if a slow
    /// server shows a request of the balancer's own often enough: at its share q = (1 − h)/2ρ of the requests, it must
    /// be seen as empty with probability p = 4q − 1, which takes a queue of M·ln(1/p). So latency grows without limit
    /// in M: linearly, and at ρ = 1 − h with the square root. The lower of this latency and that of random choice is
    /// the prediction. For unequal servers, its error is up to about a third.
    pub(super) fn local(&self, balancers: f64) -> f64 {
        let Self {
            rho, variation: h, ..
        } = *self;
        let (one, way) = (self.shortest_of(2), recovered(balancers, rho));
        let equal = one + (1.0 / (1.0 - rho) - one).max(0.0) * way;
        let others = balancers - 1.0;
        if h == 0.0 || others == 0.0 {
            return equal * (1.0 + h * h * (0.95 + 2.7 * rho * rho));
        }
        let slow = 1.0 - h;
        let one = one * (1.0 + h * h * (0.95 + 2.7 * rho * rho));
        let random = if rho < slow {
            (1.0 / (slow - rho) + 1.0 / (1.0 + h - rho)) / 2.0
        } else {
            f64::INFINITY
        };
        let towards_random = one + (random - one).max(0.0) * way.powf(1.0 + WAY * h);
        // Below a quarter no count helps: two draws are both slow that often.
        let share = (slow / (2.0 * rho)).clamp(0.255, 0.5);
        let crowd = CROWD * share * -(4.0 * share - 1.0).min(1.0).ln() * others / slow;
        let nearly = (-(rho - slow).abs() / 0.12).exp();
        let critical = CRITICAL * h.sqrt() * rho * others.sqrt() * nearly;
        towards_random.min(equal * (1.0 + UNEQUAL * h * h) + crowd + critical)
    }

    /// Predicts the latency of `bounce(tries=3)`: that of the shortest of three queues, and the round trips of the
    /// previous attempts.
    pub(super) fn bounce(&self, round_trip: f64) -> f64 {
        let Self {
            rho, variation: h, ..
        } = *self;
        let unequal = 1.0 + h * h * (0.8 + 0.8 * rho * rho) * (2.0 / 3.0 + h);
        let bounces = rho + rho * rho + 0.5 * rho.powi(5);
        self.shortest_of(3) * unequal + bounces * round_trip
    }

    /// Predicts the latency of `ledger(group=40)`: that of the shortest of a group's queues, a round trip, and the time
    /// for which a server is idle until the ledger is informed and has sent it a request.
    ///
    /// If speeds can be distinguished, fast servers are used first. They are a loss system (Erlang) whose overflow goes
    /// to the slow servers.
    pub(super) fn ledger(&self, round_trip: f64) -> f64 {
        let Self {
            rho, variation: h, ..
        } = *self;
        let parts = (self.count / GROUP).round().max(1.0);
        let group = self.count / parts;
        let service = if h < DISTINGUISHABLE {
            1.0 / (1.0 - h * h)
        } else {
            let overflow = erlang_b(group / 2.0, rho * group / (1.0 + h));
            (1.0 - overflow) / (1.0 + h) + overflow / (1.0 - h)
        };
        let waiting = shortest_queue(group, rho) / (group * (1.0 - rho));
        let staleness = (0.15 / (1.0 - rho) - 0.2).clamp(0.0, 5.0) * (1.0 + 1.4 * round_trip);
        service + waiting + round_trip * (1.0 + staleness)
    }

    /// Predicts the latency of one balancer that compares d queues: Mitzenmacher's limit for many servers, Σ ρ^((d^i −
    /// d)/(d − 1)), with a correction for few servers. With two or three servers, and near saturation with any number,
    /// the small number of servers has more influence than d: the latency without waiting is less than that of the
    /// shortest of all queues.
    fn shortest_of(&self, d: i32) -> f64 {
        let Self { count, rho, .. } = *self;
        let base = f64::from(d);
        let exponent = |i: i32| (base.powi(i) - base) / (base - 1.0);
        // Beyond the twelfth the terms are below any double for every ρ that is not 1 to 10⁻³.
        let limit: f64 = (1..=12).map(|i| rho.powf(exponent(i))).sum();
        let crowd = rho * rho / ((1.0 - rho) * count);
        // Of two draws with replacement, both are the same server once in N times.
        let few = match d {
            2 => (0.55 + 0.5 / count) * crowd + 2.0 * rho * (1.0 - rho) / (count * count),
            _ => 0.55 * crowd,
        };
        let alone = 1.0 / (1.0 - rho);
        // One server is an M/M/1 queue, whatever d is.
        if count <= 1.0 {
            alone
        } else {
            (limit + few).max(self.shortest_of_all()).min(alone)
        }
    }

    /// Predicts the latency of one balancer that compares all queues.
    fn shortest_of_all(&self) -> f64 {
        1.0 + shortest_queue(self.count, self.rho) / (self.count * (1.0 - self.rho))
    }
}

/// Computes Erlang's loss formula by its recursion, for a number of servers that is rounded to a whole number.
fn erlang_b(servers: f64, offered: f64) -> f64 {
    let servers = servers.round().max(1.0) as u32;
    (1..=servers).fold(1.0, |blocked, c| {
        offered * blocked / (f64::from(c) + offered * blocked)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erlang_is_that_of_the_tables() {
        assert!((erlang_b(10.0, 5.0) - 0.018_385).abs() < 1e-5);
        assert!((erlang_b(1.0, 1.0) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn known_points() {
        let servers = Servers {
            count: 1e9,
            rho: 0.75,
            variation: 0.0,
        };
        // Ts = 20 ms: 35.17 ms with one balancer, 80 ms at random.
        assert!((servers.local(1.0) * 20.0 - 35.17).abs() < 0.01);
        assert!((servers.local(1e9) * 20.0 - 80.0).abs() < 0.5);
        let one = Servers {
            count: 1.0,
            ..servers
        };
        assert!((one.local(5.0) - 4.0).abs() < 1e-9 && (one.ledger(0.0) - 4.0).abs() < 0.02);
    }

    /// Small services have few servers. For one balancer the values are those of
    /// `maglor-lab model --balancers 1 --servers N`; with two or three servers, bounce examines all queues, like
    /// `lor(choices=all)`.
    #[test]
    fn two_servers_are_not_forty() {
        let servers = |count: f64, rho: f64| Servers {
            count,
            rho,
            variation: 0.0,
        };
        for (count, rho, latency) in [
            (2.0, 0.3, 1.242),
            (2.0, 0.5, 1.579),
            (2.0, 0.75, 2.711),
            (2.0, 0.9, 5.868),
            (2.0, 0.98, 26.0),
            (3.0, 0.9, 4.61),
        ] {
            let got = servers(count, rho).local(1.0);
            assert!((got / latency - 1.0).abs() < 0.03, "{count} {rho}: {got}");
        }
        // 40 servers next to saturation.
        let got = servers(40.0, 0.999).local(1.0);
        assert!((got / 30.25 - 1.0).abs() < 0.07, "{got}");
        // Without knowing the sizes of requests, nothing is better than one queue for all (M/M/c).
        for count in 1_u32..=60 {
            for percent in (5..100).step_by(5).chain([98, 99]) {
                let rho = f64::from(percent) / 100.0;
                let c = f64::from(count);
                let blocked = erlang_b(c, rho * c);
                let waits = blocked / (1.0 - rho * (1.0 - blocked));
                let least = 1.0 + waits / (c * (1.0 - rho));
                let one = servers(c, rho);
                for law in [
                    one.local(1.0),
                    one.local(20.0),
                    one.bounce(0.0),
                    one.ledger(0.0),
                ] {
                    assert!(law > 0.97 * least, "{count} {rho}: {law} of {least}");
                }
            }
        }
    }
}
