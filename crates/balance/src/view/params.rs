//! The parameters of a view: panic threshold, overprovisioning, localities, slow start.
//!
//! Meanings and defaults are Envoy's (`common_lb_config`, `Cluster.SlowStartConfig`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Time;

/// Parameters of [`View::build`](crate::View::build).
///
/// # Defaults
///
/// * `panic_threshold_percent`: 50
/// * `overprovisioning_factor`: 1.4
/// * `locality_weights`: none
/// * `slow_start`: none
#[derive(Clone, Debug, PartialEq)]
pub struct ViewParams {
    /// The panic threshold: if less than this percentage of a level's endpoints is available, and the levels together
    /// cannot take all traffic, the level uses all its endpoints. 0 disables panic; values above 100 mean 100.
    pub panic_threshold_percent: u8,
    /// The overprovisioning factor: a level takes all traffic while `factor × available / total ≥ 1`; otherwise the
    /// rest goes to the next level. Values below 1, and NaN, mean 1.
    pub overprovisioning_factor: f64,
    /// The shares of a level's traffic by locality; `None` = localities are ignored.
    pub locality_weights: Option<LocalityWeights>,
    /// The ramp of endpoints that have just joined; `None` = no ramp.
    pub slow_start: Option<SlowStart>,
}

impl Default for ViewParams {
    fn default() -> Self {
        Self {
            panic_threshold_percent: 50,
            overprovisioning_factor: 1.4,
            locality_weights: None,
            slow_start: None,
        }
    }
}

/// The location of an endpoint.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Locality {
    /// The region, such as `eu-west`. Like the other parts, it is empty if unknown.
    pub region: Arc<str>,
    /// The zone in the region.
    pub zone: Arc<str>,
    /// The part of the zone; in an edge cluster, this is the node.
    pub sub_zone: Arc<str>,
}

impl Locality {
    /// Creates a locality from its three parts.
    #[must_use]
    pub fn new(
        region: impl Into<Arc<str>>,
        zone: impl Into<Arc<str>>,
        sub_zone: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            region: region.into(),
            zone: zone.into(),
            sub_zone: sub_zone.into(),
        }
    }
}

/// Formats the locality as `region/zone/sub_zone`.
impl fmt::Display for Locality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.region, self.zone, self.sub_zone)
    }
}

/// The relative traffic of localities within each priority level.
///
/// A locality that is not listed, and an endpoint without a locality, has weight 0: it is used only if no listed
/// locality is available. A locality that has lost endpoints keeps its weight while
/// `overprovisioning_factor × available / total ≥ 1`; below that, the weight is reduced in proportion.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LocalityWeights(BTreeMap<Locality, u32>);

impl LocalityWeights {
    /// Returns the weight of a locality; 0 if it is absent or not listed.
    #[must_use]
    pub fn weight(&self, locality: Option<&Locality>) -> u32 {
        locality.and_then(|l| self.0.get(l)).copied().unwrap_or(0)
    }
}

impl FromIterator<(Locality, u32)> for LocalityWeights {
    fn from_iter<I: IntoIterator<Item = (Locality, u32)>>(iter: I) -> Self {
        Self(iter.into_iter().collect())
    }
}

/// The ramp of an endpoint that has just joined.
///
/// At time `t` after joining, for `t < window`, the weight of the endpoint is multiplied by
/// `max((t / window)^(1 / aggression), min_weight_percent / 100)`.
///
/// # Defaults
///
/// * `window`: 30 s
/// * `aggression`: 1 (linear)
/// * `min_weight_percent`: 10
#[derive(Clone, Debug, PartialEq)]
pub struct SlowStart {
    /// The length of the ramp; zero = no ramp.
    pub window: Duration,
    /// The shape of the ramp: 1 is linear; above 1, the weight rises faster at first. Values that are not positive mean
    /// 1.
    pub aggression: f64,
    /// The start of the ramp, in percent of the full weight, 1–100; values out of range are clamped.
    pub min_weight_percent: u8,
}

impl Default for SlowStart {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(30),
            aggression: 1.0,
            min_weight_percent: 10,
        }
    }
}

impl SlowStart {
    /// Returns the minimum factor.
    pub(crate) fn floor(&self) -> f64 {
        f64::from(self.min_weight_percent.clamp(1, 100)) / 100.0
    }

    /// Returns the factor, in (0, 1], for the weight of an endpoint that joined at `added_at`.
    #[must_use]
    pub fn factor(&self, added_at: Time, now: Time) -> f64 {
        let age = now.saturating_since(added_at);
        if age >= self.window {
            return 1.0;
        }
        let floor = self.floor();
        let share = age.as_secs_f64() / self.window.as_secs_f64();
        let usual = self.aggression == 1.0 || self.aggression.is_nan() || self.aggression <= 0.0;
        let ramp = if usual {
            share
        } else {
            share.powf(self.aggression.recip())
        };
        ramp.clamp(floor, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ramp_starts_at_the_floor_and_ends_at_one() {
        let ramp = SlowStart {
            window: Duration::from_secs(10),
            ..SlowStart::default()
        };
        let at = |s: u64| ramp.factor(Time::ZERO, Time::from_nanos(s * 1_000_000_000));
        assert_eq!(
            (at(0), at(1), at(5), at(10), at(99)),
            (0.1, 0.1, 0.5, 1.0, 1.0)
        );
        let fast = SlowStart {
            aggression: 2.0,
            ..ramp
        };
        assert!((fast.factor(Time::ZERO, Time::from_nanos(2_500_000_000)) - 0.5).abs() < 1e-12);
    }
}
