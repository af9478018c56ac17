//! Parses paths and selectors of requests, and formats responses (`k8s.io/metrics`, `external_metrics/v1beta1`).

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{ExternalMetrics, GROUP, REQUESTS, SERVICE, Whose};
use crate::names::is_label;
use crate::query::Query;

const ROOT: &str = "/apis/external.metrics.k8s.io/v1beta1";
const GROUP_VERSION: &str = "external.metrics.k8s.io/v1beta1";

/// A parsed request.
#[derive(Debug, Eq, PartialEq)]
enum Question<'a> {
    /// The list of metrics.
    Metrics,
    /// The values of the metric in a namespace, for one Service or group, or for all.
    Values {
        namespace: &'a str,
        whose: Option<Whose>,
    },
}

/// Reason why a request is rejected.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
enum QuestionError {
    #[error("no such resource: {0}")]
    Path(String),
    #[error("labelSelector: unsupported `{0}`, expected {SERVICE}=NAME, {GROUP}=NAME or none")]
    Selector(String),
}

impl ExternalMetrics {
    pub(super) async fn handle<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET {
            return failure(StatusCode::METHOD_NOT_ALLOWED, "only GET");
        }
        let uri = request.uri();
        let selector = Query::of(uri.query());
        let selector = selector.value("labelSelector").unwrap_or_default();
        let (namespace, whose) = match question(uri.path(), selector) {
            Ok(Question::Metrics) => return answer(StatusCode::OK, &metrics()),
            Ok(Question::Values { namespace, whose }) => (namespace, whose),
            Err(error) => {
                let status = match error {
                    QuestionError::Path(_) => StatusCode::NOT_FOUND,
                    QuestionError::Selector(_) => StatusCode::BAD_REQUEST,
                };
                return failure(status, &error.to_string());
            }
        };
        match self.values(namespace, whose.as_ref()).await {
            Ok(values) => {
                let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
                let values = values.iter().map(|(whose, rps)| value(whose, *rps, now));
                answer(StatusCode::OK, &list(&values.collect::<Vec<_>>()))
            }
            Err(error) => {
                tracing::debug!(namespace, ?whose, %error, "cannot answer a query for external metrics");
                failure(StatusCode::SERVICE_UNAVAILABLE, &error.to_string())
            }
        }
    }
}

fn question<'a>(path: &'a str, selector: &str) -> Result<Question<'a>, QuestionError> {
    let unknown = || QuestionError::Path(path.to_owned());
    let rest = path.strip_prefix(ROOT).ok_or_else(unknown)?;
    if rest.is_empty() || rest == "/" {
        return Ok(Question::Metrics);
    }
    let rest = rest.strip_prefix("/namespaces/").ok_or_else(unknown)?;
    match rest.split_once('/') {
        // The namespace becomes part of an API server path.
        Some((namespace, REQUESTS)) if is_label(namespace) => Ok(Question::Values {
            namespace,
            whose: selected(selector)?,
        }),
        _ => Err(unknown()),
    }
}

/// Returns the Service or group that a label selector names; `None` if it is empty.
fn selected(selector: &str) -> Result<Option<Whose>, QuestionError> {
    if selector.is_empty() {
        return Ok(None);
    }
    let unknown = || QuestionError::Selector(selector.to_owned());
    let (name, value) = selector.split_once('=').ok_or_else(unknown)?;
    let value = value.strip_prefix('=').unwrap_or(value);
    // Only characters of names are allowed, so that the value is safe in a selector.
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_value = (1..=63).contains(&value.len())
        && value.bytes().all(fits)
        && !value.starts_with('-')
        && !value.ends_with('-');
    let mut known = [SERVICE, GROUP].into_iter();
    let of = known.find(|of| *of == name).ok_or_else(unknown)?;
    match is_value {
        true => Ok(Some((of, value.to_owned()))),
        false => Err(unknown()),
    }
}

