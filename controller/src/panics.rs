//! Counts the panics of the process, regardless of where they are caught.
//!
//! A long-running task that panics ends the process ([`crate::app::threads`]) or is restarted; a panic in a task that
//! serves a connection ends only this connection. The metric counts all of them.

use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

static COUNT: AtomicU64 = AtomicU64::new(0);
static COUNTING: Once = Once::new();

/// Installs the hook that counts panics.
pub(crate) fn count() {
    COUNTING.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // Relaxed: no other data depends on it.
            COUNT.fetch_add(1, Ordering::Relaxed);
            before(info);
        }));
    });
}

/// Returns the number of panics so far.
pub(crate) fn counted() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_of_a_detached_task_is_counted() {
        count();
        count();
        let before = counted();
        let task = tokio::spawn(async { assert_eq!(1, 2, "as a fault of ours would") });
        assert!(task.await.unwrap_err().is_panic());
        // Other tests may panic at the same time.
        assert!(counted() > before);
    }
}
