//! Wall-clock times that remain valid after a restart: durations since 1970, and the format of statuses.

use jiff::Timestamp;
use maglor_balance::Time;

/// Returns the current time.
pub(crate) fn now() -> Time {
    time(Timestamp::now())
}

fn time(at: Timestamp) -> Time {
    Time::from_nanos(u64::try_from(at.as_nanosecond()).unwrap_or(0))
}

/// Formats a time with a resolution of one second, as Kubernetes does (RFC 3339).
pub(crate) fn text(at: Time) -> Option<String> {
    let seconds = i64::try_from(at.as_nanos() / 1_000_000_000).ok()?;
    Timestamp::from_second(seconds)
        .ok()
        .map(|at| at.to_string())
}

/// Parses the output of [`text`].
pub(crate) fn read(text: Option<&String>) -> Option<Time> {
    text?.parse::<Timestamp>().ok().map(time)
}
