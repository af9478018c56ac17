//! Detects long-lived calls, such as streams.

use super::observed::EdgeUse;
use super::params::Params;

/// Returns the number of long-lived calls on an edge. If some calls do not end at all, more than λ·r are in flight
/// (Little's law); the same number is expected for calls that take longer than the longest timeout, of which there
/// should be none.
pub(super) fn endless(edge: &EdgeUse, params: &Params) -> f64 {
    /// A number of calls in flight above the expected value by up to this number is attributed to chance.
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
