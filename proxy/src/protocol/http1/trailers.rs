//! Filter of the fields that may occur in a trailer section (RFC 9110 §6.5.1).
//!
//! The same rule applies to requests and responses of every protocol. Fields that frame, route, authenticate or
//! identify a message, or control its processing, have been read from the message head before trailers arrive. A
//! recipient that merged trailers into the head would act on fields to which no rule was applied.

use http::HeaderMap;

/// Names that must not occur, grouped by function. `_` in a name is treated as `-`, because both are the same
/// where names become variables (CGI, WSGI, PHP).
const UNFIT: &[&str] = &[
    // Framing, and fields that concern one connection only.
    "connection",
    "content-length",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    // Routing.
    "forwarded",
    "host",
    "location",
    "max-forwards",
    "x-http-method-override",
    "x-original-url",
    "x-rewrite-url",
    // Authentication and identity. Authentication-Info may be a trailer (RFC 9110 §11.6.3).
    "authorization",
    "cookie",
    "set-cookie",
    "www-authenticate",
    "true-client-ip",
    "x-client-ip",
    "x-real-ip",
    "x-request-id",
    // Modifiers of requests and control data of responses.
    "age",
    "cache-control",
    "date",
    "expect",
    "expires",
    "grpc-timeout",
    "idempotency-key",
    "pragma",
    "range",
    "retry-after",
    "vary",
    "warning",
    // Processing of the content.
    "content-encoding",
    "content-range",
    "content-type",
];

/// Prefixes of further names that must not occur.
const UNFIT_PREFIXES: &[&str] = &["if-", "proxy-", "x-envoy-", "x-forwarded-", "x-maglor-"];

/// Removes fields that must not be trailers.
pub(crate) fn filter(trailers: &mut HeaderMap) {
    // No allocation if all fields are allowed, as in gRPC.
    let unfit: Vec<_> = trailers
        .keys()
        .filter(|name| !may_trail(name.as_str()))
        .cloned()
        .collect();
    for name in unfit {
        trailers.remove(name);
    }
}

/// Returns whether a field of this name, in lower case, may occur in a trailer section.
fn may_trail(name: &str) -> bool {
    let same = |(a, b): (u8, u8)| a == b || (a == b'_' && b == b'-');
    let begins = |with: &str| name.len() >= with.len() && name.bytes().zip(with.bytes()).all(same);
    !UNFIT
        .iter()
        .any(|unfit| unfit.len() == name.len() && begins(unfit))
        && !UNFIT_PREFIXES.iter().any(|prefix| begins(prefix))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn what_acts_on_a_message_does_not_come_late() {
        for name in UNFIT {
            assert!(!may_trail(name), "{name}");
            assert!(!may_trail(&name.replace('-', "_")), "{name}");
        }
        for name in [
            "if-none-match",
            "proxy-authorization",
            "x_envoy_attempt_count",
            "x-forwarded-client-cert",
            "x_forwarded-for",
            "x-maglor-client",
        ] {
            assert!(!may_trail(name), "{name}");
        }
    }

    #[test]
    fn grpc_and_checksums_do() {
        for name in [
            "grpc-status",
            "grpc-message",
            "grpc-status-details-bin",
            "grpc-retry-pushback-ms",
            "endpoint-load-metrics-bin",
            "x-checksum",
            "content-digest",
            "server-timing",
            "hostname",
            "iffy",
        ] {
            assert!(may_trail(name), "{name}");
        }
    }

    #[test]
    fn all_values_of_a_name_go() {
        let mut trailers = HeaderMap::new();
        for (name, value) in [("cookie", "a"), ("x-sum", "1"), ("cookie", "b")] {
            let value = HeaderValue::from_static(value);
            trailers.append(HeaderName::from_static(name), value);
        }
        filter(&mut trailers);
        assert_eq!((trailers.len(), trailers.get("x-sum").is_some()), (1, true));
    }
}
