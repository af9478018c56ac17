//! Serves the graph as JSON, for operators and for other replicas.

use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::Full;
use serde_json::{Value, json};

use super::Graphs;
use crate::query::Query;
use crate::resource_server::Table;

/// Returns the part of the graph that the query selects.
pub(crate) fn graph(graphs: &Graphs, query: &Query<'_>) -> Response<Full<Bytes>> {
    if query.is_empty() {
        value(&json!(graphs.snapshot()))
    } else if query.has("history") {
        value(&json!({"snapshots": graphs.history()}))
    } else if query.has("recent") {
        // Another replica has viewers, who also need frequent reports of the proxies here.
        graphs.set_watched(query.has("watched"));
        value(&json!(graphs.recent_parts()))
    } else if query.has("parts") {
        value(&json!(graphs.parts()))
    } else if query.has("proxies") {
        value(&json!(graphs.proxies()))
    } else if query.has("called") {
        value(&json!(graphs.called_here()))
    } else if query.has("delays") {
        value(&json!(graphs.delays()))
    } else {
        let what = "the query must be empty, `called`, `delays`, `history`, `parts`, `proxies` or `recent`\n";
        text(StatusCode::BAD_REQUEST, what.to_owned())
    }
}

/// Returns the shared proxies of groups of Services.
pub(crate) fn shared(table: &Table) -> Response<Full<Bytes>> {
    value(&json!(table.shared_proxies()))
}

/// Returns a text response.
pub(crate) fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response
}

/// Returns a JSON response.
pub(crate) fn value(value: &Value) -> Response<Full<Bytes>> {
    let mut response = text(StatusCode::OK, format!("{value:#}\n"));
    let kind = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
