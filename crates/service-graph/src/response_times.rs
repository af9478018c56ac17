//! The distribution of response times: counts by range, merged from many proxies.
//!
//! Proxies count response times in ranges whose bounds are a factor of 2 to 2.5 apart. Counts of several proxies can be
//! added, but quantiles cannot; so a quantile is computed last. The range that contains it is certain. Its position in
//! the range follows from the mean, which is known exactly: of all distributions with these counts and this mean, the
//! one with maximal entropy is taken. The density of that distribution falls, or rises, as exp(−θ·t) in every range,
//! with the same θ for all ranges; θ = 0 corresponds to Prometheus's `histogram_quantile`.
//!
//! For times that are all similar, this distribution is much too wide. So a [`Spread`], if known, bounds the quantiles
//! above the median (the inequality of Vysochanskij and Petunin, one-sided).

use crate::spread::{Spread, normal};

/// The maximum number of ranges, which exceeds that of any proxy.
const MOST: usize = 64;
/// The θ beyond which all calls of a range are at one of its ends.
const STEEPEST: f64 = 500.0;
/// The number of bisections for θ, which is more than the number of digits of a quotient of two numbers.
const HALVINGS: u32 = 60;

/// Counts or rates of response times, by range.
///
/// A range includes its upper bound, and begins above the bound of the previous range.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// The upper bounds in milliseconds, in ascending order and infinite if there is none, each with its count.
    ranges: Vec<(f64, f64)>,
}

impl Times {
    /// Creates the counts from ranges: the upper bound in milliseconds (`None` = no bound) and the count. Negative
    /// counts and NaN are skipped; an empty range only marks where the next one begins.
    #[must_use]
    pub fn new(ranges: impl IntoIterator<Item = (Option<f64>, f64)>) -> Self {
        let mut times = Self::default();
        for (bound, count) in ranges {
            let bound = bound.unwrap_or(f64::INFINITY);
            if bound > 0.0 && count.is_finite() && count >= 0.0 {
                times.put(bound, count);
            }
        }
        times
    }

    /// Returns the ranges in the form of [`Times::new`].
    pub fn ranges(&self) -> impl Iterator<Item = (Option<f64>, f64)> {
        let ranges = self.ranges.iter();
        ranges.map(|(bound, count)| (bound.is_finite().then_some(*bound), *count))
    }

    /// Adds other counts, multiplied by `factor`.
    pub fn add(&mut self, others: &Self, factor: f64) {
        for (bound, count) in &others.ranges {
            self.put(*bound, count * factor);
        }
    }

    /// Returns the difference to the counts `before`.
    #[must_use]
    pub(crate) fn since(&self, before: &Self) -> Self {
        let mut since = self.clone();
        for (bound, count) in &mut since.ranges {
            let same = before.ranges.iter().find(|(other, _)| other == bound);
            *count = (*count - same.map_or(0.0, |(_, count)| *count)).max(0.0);
        }
        since
    }

    /// Returns the response time in milliseconds that a share of the calls, 0–1, does not exceed, given their mean and,
    /// as far as it is known, their spread; `None` without calls.
    ///
    /// A mean that is inconsistent with the counts (which are merged from reports of different times) is moved into the
    /// possible range. Times above the last bound count as that bound.
    #[must_use]
    pub fn quantile(&self, share: f64, mean: f64, spread: &Spread) -> Option<f64> {
        let all: f64 = self.ranges.iter().map(|(_, count)| count).sum();
        if !(all > 0.0 && all.is_finite()) {
            return None;
        }
        let theta = self.theta(all, mean);
        let rank = share.clamp(0.0, 1.0) * all;
        let mut below = 0.0;
        for (lower, upper, count) in self.bounded() {
            if count > 0.0 && below + count >= rank {
                let part = ((rank - below) / count).clamp(0.0, 1.0);
                let width = upper - lower;
                let found = lower + width * position(part, theta * width);
                return Some(found.min(self.most(share, mean, spread)).max(lower));
            }
            below += count;
        }
        Some(self.last_bound())
    }

