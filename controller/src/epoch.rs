//! Times that continue where another process ended: since 1970, and as statuses write them.

use k8s_openapi::jiff::Timestamp;
use maglor_balance::Time;

/// Now.
pub(crate) fn now() -> Time {
    time(Timestamp::now())
}

fn time(at: Timestamp) -> Time {
    Time::from_nanos(u64::try_from(at.as_nanosecond()).unwrap_or(0))
}

/// To the second, as Kubernetes writes times (RFC 3339).
pub(crate) fn text(at: Time) -> Option<String> {
    let seconds = i64::try_from(at.as_nanos() / 1_000_000_000).ok()?;
    Timestamp::from_second(seconds)
        .ok()
        .map(|at| at.to_string())
}

/// What [`text`] has written.
pub(crate) fn read(text: Option<&String>) -> Option<Time> {
    text?.parse::<Timestamp>().ok().map(time)
}
