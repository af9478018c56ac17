//! The HorizontalPodAutoscaler of Kubernetes (`autoscaling/v2`) with its defaults.

use std::collections::VecDeque;

use super::{PERIOD, Scaler, Seen, Size};

/// An autoscaler by CPU usage relative to the request.
#[derive(Clone, Debug)]
pub struct Hpa {
    /// The target, 0–1.
    pub utilization: f64,
    /// The minimum and maximum number of replicas.
    pub replicas: (u32, u32),
    /// The deviation of the ratio from 1 below which nothing is changed. Kubernetes: 0.1.
    pub tolerance: f64,
    /// The number of replicas is not reduced below any recommendation of this period, in seconds.
    /// Kubernetes: 300.
    pub stabilization: f64,
    wanted: Vec<VecDeque<(f64, u32)>>,
}

impl Hpa {
    /// Creates an autoscaler with Kubernetes' defaults, 1 to 10 replicas.
    #[must_use]
    pub fn new(utilization: f64) -> Self {
        Self {
            utilization,
            replicas: (1, 10),
            tolerance: 0.1,
            stabilization: 300.0,
            wanted: Vec::new(),
        }
    }

    /// Returns `ceil(replicas × use / target)`, or the present number within the tolerance.
    fn wanted(&self, seen: &Seen, size: &Size) -> u32 {
        let replicas = f64::from(seen.replicas);
        let ratio = seen.cpu_used_millis / (replicas * size.cpu_millis) / self.utilization;
        if (ratio - 1.0).abs() <= self.tolerance {
            return seen.replicas;
        }
        let (least, most) = self.replicas;
        ((replicas * ratio).ceil() as u32).clamp(least, most)
    }
}

impl Scaler for Hpa {
    fn decide(&mut self, second: f64, seen: &[Seen], now: &mut [(u32, Size)]) {
        self.wanted.resize(seen.len(), VecDeque::new());
        for (at, (seen, (replicas, size))) in seen.iter().zip(now).enumerate() {
            let wanted = self.wanted(seen, size);
            let history = &mut self.wanted[at];
            history.push_back((second, wanted));
            while history
                .front()
                .is_some_and(|(then, _)| second - then >= self.stabilization + PERIOD)
            {
                history.pop_front();
            }
            let most = history
                .iter()
                .map(|(_, wanted)| *wanted)
                .max()
                .unwrap_or(wanted);
            *replicas = if wanted > *replicas {
                // Twice as many or four more in 15 s, whichever is more.
                wanted.min((*replicas * 2).max(*replicas + 4))
            } else {
                most.min(*replicas)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Kubernetes' documentation: 200m in use where 100m are wanted doubles, 50m halves.
    #[test]
    fn it_follows_the_ratio_and_comes_down_after_five_minutes() {
        let size = Size {
            cpu_millis: 200.0,
            memory_mib: 64.0,
            cpu_limit_millis: 1000.0,
        };
        let mut hpa = Hpa::new(0.5);
        let mut now = [(2, size)];
        let mut decide = |second: f64, each: f64, now: &mut [(u32, Size)]| {
            let seen = Seen {
                replicas: now[0].0,
                cpu_used_millis: each * f64::from(now[0].0),
                ..Seen::default()
            };
            hpa.decide(second, &[seen], now);
            now[0].0
        };
        assert_eq!(decide(15.0, 200.0, &mut now), 4);
        assert_eq!(decide(30.0, 109.0, &mut now), 4);
        assert_eq!(decide(45.0, 50.0, &mut now), 4);
        assert_eq!(decide(300.0, 50.0, &mut now), 4);
        assert_eq!(decide(360.0, 50.0, &mut now), 2);
    }
}
