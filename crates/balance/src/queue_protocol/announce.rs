//! Unsolicited messages of an inbound proxy after a request has ended.

use crate::Rng;

/// The recipients of a server's message that a request has ended. They depend on the policy of the server's clients;
/// see [`PolicySpec::announce`](crate::PolicySpec::announce).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Announce {
    /// The server's load is sent to each balancer with probability min(overhead / balancers, 1).
    Balancers {
        /// The number of messages per request, on average.
        overhead: f64,
    },
    /// A [`Report`](super::Report) is sent to the ledger of the server's group.
    Ledger,
    /// No message is sent.
    Never,
}

impl Announce {
    /// Chooses which of `balancers` balancers are notified this time, each independently of the others, and calls
    /// `notify` with their positions in increasing order.
    pub fn choose_balancers(self, balancers: u32, rng: &mut Rng, mut notify: impl FnMut(u32)) {
        let Self::Balancers { overhead } = self else {
            return;
        };
        let chance = overhead / f64::from(balancers.max(1));
        if chance >= 1.0 {
            (0..balancers).for_each(notify);
            return;
        }
        // Gaps between successes of independent trials are geometric, which takes one draw for each
        // balancer that is notified instead of one for each balancer.
        let scale = (-chance).ln_1p();
        let mut at = 0.0;
        loop {
            at += ((1.0 - rng.unit()).ln() / scale).floor();
            if at >= f64::from(balancers) {
                return;
            }
            notify(at as u32);
            at += 1.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_balancer_is_notified_with_the_same_chance() {
        let mut rng = Rng::seed(3);
        let announce = Announce::Balancers { overhead: 2.5 };
        let mut notified = [0_u32; 10];
        for _ in 0..40_000 {
            announce.choose_balancers(10, &mut rng, |b| notified[b as usize] += 1);
        }
        // Binomial with n = 40 000, p = 0.25: standard deviation 87.
        assert!(
            notified.iter().all(|t| t.abs_diff(10_000) < 450),
            "{notified:?}"
        );
    }

    #[test]
    fn all_are_notified_when_the_overhead_allows() {
        let mut rng = Rng::seed(4);
        let mut notified = Vec::new();
        Announce::Balancers { overhead: 10.0 }.choose_balancers(4, &mut rng, |b| notified.push(b));
        assert_eq!(notified, [0, 1, 2, 3]);
        Announce::Ledger.choose_balancers(4, &mut rng, |_| panic!("a ledger is no balancer"));
    }
}
