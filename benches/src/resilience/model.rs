//! A model of a bounded queue with the same arrivals.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// Simulates a queue in order of arrival: `slots` requests at a time, each for `service`; `queue`
/// requests wait, and others are refused. Returns the latency of each request, `None` where it was
/// refused.
pub(super) fn latencies(
    due: &[Duration],
    slots: usize,
    service: Duration,
    queue: usize,
) -> Vec<Option<Duration>> {
    let mut free = BinaryHeap::from(vec![Reverse(Duration::ZERO); slots]);
    // The start times of the waiting requests.
    let mut begins: VecDeque<Duration> = VecDeque::new();
    let mut serve = |&due: &Duration| {
        while begins.front().is_some_and(|begin| *begin <= due) {
            begins.pop_front();
        }
        let earliest = free.peek().map_or(due, |Reverse(free)| *free);
        let begin = earliest.max(due);
        if begin > due {
            if begins.len() >= queue {
                return None;
            }
            begins.push_back(begin);
        }
        free.pop();
        free.push(Reverse(begin + service));
        Some(begin + service - due)
    };
    due.iter().map(&mut serve).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_served_in_order_and_cut() {
        let due = [0, 0, 0, 0, 0, 250].map(Duration::from_millis);
        let latencies = latencies(&due, 1, Duration::from_millis(100), 3);
        let millis = |millis| Some(Duration::from_millis(millis));
        // The one at 250 ms waits behind the third, which ends at 300, and the fourth.
        let expected = [
            millis(100),
            millis(200),
            millis(300),
            millis(400),
            None,
            millis(250),
        ];
        assert_eq!(latencies, expected);
    }
}
