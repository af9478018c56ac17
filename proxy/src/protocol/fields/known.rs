//! The field names that the proxy itself reads or writes, and their recognition.

macro_rules! known {
    ($($variant:ident = $text:literal),+ $(,)?) => {
        /// A field name that the proxy itself reads or writes.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        #[repr(u8)]
        pub(crate) enum Known {
            /// Any other name.
            Other,
            $($variant),+
        }

        const TEXTS: &[&str] = &["", $($text),+];

        impl Known {
            const ALL: &[Self] = &[Self::Other, $(Self::$variant),+];
        }
    };
}

known! {
    Connection = "connection",
    ContentLength = "content-length",
    ContentType = "content-type",
    Cookie = "cookie",
    Date = "date",
    EndpointLoadMetrics = "endpoint-load-metrics",
    Expect = "expect",
    Forwarded = "forwarded",
    GrpcMessage = "grpc-message",
    GrpcRetryPushbackMs = "grpc-retry-pushback-ms",
    GrpcStatus = "grpc-status",
    GrpcTimeout = "grpc-timeout",
    Host = "host",
    Http2Settings = "http2-settings",
    IdempotencyKey = "idempotency-key",
    KeepAlive = "keep-alive",
    Location = "location",
    ProxyConnection = "proxy-connection",
    RateLimit = "ratelimit",
    RateLimitPolicy = "ratelimit-policy",
    RetryAfter = "retry-after",
    Server = "server",
    SetCookie = "set-cookie",
    Te = "te",
    TransferEncoding = "transfer-encoding",
    Upgrade = "upgrade",
    UserAgent = "user-agent",
    XEnvoyAttemptCount = "x-envoy-attempt-count",
    XEnvoyExpectedRqTimeoutMs = "x-envoy-expected-rq-timeout-ms",
    XEnvoyOverloaded = "x-envoy-overloaded",
    XForwardedClientCert = "x-forwarded-client-cert",
    XForwardedFor = "x-forwarded-for",
    XForwardedHost = "x-forwarded-host",
    XForwardedProto = "x-forwarded-proto",
    XMaglorClient = "x-maglor-client",
    XMaglorHttpVersion = "x-maglor-http-version",
    XMaglorQueue = "x-maglor-queue",
    XMaglorDenied = "x-maglor-denied",
    XMaglorReason = "x-maglor-reason",
    XRequestId = "x-request-id",
}

/// Returns whether `known` is `name` in lower case. Both must have the same length and consist of valid name
/// characters: letters, digits and hyphens remain distinct when bit 0x20 is set.
fn is_lower_case_of(known: &[u8], name: &[u8]) -> bool {
    const LOWER: u64 = 0x2020_2020_2020_2020;
    // Eight bytes at a time; the last eight may overlap.
    if let (Some(known_end), Some(name_end)) = (known.last_chunk(), name.last_chunk()) {
        let differ = |known: &[u8; 8], name: &[u8; 8]| {
            u64::from_ne_bytes(*known) ^ (u64::from_ne_bytes(*name) | LOWER)
        };
        let (known, name) = (known.as_chunks().0, name.as_chunks().0);
        let last = differ(known_end, name_end);
        let pairs = known.iter().zip(name);
        return pairs.fold(last, |all, (known, name)| all | differ(known, name)) == 0;
    }
    let pairs = known.iter().zip(name);
    pairs.fold(0, |all, (known, name)| all | known ^ (name | 0x20)) == 0
}

/// Returns the index in [`BY_SLOT`] of a name of this length with these lower-case letters at its ends.
const fn slot(len: usize, first: u8, last: u8) -> usize {
    // The factor was found by search: no two known names collide.
    (len + first as usize + 52 * last as usize) % SLOTS
}

const SLOTS: usize = 128;

/// Index of the known name in each slot; 0 means none.
static BY_SLOT: [u8; SLOTS] = {
    let mut slots = [0; SLOTS];
    let mut at = 1;
    while at < TEXTS.len() {
        let text = TEXTS[at].as_bytes();
        let slot = slot(text.len(), text[0], text[text.len() - 1]);
        assert!(
            slots[slot] == 0,
            "two names meet: `slot` wants another factor"
        );
        slots[slot] = at as u8;
        at += 1;
    }
    slots
};

impl Known {
    /// Recognizes a name in any case.
    pub(crate) fn of(name: &[u8]) -> Self {
        let (Some(first), Some(last)) = (name.first(), name.last()) else {
            return Self::Other;
        };
        let at = usize::from(BY_SLOT[slot(name.len(), first | 0x20, last | 0x20)]);
        let known = TEXTS[at].as_bytes();
        if known.len() == name.len() && is_lower_case_of(known, name) {
            Self::ALL[at]
        } else {
            Self::Other
        }
    }

    pub(super) const fn bit(self) -> u64 {
        1 << self as u32
    }

    /// Returns the name in lower case.
    pub(crate) fn as_str(self) -> &'static str {
        TEXTS[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_name_is_recognised() {
        for (at, text) in TEXTS.iter().enumerate().skip(1) {
            let known = Known::of(text.to_uppercase().as_bytes());
            assert_eq!(known as usize, at, "{text}");
        }
        assert!(TEXTS.len() <= 64, "the bit set has 64 bits");
    }
}
