//! A one-second timer that ticks at the same moments for all its users on a thread.
//!
//! Each wake-up of an idle proxy costs some tens of µs. Independent timers would each wake the thread; these wake it
//! once.

use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

const SECOND: Duration = Duration::from_secs(1);

thread_local! {
    static BEGAN: Instant = Instant::now();
}

/// Returns an interval that ticks every whole second since the thread's first call; the first tick comes within a
/// second. Missed ticks are skipped.
pub(crate) fn every_second() -> Interval {
    let began = BEGAN.with(Instant::clone);
    let seconds = began.elapsed().as_secs() + 1;
    let mut ticks = interval_at(began + Duration::from_secs(seconds), SECOND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_of_a_thread_tick_together() {
        let mut first = every_second();
        first.tick().await;
        tokio::time::advance(Duration::from_millis(3_300)).await;
        let mut second = every_second();
        let (one, other) = (first.tick().await, first.tick().await);
        assert_eq!(other - one, SECOND * 3, "what was missed is left out");
        assert_eq!(second.tick().await, other);
        assert_eq!(second.tick().await, first.tick().await);
    }
}
