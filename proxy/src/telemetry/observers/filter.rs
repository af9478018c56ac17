//! Filter of a tap: the query parameters `method`, `path`, `status`, `peer`, `direction` and `rate`.

use std::time::Duration;

use http::{Method, StatusCode};
use maglor_balance::guard::rate::RateParams;
use maglor_config::listener::TrafficDirection;
use maglor_telemetry::admin::parameters;

use crate::telemetry::record::{Entry, direction_name};

/// Default number of lines a second.
const RATE: u32 = 100;

/// Reason why a tap was rejected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TapError {
    /// Too many taps are open; each one has a cost.
    #[error("too many open taps; maximum {most}")]
    TooMany {
        /// Maximum number of taps.
        most: usize,
    },
    /// The query has an unknown parameter.
    #[error("unknown filter `{name}`; valid: method, path, status, peer, direction, rate")]
    Unknown {
        /// Name of the parameter.
        name: String,
    },
    /// A parameter has an invalid value.
    #[error("{name}: `{value}` is not {expected}")]
    Value {
        /// Name of the parameter.
        name: &'static str,
        /// Value of the parameter.
        value: String,
        /// The expected values.
        expected: &'static str,
    },
}

/// A filter of requests; fields that are `None` match all requests.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    method: Option<Method>,
    /// Prefix of the path.
    path: Option<String>,
    status: Option<Status>,
    /// Part of the client's SPIFFE ID.
    peer: Option<String>,
    direction: Option<TrafficDirection>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Status {
    /// A class of statuses: `5` for `5xx`.
    Class(u16),
    Exact(StatusCode),
}

impl Wanted {
    /// Parses the filter and the number of lines per second from a query.
    pub(super) fn read(query: &str) -> Result<(Self, RateParams), TapError> {
        let mut wanted = Self::default();
        let mut rate = RATE;
        for (name, value) in parameters(query) {
            let value = value.into_owned();
            let bad = |name, expected| TapError::Value {
                name,
                value: value.clone(),
                expected,
            };
            match name {
                "direction" => {
                    let known = [TrafficDirection::Inbound, TrafficDirection::Outbound];
                    let found = known.into_iter().find(|one| direction_name(*one) == value);
                    wanted.direction =
                        Some(found.ok_or_else(|| bad("direction", "`inbound` or `outbound`"))?);
                }
                "method" => {
                    let method = value.parse();
                    wanted.method = Some(method.map_err(|_| bad("method", "a method"))?);
                }
                "path" => wanted.path = Some(value),
                "peer" => wanted.peer = Some(value),
                "rate" => {
                    let number = value.parse().ok().filter(|rate| *rate > 0);
                    rate = number.ok_or_else(|| bad("rate", "a number of lines per second"))?;
                }
                "status" => {
                    let status = status(&value);
                    wanted.status = Some(status.ok_or_else(|| {
                        bad("status", "a status such as 503 or a class such as 5xx")
                    })?);
                }
                unknown => {
                    return Err(TapError::Unknown {
                        name: unknown.to_owned(),
                    });
                }
            }
        }
        let rate = RateParams {
            requests: rate,
            per: Duration::from_secs(1),
            burst: rate,
        };
        Ok((wanted, rate))
    }

    pub(super) fn takes(&self, entry: &Entry<'_>) -> bool {
        let contains = |part: &str| entry.peer.is_some_and(|peer| peer.as_str().contains(part));
        self.method
            .as_ref()
            .is_none_or(|method| method == entry.method)
            && self
                .path
                .as_ref()
                .is_none_or(|path| entry.target.starts_with(path.as_bytes()))
            && self.status.is_none_or(|wanted| match wanted {
                Status::Class(class) => entry.status.as_u16() / 100 == class,
                Status::Exact(exact) => entry.status == exact,
            })
            && self.peer.as_deref().is_none_or(contains)
            && self
                .direction
                .is_none_or(|direction| direction == entry.direction)
    }
}

fn status(text: &str) -> Option<Status> {
    if let Some(class) = text.strip_suffix("xx") {
        let class = class.parse().ok().filter(|class| (1..=5).contains(class));
        return class.map(Status::Class);
    }
    text.parse().ok().map(Status::Exact)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(query: &str) -> bool {
        let (wanted, _) = Wanted::read(query).unwrap();
        let mut entry = Entry::example("POST", "/api/cart?x=1");
        entry.status = StatusCode::BAD_GATEWAY;
        wanted.takes(&entry)
    }

    #[test]
    fn every_filter_has_to_hold() {
        for query in [
            "",
            "method=POST",
            "path=/api",
            "path=%2Fapi/cart",
            "status=5xx",
            "status=502",
            "direction=outbound",
            "method=POST&path=/api&status=5xx&peer=ns/shop",
        ] {
            assert!(takes(query), "{query}");
        }
        for query in [
            "method=GET",
            "path=/cart",
            "status=503",
            "status=2xx",
            "direction=inbound",
            "peer=ns/other",
            "method=POST&path=/x",
        ] {
            assert!(!takes(query), "{query}");
        }
    }

    #[test]
    fn what_means_nothing_is_refused_by_name() {
        for (query, part) in [
            ("methods=GET", "`methods`"),
            ("status=6xx", "status: `6xx`"),
            ("status=x", "status: `x`"),
            ("rate=0", "rate: `0`"),
            ("direction=up", "direction: `up`"),
            ("method=a%20b", "method: `a b`"),
        ] {
            let error = Wanted::read(query).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    /// Pieces of queries in any order are accepted or rejected, and never cause a panic.
    #[test]
    fn any_query_is_read_or_refused() {
        let pieces = [
            "status",
            "=",
            "&",
            "5xx",
            "%",
            "%zz",
            "ü",
            "rate",
            "99999999999",
            "path",
            "?",
            "+",
            "xx",
        ];
        let mut rng = maglor_balance::Rng::seed(7);
        for _ in 0..2000 {
            let query: String = (0..rng.below(9))
                .map(|_| pieces[rng.below(13) as usize])
                .collect();
            let _ = Wanted::read(&query).map_err(|error| error.to_string());
        }
    }
}
