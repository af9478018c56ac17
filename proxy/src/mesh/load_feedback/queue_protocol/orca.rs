//! Load reports in the format of ORCA (Open Request Cost Aggregation), as gRPC and Envoy use it: the response
//! field `endpoint-load-metrics`, in its forms `TEXT key=value, …` and `JSON {…}`.
//!
//! ORCA has no standard metric for requests in flight, so a named metric is used: `named_metrics.in_flight`.

use bytes::BytesMut;
use serde_json::Value;

use crate::protocol::fields::{Fields, Known};

/// Name of the metric.
const IN_FLIGHT: &str = "in_flight";

/// Sets the server's number of requests in flight in a response.
pub(crate) fn set(in_flight: u32, fields: &mut Fields) {
    let mut value = BytesMut::from(&b"TEXT named_metrics.in_flight="[..]);
    value.extend_from_slice(itoa::Buffer::new().format(in_flight).as_bytes());
    fields.set(Known::EndpointLoadMetrics, &value);
}

/// Returns the number of requests in flight in a report; `None` if the report does not contain it.
pub(crate) fn in_flight(report: &[u8]) -> Option<u32> {
    let report = std::str::from_utf8(report).ok()?;
    let (form, rest) = report.trim_start().split_once(' ')?;
    let number = match form {
        "TEXT" => text(rest)?,
        "JSON" => json(rest)?,
        _ => return None,
    };
    // Metrics are floating-point numbers.
    let is_count = (0.0..=f64::from(u32::MAX)).contains(&number);
    is_count.then_some(number as u32)
}

fn text(pairs: &str) -> Option<f64> {
    let mut pairs = pairs.split(',').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(key, _)| {
        let name = key.trim().strip_prefix("named_metrics.");
        name == Some(IN_FLIGHT)
    })?;
    value.trim().parse().ok()
}

fn json(object: &str) -> Option<f64> {
    let report: Value = serde_json::from_str(object).ok()?;
    // Both spellings are valid in the JSON form of a protocol buffer.
    let named = report.get("named_metrics").or(report.get("namedMetrics"))?;
    named.get(IN_FLIGHT)?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let mut fields = Fields::default();
        set(7, &mut fields);
        let value = fields.get(Known::EndpointLoadMetrics).unwrap();
        assert_eq!(in_flight(value), Some(7));
    }

    #[test]
    fn both_forms_and_nothing_else() {
        for (report, expected) in [
            (
                "TEXT cpu_utilization=0.3, named_metrics.in_flight=12",
                Some(12),
            ),
            ("TEXT named_metrics.in_flight=2.0,rps_fractional=9", Some(2)),
            (
                r#"JSON {"cpu_utilization": 0.3, "named_metrics": {"in_flight": 5}}"#,
                Some(5),
            ),
            (r#"JSON {"namedMetrics": {"in_flight": 5.0}}"#, Some(5)),
            ("TEXT cpu_utilization=0.3", None),
            ("TEXT named_metrics.in_flight=-1", None),
            ("TEXT named_metrics.in_flight=NaN", None),
            ("TEXT named_metrics.in_flight=1e30", None),
            ("BIN CAESAhAB", None),
            (r#"JSON {"named_metrics": 3}"#, None),
            ("JSON {", None),
            ("", None),
        ] {
            assert_eq!(in_flight(report.as_bytes()), expected, "{report}");
        }
    }
}
