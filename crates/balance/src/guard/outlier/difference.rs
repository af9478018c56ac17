//! Detects endpoints whose responses differ from their peers': errors of any kind, including those of clients (4xx).
//!
//! A replica with an old version or a wrong configuration responds with 404 or 403 where the others respond
//! successfully. By their status, these responses are no failures. They can be distinguished from mistakes of a client,
//! whose requests go to all endpoints alike and raise all error rates alike, however many it sends.
//!
//! Two conditions, both relative to the other endpoints together:
//!
//! * It responds with errors to at least `status_difference_threshold` percent of those requests to which its peers
//!   respond successfully: `(own − peers) / (1 − peers)`, with rates of errors. So 100 % are detected where the peers
//!   have 60 %.
//! * Chance does not explain it. If all endpoints were alike, an endpoint's errors would be a random draw from all
//!   requests; the probability of so many is bounded by e⁻ᴱ (Hoeffding, 1963, §6), and E has to be above [`EVIDENCE`].
//!   Six consecutive errors are sufficient if forty peers have none; more are needed if there are few peers or the
//!   peers have errors, too. So no volume has to be configured.

use super::{Finding, OutlierParams};

/// The evidence from which on an endpoint is considered different. Two comparisons in 10⁹ reach it by chance: one in
/// years for a hundred endpoints that are compared every 10 s.
const EVIDENCE: f64 = 20.0;

/// The responses of one endpoint within a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answers {
    pub(super) all: u32,
    /// The number of error responses among them.
    pub(super) errors: u32,
}

/// Returns the endpoints that differ, in their order, each with the finding about it.
pub(super) fn differing(answers: &[Answers], params: &OutlierParams) -> Vec<(usize, Finding)> {
    let threshold = f64::from(params.status_difference_threshold) / 100.0;
    if threshold <= 0.0 {
        return Vec::new();
    }
    let sum = |count: fn(&Answers) -> u32| answers.iter().map(|own| u64::from(count(own))).sum();
    let (all, errors): (u64, u64) = (sum(|own| own.all), sum(|own| own.errors));
    let deviation = |(at, own): (usize, &Answers)| {
        let (n, e) = (u64::from(own.all), u64::from(own.errors));
        let (others, theirs) = (all - n, errors - e);
        if n == 0 || others == 0 || theirs == others {
            return None;
        }
        let (rate, peers) = (ratio(e, n), ratio(theirs, others));
        let excess = (rate - peers) / (1.0 - peers);
        if excess < threshold - 1e-9 || evidence((e, n), (errors, all)) < EVIDENCE {
            return None;
        }
        let finding = Finding::StatusDifference {
            percent: 100.0 * rate,
            peers: 100.0 * peers,
        };
        Some((at, finding))
    };
    answers.iter().enumerate().filter_map(deviation).collect()
}

fn ratio(part: u64, of: u64) -> f64 {
    part as f64 / of as f64
}

/// Returns, as −ln, a bound for the probability that one of the endpoints has at least `own` errors in `n` responses,
/// given `errors` in `all` responses. There are two bounds for the same probability: from draws of the endpoint's
/// responses from all responses, and of its errors from all errors.
fn evidence((own, n): (u64, u64), (errors, all): (u64, u64)) -> f64 {
    let answers = n as f64 * divergence(ratio(own, n), ratio(errors, all));
    let errors = errors as f64 * divergence(ratio(own, errors.max(1)), ratio(n, all));
    answers.max(errors)
}

/// Returns the Kullback–Leibler divergence of two probabilities.
fn divergence(p: f64, q: f64) -> f64 {
    let term = |p: f64, q: f64| if p > 0.0 { p * (p / q).ln() } else { 0.0 };
    term(p, q) + term(1.0 - p, 1.0 - q)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(answers: &[(u32, u32)]) -> Vec<usize> {
        let answers: Vec<Answers> = answers
            .iter()
            .map(|&(errors, all)| Answers { all, errors })
            .collect();
        let found = differing(&answers, &OutlierParams::default());
        found.into_iter().map(|(at, _)| at).collect()
    }

    fn among(peers: usize, peer: (u32, u32), own: (u32, u32)) -> bool {
        let mut answers = vec![peer; peers];
        answers.push(own);
        let found = found(&answers);
        assert!(found.iter().all(|at| *at == peers), "no peer: {found:?}");
        !found.is_empty()
    }

    #[test]
    fn a_replica_that_its_peers_do_not_resemble_is_found_soon() {
        assert!(among(39, (0, 8), (8, 8)), "a few of its own are enough");
        assert!(!among(39, (0, 8), (4, 4)), "but not every few");
        assert!(!among(39, (0, 8), (4, 8)), "all of a client's by chance");
        assert!(
            among(1, (0, 30), (30, 30)),
            "two replicas: the one with errors"
        );
        assert!(!among(1, (0, 5), (5, 5)));
        assert!(
            among(39, (60, 100), (100, 100)),
            "where errors are usual, too"
        );
        assert!(!among(39, (80, 100), (85, 100)));
    }

    #[test]
    fn small_differences_are_no_reason_however_certain() {
        assert!(!among(9, (0, 1_000_000), (200_000, 1_000_000)));
        assert!(among(9, (0, 1_000_000), (300_000, 1_000_000)));
        assert!(!among(9, (500_000, 1_000_000), (600_000, 1_000_000)));
        assert!(among(9, (500_000, 1_000_000), (650_000, 1_000_000)));
    }

    #[test]
    fn those_who_are_alike_are_not_found() {
        for rate in 0..=10 {
            assert!(found(&[(rate * 10, 100); 5]).is_empty());
        }
        assert!(found(&[(7, 7)]).is_empty(), "alone");
        assert!(found(&[]).is_empty());
        let idle = found(&[(0, 0), (9, 9)]);
        assert!(idle.is_empty(), "nothing to compare with");
    }

    #[test]
    fn half_of_a_set_is_found_as_well_as_one_of_it() {
        let mut answers = vec![(0, 50); 20];
        answers.extend([(50, 50); 20]);
        assert_eq!(found(&answers), (20..40).collect::<Vec<_>>());
    }
}