    /// Returns the upper limit of a quantile that follows from the spread; infinite if the spread is unknown.
    ///
    /// The limit is not lower than the quantile of the widest log-normal distribution with this mean for which, of this
    /// number of calls, none would be expected outside the nonempty ranges. For the spread may exceed what the means of
    /// intervals show, but not fall below what the ranges show.
    fn most(&self, share: f64, mean: f64, spread: &Spread) -> f64 {
        let deviation = spread.deviation_ms().filter(|_| share > 0.5 && mean > 0.0);
        let taken = self.bounded().filter(|(_, _, count)| *count > 0.0);
        let ends = taken.fold(None, |ends: Option<(f64, f64)>, (lower, upper, _)| {
            Some((ends.map_or(lower, |one| one.0), upper))
        });
        let (Some(deviation), Some((lower, upper))) = (deviation, ends) else {
            return f64::INFINITY;
        };
        let farthest = mean + deviation * deviations(share);
        let room = (mean / lower).min(upper / mean).max(1.0);
        let outside = 0.5 / spread.calls.max(1.0);
        let widest = mean * room.powf(normal(1.0 - share) / normal(outside));
        farthest.max(widest)
    }

    /// Returns the ranges with a bound: lower bound, upper bound, and count.
    fn bounded(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        let bounded = self.ranges.iter().filter(|(bound, _)| bound.is_finite());
        bounded.scan(0.0, |lower, (upper, count)| {
            let from = std::mem::replace(lower, *upper);
            Some((from, *upper, *count))
        })
    }

    fn last_bound(&self) -> f64 {
        self.bounded().last().map_or(0.0, |(_, upper, _)| upper)
    }

    /// Returns θ, the slope of the density per millisecond, that leads to the given mean.
    fn theta(&self, all: f64, mean: f64) -> f64 {
        let counted: f64 = self.bounded().map(|(_, _, count)| count).sum();
        // Values above all bounds have an unknown mean.
        if counted < all || !(mean.is_finite() && mean > 0.0) {
            return 0.0;
        }
        let mean_with = |theta: f64| {
            let parts = self.bounded().map(|(lower, upper, count)| {
                let width = upper - lower;
                count * (lower + width * centre(theta * width))
            });
            parts.sum::<f64>() / all
        };
        let widths = self.bounded().filter(|(_, _, count)| *count > 0.0);
        let narrowest = widths.map(|(lower, upper, _)| upper - lower);
        let steepest = STEEPEST / narrowest.fold(f64::INFINITY, f64::min);
        // The mean falls as θ grows.
        let (mut low, mut high) = (-steepest, steepest);
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            match mean_with(middle) > mean {
                true => low = middle,
                false => high = middle,
            }
        }
        f64::midpoint(low, high)
    }

    fn put(&mut self, bound: f64, count: f64) {
        let at = self.ranges.partition_point(|(known, _)| *known < bound);
        let full = self.ranges.len() >= MOST;
        match self.ranges.get_mut(at) {
            Some((known, sum)) if *known == bound => *sum += count,
            // Too many different ranges: added to the next wider one instead of being dropped.
            Some((_, sum)) if full => *sum += count,
            None if full => {}
            _ => self.ranges.insert(at, (bound, count)),
        }
    }
}

/// Returns the maximum number of standard deviations between the mean and a quantile above the median: by Vysochanskij
/// and Petunin for unimodal distributions or, where that inequality provides no limit, by Cantelli for any distribution.
fn deviations(share: f64) -> f64 {
    let above = (1.0 - share).max(f64::MIN_POSITIVE);
    let squared = 4.0 / (9.0 * above) - 1.0;
    match squared >= 5.0 / 3.0 {
        true => squared.sqrt(),
        false => (share / above).sqrt(),
    }
}

/// Returns the mean of a distribution with density ∝ exp(−z·u), 0 ≤ u ≤ 1.
fn centre(z: f64) -> f64 {
    match z.abs() {
        // The first terms of its series: the difference below would be of equal numbers.
        small if small < 1e-3 => 0.5 - z / 12.0,
        large if large > STEEPEST => {
            let near = 1.0 / large;
            if z > 0.0 { near } else { 1.0 - near }
        }
        _ => 1.0 / z - 1.0 / z.exp_m1(),
    }
}

