//! Records the latencies of one run: batch means to find the end of the warm-up, and histograms of
//! sections so that it can be cut off.
//! The cut is White's marginal standard error rule on batch means (MSER-5; White, Cobb, Spratt, "A
//! comparison of five steady-state truncation heuristics for simulation", 2000): the number of
//! leading batches without which the remaining mean has the least standard error, at most half of
//! them. The histogram's buckets are less than 0.8 % wide; quantiles are interpolated within.

/// The number of batches of a run, if it has enough requests.
const BATCHES: u64 = 1000;

/// The smallest batch: the 5 of MSER-5.
const LEAST_BATCH: u64 = 5;

/// The number of batches in a section; the cut is rounded up to whole sections.
const SECTION: usize = 25;

/// The logarithm of the number of buckets per doubling.
const PRECISION: u32 = 7;

/// The records of one run.
#[derive(Clone, Debug)]
pub(super) struct Recorder {
    batch_size: u64,
    batch: u64,
    sum: f64,
    means: Vec<f64>,
    sections: Vec<Histogram>,
    good: Vec<Good>,
}

/// The good responses of a section.
#[derive(Clone, Copy, Debug, Default)]
struct Good {
    count: u64,
    sum: f64,
}

/// The statistics of a run without its warm-up.
#[derive(Clone, Debug)]
pub(super) struct Steady {
    /// The mean latency in nanoseconds.
    pub(super) mean: f64,
    /// The mean latency of good responses only; 0 if there are none.
    pub(super) good_mean: f64,
    pub(super) histogram: Histogram,
    /// The number of requests of the warm-up.
    pub(super) discarded: u64,
    /// The mean of the last third over that of the third before it: about 1 in a steady state.
    pub(super) drift: f64,
}

impl Recorder {
    pub(super) fn new(requests: u64) -> Self {
        Self {
            batch_size: (requests / BATCHES).max(LEAST_BATCH),
            batch: 0,
            sum: 0.0,
            means: Vec::new(),
            sections: vec![Histogram::default()],
            good: vec![Good::default()],
        }
    }

    #[inline]
    pub(super) fn record(&mut self, latency: u64, failed: bool) {
        self.sum += latency as f64;
        self.batch += 1;
        if let Some(section) = self.sections.last_mut() {
            section.add(latency);
        }
        if let Some(good) = self.good.last_mut().filter(|_| !failed) {
            good.count += 1;
            good.sum += latency as f64;
        }
        if self.batch == self.batch_size {
            self.end_batch();
        }
    }

    #[cold]
    fn end_batch(&mut self) {
        self.means.push(self.sum / self.batch as f64);
        (self.sum, self.batch) = (0.0, 0);
        if self.means.len().is_multiple_of(SECTION) {
            self.sections.push(Histogram::default());
            self.good.push(Good::default());
        }
    }

    /// Cuts the warm-up off. Batches after the last whole section are left out, too.
    pub(super) fn finish(self) -> Steady {
        let whole = self.means.len() / SECTION * SECTION;
        // A run too short for a section is used as it is.
        let (means, whole) = if whole == 0 {
            (&self.means[..], self.means.len())
        } else {
            (&self.means[..whole], whole)
        };
        let cut = truncation(means)
            .next_multiple_of(SECTION)
            .min(whole / 2 / SECTION * SECTION);
        let kept = &means[cut..];
        let mut histogram = Histogram::default();
        let sections = if whole < SECTION { 1 } else { whole / SECTION };
        for section in &self.sections[cut / SECTION..sections] {
            histogram.merge(section);
        }
        let good = &self.good[cut / SECTION..sections];
        let good_count: u64 = good.iter().map(|good| good.count).sum();
        let good_sum: f64 = good.iter().map(|good| good.sum).sum();
        Steady {
            mean: average(kept),
            good_mean: good_sum / good_count.max(1) as f64,
            histogram,
            discarded: cut as u64 * self.batch_size,
            drift: drift(kept),
        }
    }
}