fn metrics() -> Value {
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": GROUP_VERSION,
        "resources": [{
            "name": REQUESTS,
            "singularName": "",
            "namespaced": true,
            "kind": "ExternalMetricValueList",
            "verbs": ["get"],
        }],
    })
}

fn list(items: &[Value]) -> Value {
    json!({
        "kind": "ExternalMetricValueList",
        "apiVersion": GROUP_VERSION,
        "metadata": {},
        "items": items,
    })
}

/// Formats a value as a Kubernetes quantity in thousandths.
fn value((of, name): &Whose, rps: f64, now: Timestamp) -> Value {
    let mut labels = serde_json::Map::new();
    labels.insert((*of).to_owned(), json!(name));
    json!({
        "metricName": REQUESTS,
        "metricLabels": labels,
        "timestamp": now.to_string(),
        "value": format!("{}m", (rps * 1000.0).round() as u64),
    })
}

fn failure(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    let body = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "code": status.as_u16(),
    });
    answer(status, &body)
}

fn answer(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body.to_string()));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_distinguished() {
        let values = |whose: Option<(&'static str, &str)>| Question::Values {
            namespace: "shop",
            whose: whose.map(|(of, name)| (of, name.to_owned())),
        };
        let of = format!("{ROOT}/namespaces/shop/{REQUESTS}");
        assert_eq!(question(ROOT, ""), Ok(Question::Metrics));
        assert_eq!(question(&format!("{ROOT}/"), ""), Ok(Question::Metrics));
        assert_eq!(question(&of, ""), Ok(values(None)));
        for selector in ["service=web", "service==web"] {
            assert_eq!(question(&of, selector), Ok(values(Some((SERVICE, "web")))));
        }
        assert_eq!(question(&of, "group=low"), Ok(values(Some((GROUP, "low")))));
        for selector in [
            "service",
            "service=",
            "service!=web",
            "service=a,b=c",
            "app=web",
            "service in (a)",
        ] {
            let refused = question(&of, selector);
            assert_eq!(refused, Err(QuestionError::Selector(selector.to_owned())));
        }
        for path in [
            "/",
            "/apis",
            "/openapi/v2",
            &format!("{ROOT}/namespaces/shop/other"),
            &format!("{of}/more"),
        ] {
            assert_eq!(
                question(path, ""),
                Err(QuestionError::Path(path.to_owned()))
            );
        }
    }

    #[test]
    fn values_are_quantities() {
        let now = Timestamp::from_second(1_780_000_000).unwrap();
        let whose = |of, name: &str| (of, name.to_owned());
        let list = list(&[
            value(&whose(SERVICE, "web"), 1234.5678, now),
            value(&whose(GROUP, "low"), 0.0, now),
        ]);
        assert_eq!(list["items"][0]["value"], "1234568m");
        assert_eq!(list["items"][0]["metricLabels"], json!({"service": "web"}));
        assert_eq!(list["items"][0]["timestamp"], "2026-05-28T20:26:40Z");
        assert_eq!(list["items"][1]["value"], "0m");
        assert_eq!(list["items"][1]["metricLabels"], json!({"group": "low"}));
    }

    /// The maintained suite of hostile requests, with the ones that are accepted. `cargo xtask e2e` sends them
    /// through a real API server.
    #[test]
    fn hostile_questions_are_refused() {
        use maglor_testkit::hostile;
        let cases = hostile::external_metrics();
        assert!(cases.len() > 40, "{}", cases.len());
        for case in cases {
            let target = String::from_utf8(case.bytes()).unwrap();
            let (path, query) = target.split_once('?').unwrap_or((&target, ""));
            let query = Query::of(Some(query));
            let selector = query.value("labelSelector").unwrap_or_default();
            let outcome = match question(path, selector) {
                Ok(Question::Metrics) => "200",
                Ok(Question::Values { .. }) => "answered",
                Err(QuestionError::Path(_)) => "404",
                Err(QuestionError::Selector(_)) => "400",
            };
            assert_eq!(outcome, case.expected, "{}", case.name);
        }
    }
}