/// Returns the quantile of a distribution with density ∝ exp(−z·u), 0 ≤ u ≤ 1.
fn position(part: f64, z: f64) -> f64 {
    let z = z.clamp(-STEEPEST, STEEPEST);
    if z.abs() < 1e-6 {
        return part;
    }
    if z < 0.0 {
        return 1.0 - position(1.0 - part, -z);
    }
    let position = -(part * (-z).exp_m1()).ln_1p() / z;
    position.clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use maglor_balance::Rng;

    use super::*;

    /// The bounds of a proxy's ranges, in milliseconds.
    const BOUNDS: [f64; 18] = [
        0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 1e4,
        3e4, 6e4,
    ];

    /// Returns counts as a proxy reports them: nonempty ranges, and the points where these begin.
    fn reported(values: &[f64]) -> Times {
        let count = |lower: f64, upper: f64| {
            let inside = values.iter().filter(|one| (lower..=upper).contains(*one));
            inside.filter(|one| **one != lower).count() as f64
        };
        let mut lower = 0.0;
        let mut ranges: Vec<(Option<f64>, f64)> = Vec::new();
        for bound in BOUNDS {
            ranges.push((Some(bound), count(lower, bound)));
            lower = bound;
        }
        ranges.push((None, count(lower, f64::INFINITY)));
        let is_known =
            |at: usize| ranges[at].1 > 0.0 || ranges.get(at + 1).is_some_and(|next| next.1 > 0.0);
        Times::new(
            (0..ranges.len())
                .filter(|at| is_known(*at))
                .map(|at| ranges[at]),
        )
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    /// Returns the relative errors of the median and of the 90th and 99th percentile of values that several proxies
    /// have counted. Each result is in its range.
    fn errors(values: &[f64]) -> [f64; 3] {
        let mut together = Times::default();
        for part in values.chunks(values.len() / 5) {
            together.add(&reported(part), 1.0);
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let of = |share: f64| {
            let exact = sorted[(share * sorted.len() as f64) as usize - 1];
            let found = together
                .quantile(share, mean(values), &Spread::default())
                .unwrap();
            let upper = BOUNDS.iter().position(|bound| *bound >= exact).unwrap();
            let lower = upper.checked_sub(1).map_or(0.0, |at| BOUNDS[at]);
            let range = lower - 1e-9..=BOUNDS[upper] + 1e-9;
            assert!(range.contains(&found), "{share}: {found} for {exact}");
            (found / exact - 1.0).abs()
        };
        [0.5, 0.9, 0.99].map(of)
    }

    #[test]
    fn quantiles_are_near_the_true_ones_and_in_their_range() {
        let mut rng = Rng::seed(7);
        println!("seed 7");
        for scale in [0.3, 4.0, 60.0, 900.0] {
            let mut draw = |of: &dyn Fn(f64, f64) -> f64| -> Vec<f64> {
                (0..5000).map(|_| of(rng.unit(), rng.unit())).collect()
            };
            let exponential = draw(&|u, _| -scale * (1.0 - u).ln());
            let uniform = draw(&|u, _| scale * (0.5 + u));
            let lognormal = draw(&|u, v| {
                let normal = (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos();
                scale * (0.6 * normal).exp()
            });
            let found = [exponential, lognormal, uniform].map(|values| errors(&values));
            println!("{scale} ms: exponential, log-normal, uniform: {found:.3?}");
            let [smooth @ .., abrupt] = found;
            assert!(smooth.as_flattened().iter().all(|error| *error < 0.1));
            // Where times end abruptly nothing says so but the range.
            assert!(abrupt[0] < 0.2);
        }
    }

    #[test]
    fn times_that_are_all_the_same_are_found_by_their_mean() {
        for value in [0.7, 3.0, 12.0, 60.0, 120.0, 240.0, 1100.0] {
            let values = vec![value; 500];
            let times = reported(&values);
            let median = times.quantile(0.5, value, &Spread::default()).unwrap();
            assert!((median / value - 1.0).abs() < 0.12, "{median} for {value}");
            // Without the mean it is somewhere in the range.
            let blind = times.quantile(0.5, 0.0, &Spread::default()).unwrap();
            assert!((blind / value - 1.0).abs() >= (median / value - 1.0).abs());
        }
    }

    #[test]
    fn it_does_not_matter_who_has_counted() {
        let values: Vec<f64> = (1..=1000).map(|value| f64::from(value) / 3.0).collect();
        let whole = reported(&values);
        let mut parts = Times::default();
        for part in values.chunks(77) {
            parts.add(&reported(part), 2.0);
        }
        let mut last = 0.0;
        for share in [0.0, 0.01, 0.5, 0.99, 1.0] {
            let of = |times: &Times| {
                times
                    .quantile(share, mean(&values), &Spread::default())
                    .unwrap()
            };
            assert!((of(&whole) - of(&parts)).abs() < 1e-6, "{share}");
            assert!(of(&whole) >= last, "{share}");
            last = of(&whole);
        }
        assert_eq!(Times::new(whole.ranges()), whole);
        assert!(
            whole
                .since(&whole)
                .quantile(0.5, 1.0, &Spread::default())
                .is_none()
        );
    }

    #[test]
    fn a_mean_that_cannot_be_is_moved_to_where_it_can() {
        let times = Times::new([(Some(10.0), 0.0), (Some(25.0), 4.0)]);
        for (mean, expected) in [(1.0, 10.0), (1e9, 25.0), (17.5, 17.5), (f64::NAN, 17.5)] {
            let found = times.quantile(0.5, mean, &Spread::default()).unwrap();
            assert!((found - expected).abs() < 0.1, "{mean}: {found}");
        }
    }

    #[test]
    fn odd_ranges_do_no_harm() {
        assert_eq!(
            Times::default().quantile(0.5, 1.0, &Spread::default()),
            None
        );
        let odd = [
            (Some(f64::NAN), 1.0),
            (Some(-1.0), 1.0),
            (Some(1.0), f64::NAN),
            (Some(1.0), -1.0),
            (None, f64::INFINITY),
        ];
        assert_eq!(Times::new(odd), Times::default());
        // What is above all bounds is at the last one.
        let above = Times::new([(Some(5.0), 0.0), (None, 3.0)]);
        assert_eq!(above.quantile(0.5, 90_000.0, &Spread::default()), Some(5.0));
        let many = Times::new((1..1000).map(|bound| (Some(f64::from(bound)), 1.0)));
        assert_eq!(many.ranges.len(), MOST);
        assert!(
            many.quantile(1.0, 30.0, &Spread::default())
                .is_some_and(f64::is_finite)
        );
    }

    /// Returns a proxy's reports about calls in this number of intervals.
    fn measured(values: &[f64], intervals: usize) -> (Times, Spread) {
        let mut spread = Spread::default();
        for part in values.chunks(values.len() / intervals) {
            spread.add(&Spread::of(part.len() as u64, part.iter().sum()));
        }
        (reported(values), spread)
    }

    /// Returns the exact 99th percentile, the one computed with the spread, and the one computed without it.
    fn tails(values: &[f64]) -> [f64; 3] {
        let (times, spread) = measured(values, 12);
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let found = |spread| times.quantile(0.99, mean(values), spread).unwrap();
        [
            sorted[sorted.len() * 99 / 100 - 1],
            found(&spread),
            found(&Spread::default()),
        ]
    }

    #[test]
    fn tails_of_times_that_are_all_about_the_same_are_near_them() {
        let mut rng = Rng::seed(11);
        println!("seed 11");
        let (mut worst, mut blind) = (0.0f64, 0.0f64);
        for value in [
            0.7, 1.4, 3.0, 12.0, 35.0, 60.0, 99.0, 101.0, 120.0, 140.0, 175.0, 240.0, 1100.0,
        ] {
            for jitter in [0.0, 0.01, 0.03, 0.1] {
                let values: Vec<f64> = (0..2400)
                    .map(|_| value * (1.0 + jitter * (2.0 * rng.unit() - 1.0)))
                    .collect();
                let [exact, found, without] = tails(&values);
                worst = worst.max(found / exact);
                blind = blind.max(without / exact);
                assert!(
                    found > 0.85 * exact,
                    "{value} ± {jitter}: {found} for {exact}"
                );
                assert!(found <= without, "{value} ± {jitter}");
            }
        }
        println!("up to {worst:.2} times as much, {blind:.2} without what is known of the spread");
        assert!(worst < 1.65 && blind > 1.6);
    }

    /// If times are spread widely, the ranges show this, and the quantiles are not reduced.
    #[test]
    fn what_is_known_of_the_spread_cuts_no_tail() {
        println!("seeds 0 to 19");
        for seed in 0..20 {
            let mut rng = Rng::seed(seed);
            let mut draw = |of: &dyn Fn(f64, f64) -> f64| -> Vec<f64> {
                (0..2400).map(|_| of(rng.unit(), rng.unit())).collect()
            };
            let exponential = draw(&|u, _| -40.0 * (1.0 - u).ln());
            let behind_a_network = draw(&|u, _| 100.0 - 20.0 * (1.0 - u).ln());
            let in_one_range = draw(&|u, _| 110.0 + 130.0 * u);
            let now_and_then = draw(&|u, v| if v < 0.03 { 200.0 + u } else { 104.0 + u });
            for values in [exponential, behind_a_network, in_one_range, now_and_then] {
                let [exact, found, without] = tails(&values);
                assert!(
                    found > 0.9 * without.min(exact),
                    "seed {seed}: {found} for {exact}, {without}"
                );
            }
            // A balancer that takes turns: the means of intervals are all the same.
            let turns = (0..2400).map(|at| if at % 2 == 0 { 110.0 } else { 240.0 });
            let [exact, found, _] = tails(&turns.collect::<Vec<f64>>());
            assert!(found > 0.85 * exact, "{found} for {exact}");
        }
    }
}