fn average(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn drift(kept: &[f64]) -> f64 {
    let third = kept.len() / 3;
    if third == 0 {
        return 1.0;
    }
    let (before, last) = (kept.len() - 2 * third, kept.len() - third);
    average(&kept[last..]) / average(&kept[before..last])
}

/// Returns the number of leading batch means to leave out.
fn truncation(means: &[f64]) -> usize {
    let (mut sum, mut squares) = (0.0, 0.0);
    let mut best = (f64::INFINITY, 0);
    // From the end, so that each step adds one batch.
    for (at, &mean) in means.iter().enumerate().rev() {
        sum += mean;
        squares += mean * mean;
        if at > means.len() / 2 {
            continue;
        }
        let n = (means.len() - at) as f64;
        let error = (squares - sum * sum / n) / (n * n);
        if error <= best.0 {
            best = (error, at);
        }
    }
    best.1
}

/// Counts of latencies by size, with 2^7 buckets per doubling.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    #[inline]
    pub(crate) fn add(&mut self, nanos: u64) {
        let at = bucket(nanos);
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
        self.total += 1;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum += count;
        }
        self.total += other.total;
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the latency in nanoseconds that a share of `q` is at or below.
    pub(crate) fn quantile(&self, q: f64) -> f64 {
        let mut left = q * self.total as f64;
        for (at, &count) in self.counts.iter().enumerate() {
            let count = count as f64;
            if count > 0.0 && left <= count {
                let (low, high) = (edge(at), edge(at + 1));
                return low + (high - low) * (left / count);
            }
            left -= count;
        }
        0.0
    }
}

/// Returns the bucket of a latency: exact below 2^7, then by the leading 8 bits.
#[inline]
fn bucket(nanos: u64) -> usize {
    let shift = (64 - PRECISION - 1).saturating_sub(nanos.leading_zeros());
    ((shift as usize) << PRECISION) + (nanos >> shift) as usize
}

/// Returns the lower end of a bucket.
fn edge(at: usize) -> f64 {
    let width = 1_usize << PRECISION;
    if at < 2 * width {
        return at as f64;
    }
    let shift = (at >> PRECISION) - 1;
    ((at - (shift << PRECISION)) as f64) * (shift as f64).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use maglor_balance::Rng;

    #[test]
    fn buckets_are_narrow_and_their_edges_fit() {
        for nanos in [
            0,
            1,
            127,
            128,
            255,
            256,
            257,
            1000,
            20_000_000,
            1 << 40,
            (1 << 41) - 1,
        ] {
            let at = bucket(nanos);
            let (low, high) = (edge(at), edge(at + 1));
            assert!(
                low <= nanos as f64 && (nanos as f64) < high,
                "{nanos}: {low}-{high}"
            );
            assert!(
                high - low <= 1.0_f64.max(low / 127.0),
                "{nanos}: {low}-{high}"
            );
        }
    }

    #[test]
    fn quantiles_of_exponential_latencies() {
        let mut rng = Rng::seed(3);
        let mut histogram = Histogram::default();
        for _ in 0..1_000_000 {
            histogram.add((-(1.0 - rng.unit()).ln() * 1e7) as u64);
        }
        for q in [0.5, 0.99, 0.999] {
            let exact = -(1.0_f64 - q).ln() * 1e7;
            assert!((histogram.quantile(q) / exact - 1.0).abs() < 0.01, "{q}");
        }
    }

    #[test]
    fn a_warm_up_is_found_and_steady_data_are_kept() {
        let mut rng = Rng::seed(4);
        let mut noisy = |mean: f64| ((0.5 + rng.unit()) * mean) as u64;
        let (mut warm, mut steady) = (Recorder::new(100_000), Recorder::new(100_000));
        for i in 0..100_000 {
            let ramp = if i < 10_000 { 0.2 } else { 1.0 };
            warm.record(noisy(1e6 * ramp), false);
            steady.record(noisy(1e6), false);
        }
        let (warm, steady) = (warm.finish(), steady.finish());
        assert!(
            (10_000..=12_500).contains(&warm.discarded),
            "{}",
            warm.discarded
        );
        assert!((warm.mean / 1e6 - 1.0).abs() < 0.01, "{}", warm.mean);
        assert_eq!(warm.histogram.total(), 100_000 - warm.discarded);
        assert!(steady.discarded < 50_000 && (steady.drift - 1.0).abs() < 0.02);
    }

    #[test]
    fn short_runs_are_taken_as_they_are() {
        let mut recorder = Recorder::new(100);
        (0..100).for_each(|i| recorder.record(if i % 2 == 0 { 7 } else { 3 }, i % 2 == 1));
        let steady = recorder.finish();
        assert_eq!((steady.mean, steady.discarded), (5.0, 0));
        assert_eq!(steady.good_mean, 7.0);
        assert_eq!(steady.histogram.total(), 100);
    }
}
