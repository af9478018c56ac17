//! Waits for conditions, instead of sleeping for long enough.

use std::thread;
use std::time::{Duration, Instant};

/// The poll interval.
const INTERVAL: Duration = Duration::from_millis(2);

/// Waits until `condition` holds.
///
/// # Panics
///
/// If it does not within `timeout`; the message contains `what` was waited for.
#[track_caller]
pub fn eventually(timeout: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    until(timeout, what, || condition().then_some(()));
}

/// Waits until `value` returns something, and returns that; see [`eventually`].
///
/// # Panics
///
/// If it does not within `timeout`; the message contains `what` was waited for.
#[track_caller]
pub fn until<T>(timeout: Duration, what: &str, mut value: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(value) = value() {
            return value;
        }
        assert!(
            Instant::now() < deadline,
            "timeout after {timeout:?}: {what}"
        );
        thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_becomes_true_is_waited_for() {
        let mut looks = 0;
        eventually(Duration::from_secs(5), "the third look", || {
            looks += 1;
            looks == 3
        });
    }

    #[test]
    #[should_panic(expected = "timeout after 1ms: never")]
    fn a_condition_that_does_not_fails_with_its_name() {
        eventually(Duration::from_millis(1), "never", || false);
    }
}
