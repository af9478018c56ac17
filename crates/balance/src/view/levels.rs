//! Divides traffic among priority levels, and decides which levels are in panic.
//!
//! The rules are Envoy's (architecture overview, "Priority levels" and "Panic threshold"), with
//! exact fractions in place of whole percents.

/// The counts of a level.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Census {
    /// The number of endpoints that may take requests.
    pub(super) available: usize,
    /// The number of endpoints without draining ones, which leave on purpose and do not indicate failures.
    pub(super) total: usize,
    /// The number of endpoints, including draining ones.
    pub(super) members: usize,
}

/// The load of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Load {
    /// The share of all traffic, 0–1. The shares of all levels sum to 1, or to 0 if no endpoint is usable.
    pub(super) share: f64,
    /// Whether all endpoints of the level are used regardless of health.
    pub(super) panic: bool,
}

impl Census {
    /// Returns `min(1, factor × available / total)`; 0 for an empty level.
    pub(super) fn health(self, factor: f64) -> f64 {
        if self.total == 0 {
            return 0.0;
        }
        (factor * self.available as f64 / self.total as f64).min(1.0)
    }
}

/// Divides traffic over levels, highest priority first.
///
/// Each level takes as much traffic as its health allows and passes the rest on. If all levels together cannot take
/// everything, the shares are scaled up, and levels below the panic threshold are in panic; if all levels are, traffic
/// is divided by their sizes.
pub(super) fn divide(levels: &[Census], factor: f64, panic_percent: u8) -> Vec<Load> {
    let health: Vec<f64> = levels.iter().map(|level| level.health(factor)).collect();
    let capacity = health.iter().sum::<f64>().min(1.0);
    let threshold = usize::from(panic_percent.min(100));
    let panics = |level: &Census| capacity < 1.0 && level.available * 100 < threshold * level.total;
    if levels.iter().all(|level| level.total == 0 || panics(level)) {
        return by_size(levels, threshold > 0);
    }
    let mut left = 1.0;
    let mut loads = Vec::with_capacity(levels.len());
    for (level, health) in levels.iter().zip(health) {
        let share = if capacity > 0.0 {
            f64::min(left, health / capacity)
        } else {
            0.0
        };
        left -= share;
        // A level without traffic does not panic: its unhealthy endpoints stay excluded.
        loads.push(Load {
            share,
            panic: share > 0.0 && panics(level),
        });
    }
    loads
}

fn by_size(levels: &[Census], panic: bool) -> Vec<Load> {
    let all_drain = levels.iter().all(|level| level.total == 0);
    let size = |level: &Census| {
        if all_drain {
            level.members
        } else {
            level.total
        }
    };
    let total: usize = levels.iter().map(size).sum();
    let share = |level: &Census| {
        if total == 0 || !panic {
            0.0
        } else {
            size(level) as f64 / total as f64
        }
    };
    levels
        .iter()
        .map(|level| Load {
            share: share(level),
            panic,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(levels: &[(usize, usize)], panic: u8) -> Vec<(f64, bool)> {
        let census: Vec<Census> = levels
            .iter()
            .map(|&(available, total)| Census {
                available,
                total,
                members: total,
            })
            .collect();
        divide(&census, 1.4, panic)
            .iter()
            .map(|load| ((load.share * 1000.0).round() / 1000.0, load.panic))
            .collect()
    }

    #[test]
    fn the_first_level_keeps_all_while_overprovisioned() {
        assert_eq!(
            shares(&[(10, 10), (10, 10)], 50),
            [(1.0, false), (0.0, false)]
        );
        assert_eq!(
            shares(&[(72, 100), (10, 10)], 50),
            [(1.0, false), (0.0, false)]
        );
        assert_eq!(
            shares(&[(50, 100), (10, 10)], 50),
            [(0.7, false), (0.3, false)]
        );
        assert_eq!(
            shares(&[(0, 100), (10, 10)], 50),
            [(0.0, false), (1.0, false)]
        );
    }

    #[test]
    fn scarce_levels_are_scaled_up() {
        // Envoy's table: 25 % and 25 % healthy give 35 % and 35 %, normalised to one half each.
        assert_eq!(
            shares(&[(25, 100), (25, 100)], 0),
            [(0.5, false), (0.5, false)]
        );
    }

    #[test]
    fn panic_below_the_threshold_only_when_capacity_is_short() {
        assert_eq!(shares(&[(49, 100)], 50), [(1.0, true)]);
        assert_eq!(shares(&[(50, 100)], 50), [(1.0, false)]);
        assert_eq!(shares(&[(75, 100)], 80), [(1.0, false)]);
        assert_eq!(
            shares(&[(20, 100), (100, 100)], 50),
            [(0.28, false), (0.72, false)]
        );
        assert_eq!(
            shares(&[(1, 100), (4, 300)], 50),
            [(0.25, true), (0.75, true)]
        );
    }

    #[test]
    fn nothing_available() {
        assert_eq!(shares(&[(0, 5)], 50), [(1.0, true)]);
        assert_eq!(shares(&[(0, 5)], 0), [(0.0, false)]);
        assert_eq!(shares(&[], 50), []);
        assert_eq!(shares(&[(0, 0)], 50), [(0.0, true)]);
    }
}
