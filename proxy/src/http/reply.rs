//! Responses that the proxy makes itself.

use std::time::SystemTime;

use http::header::{self, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use maglor_config::route::DirectResponse;

use crate::error::ProxyError;
use crate::message::Body;

/// Says in one word why the proxy, and not an endpoint, answered.
const REASON: HeaderName = HeaderName::from_static("x-maglor-reason");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The response for an error.
pub(crate) fn error(error: &ProxyError, server: &HeaderValue, grpc: bool) -> Response<Body> {
    let verdict = error.verdict();
    let mut response = if grpc {
        let mut response = own(StatusCode::OK, Body::empty(), server);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(GRPC_STATUS, HeaderValue::from(u16::from(verdict.grpc)));
        if let Ok(message) = HeaderValue::from_str(&grpc_message(&error.to_string())) {
            headers.insert(GRPC_MESSAGE, message);
        }
        response
    } else {
        let mut response = own(verdict.status, Body::full(format!("{error}\n")), server);
        response.headers_mut().insert(header::CONTENT_TYPE, TEXT);
        response
    };
    response.headers_mut().insert(REASON, HeaderValue::from_static(verdict.flag));
    response
}

/// Percent-encoding as the gRPC protocol has it for `grpc-message`.
fn grpc_message(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for &byte in text.as_bytes() {
        if (0x20..=0x7e).contains(&byte) && byte != b'%' {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// The response that a route's `direct_response` asks for.
pub(crate) fn direct(direct: &DirectResponse, server: &HeaderValue) -> Response<Body> {
    let body = Body::full(direct.body.as_bytes().to_vec());
    let mut response = own(direct.status, body, server);
    let headers = response.headers_mut();
    for (name, value) in &direct.headers {
        headers.append(name, value.clone());
    }
    if !direct.body.is_empty() && !headers.contains_key(header::CONTENT_TYPE) {
        headers.insert(header::CONTENT_TYPE, TEXT);
    }
    response
}

/// A redirect.
pub(crate) fn redirect(
    status: StatusCode,
    location: HeaderValue,
    server: &HeaderValue,
) -> Response<Body> {
    let mut response = own(status, Body::empty(), server);
    response.headers_mut().insert(header::LOCATION, location);
    response
}

/// The answer to a CONNECT that has reached its endpoint.
pub(crate) fn connected(body: Body) -> Response<Body> {
    Response::new(body)
}

fn own(status: StatusCode, body: Body, server: &HeaderValue) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::SERVER, server.clone());
    let date = httpdate::fmt_http_date(SystemTime::now());
    if let Ok(date) = HeaderValue::from_str(&date) {
        headers.insert(header::DATE, date);
    }
    response
}
