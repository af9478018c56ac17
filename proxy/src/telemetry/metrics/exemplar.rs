//! Exported traces as examples of durations.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use maglor_telemetry::metrics::Exemplar;
use maglor_telemetry::trace_context::TraceId;

use crate::telemetry::record::nanos;

/// Returns a trace as an example of a duration that has ended now.
pub(super) fn exemplar(took: Duration, trace_id: TraceId) -> Exemplar {
    let at = SystemTime::now().duration_since(UNIX_EPOCH);
    Exemplar {
        trace_id,
        nanos: nanos(took),
        at: nanos(at.unwrap_or_default()),
    }
}
