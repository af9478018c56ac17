//! How long a request may take at most.

use std::time::Duration;

use maglor_config::route::RouteAction;

use crate::fields::{Fields, Known};
use crate::message::Request;

/// How long a request may take: as long as its route and its client allow.
pub(super) fn of(action: &RouteAction, request: &Request) -> Option<Duration> {
    let RouteAction::Forward(forward) = action else {
        return None;
    };
    let given = given(&request.fields);
    match (forward.timeout, given) {
        (Some(own), Some(given)) => Some(own.min(given)),
        (own, given) => own.or(given),
    }
}

/// The time that is left by `x-envoy-expected-rq-timeout-ms` or `grpc-timeout`, the lesser one.
///
/// A caller that will not wait any longer needs no tries after that; it can only shorten the time.
fn given(fields: &Fields) -> Option<Duration> {
    let expected = fields
        .get(Known::XEnvoyExpectedRqTimeoutMs)
        .and_then(number)
        // 0 stands for no limit there.
        .filter(|millis| *millis > 0)
        .map(Duration::from_millis);
    let grpc = fields.get(Known::GrpcTimeout).and_then(grpc_timeout);
    match (expected, grpc) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    plain.then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

/// At most eight digits and a unit.
fn grpc_timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.len() > 8 {
        return None;
    }
    let number = number(digits)?;
    Some(match unit {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_units() {
        for (text, nanos) in [
            ("1H", 3_600_000_000_000),
            ("2M", 120_000_000_000),
            ("3S", 3_000_000_000),
            ("4m", 4_000_000),
            ("5u", 5000),
            ("99999999n", 99_999_999),
        ] {
            let time = grpc_timeout(text.as_bytes());
            assert_eq!(time, Some(Duration::from_nanos(nanos)), "{text}");
        }
        for bad in ["", "S", "1", "1s", "-1S", "123456789S", " 1S"] {
            assert_eq!(grpc_timeout(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn the_lesser_one_counts_and_zero_is_no_limit() {
        let given = |expected: &str, grpc: &str| {
            let mut fields = Fields::default();
            fields.push(Known::XEnvoyExpectedRqTimeoutMs, expected.as_bytes());
            fields.push(Known::GrpcTimeout, grpc.as_bytes());
            given(&fields).map(|time| time.as_millis())
        };
        assert_eq!(given("100", "1S"), Some(100));
        assert_eq!(given("2000", "1S"), Some(1000));
        assert_eq!(given("0", "1S"), Some(1000));
        assert_eq!(given("x", ""), None);
    }
}
