//! Converts durations from and to protobuf.

use maglor_config::raw::TimeSpan;
use prost_types::Duration;

/// Converts a duration to protobuf.
pub(crate) fn encode(span: TimeSpan) -> Duration {
    // Durations of a configuration are at most ten years.
    Duration {
        seconds: i64::try_from(span.0.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(span.0.subsec_nanos()).unwrap_or(0),
    }
}

/// Converts a duration from protobuf, or returns the reason why it is invalid.
pub(crate) fn decode(duration: &Duration) -> Result<TimeSpan, String> {
    let seconds = u64::try_from(duration.seconds).ok();
    let nanos = u32::try_from(duration.nanos)
        .ok()
        .filter(|n| *n < 1_000_000_000);
    match (seconds, nanos) {
        (Some(seconds), Some(nanos)) if seconds <= 315_576_000_000 => {
            Ok(TimeSpan(std::time::Duration::new(seconds, nanos)))
        }
        _ => Err(format!(
            "{}s {}ns is not a duration",
            duration.seconds, duration.nanos
        )),
    }
}
