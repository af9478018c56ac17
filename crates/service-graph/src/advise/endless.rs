//! Detects long-lived calls, such as streams.

use super::observed::EdgeUse;
use super::params::Params;

/// Returns the number of long-lived calls: more than λ·r are in flight (Little's law) if some do
/// not end at all, and a call that takes longer than the longest timeout should have none.
pub(super) fn endless(edge: &EdgeUse, params: &Params) -> f64 {
    /// A difference up to the expected value and this number is attributed to chance.
    const CHANCE: f64 = 10.0;
    let p = &params.traffic;
    let long = p.most_timeout.as_secs_f64() * 1e3 / p.timeout_margin.max(1.0);
    if edge.rps <= 0.0 {
        return 0.0;
    }
    if edge.latency_ms > long {
        return edge.rps;
    }
    (edge.in_flight - 2.0 * edge.rps * edge.latency_ms / 1e3 - CHANCE).max(0.0)
}
