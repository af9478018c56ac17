//! Any text is snapshots, or is refused with a message that can be shown; whatever they say, what is
//! advised is within its bounds, and every value has its reason.
//!
//! From crates/service-graph:
//!
//! ```text
//! cargo +nightly fuzz run snapshots -- -max_total_time=60
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;
use maglor_service_graph::advise::{Advisor, Params};
use maglor_service_graph::file;

fuzz_target!(|text: &str| {
    let snapshots = match file::snapshots(text) {
        Ok(snapshots) => snapshots,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(error.line() != Some(0));
            return;
        }
    };
    let mut advisor = Advisor::new(Params::default());
    for (at, snapshot) in &snapshots {
        advisor.observe(*at, snapshot);
    }
    for advice in advisor.advise() {
        if let Some(cpu) = &advice.cpu_millis {
            assert!(cpu.value >= 1 && cpu.value <= 1000 && !cpu.reason.is_empty());
        }
        if let Some(replicas) = &advice.replicas {
            assert!(replicas.value >= 1 && !replicas.reason.is_empty());
        }
        if let Some(traffic) = &advice.traffic {
            assert!(traffic.max_requests.value >= 1);
            assert!(traffic.timeout.value.as_millis() >= 1);
            let retry = traffic.retry.as_ref().map(|retry| retry.value);
            assert!(retry.is_none_or(|retry| (1..=3).contains(&retry.attempts)));
        }
    }
});
