//! Any `spec` is translated or refused, and nothing panics. From crates/manifests:
//!
//! ```text
//! cargo +nightly fuzz run specs -- -max_total_time=60
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;
use maglor_manifests::istio::{
    AuthorizationPolicy, DestinationRule, PeerAuthentication, Telemetry, VirtualService,
};

fuzz_target!(|data: &[u8]| {
    let Ok(spec) = serde_json::from_slice(data) else {
        return;
    };
    if let Some(rule) = DestinationRule::read(&spec).value {
        for port in rule.ports() {
            for subset in &rule.subsets {
                drop(rule.settings(port, Some(subset)));
            }
        }
    }
    drop(VirtualService::read(&spec));
    drop(PeerAuthentication::read(&spec));
    drop(AuthorizationPolicy::read(&spec));
    drop(Telemetry::read(&spec));
});
