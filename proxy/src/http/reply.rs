//! Responses that the proxy generates itself.

use std::time::SystemTime;

use http::StatusCode;
use maglor_config::route::DirectResponse;

use crate::mesh::load_feedback::queue_protocol::{PROTOCOL, QueueResponse};
use crate::protocol::error::ProxyError;
use crate::protocol::fields::{Fields, Known};
use crate::protocol::message::{Body, Response};

const TEXT: &[u8] = b"text/plain; charset=utf-8";

/// Returns the response for an error.
pub(crate) fn error(error: &ProxyError, server: &str, grpc: bool) -> Response {
    let verdict = error.verdict();
    let mut response = if grpc {
        let mut response = own(StatusCode::OK, Body::empty(), server);
        let fields = &mut response.fields;
        fields.push(Known::ContentType, b"application/grpc");
        fields.push(Known::GrpcStatus, verdict.grpc.to_string().as_bytes());
        fields.push(
            Known::GrpcMessage,
            grpc_message(&error.to_string()).as_bytes(),
        );
        response
    } else {
        let mut response = own(verdict.status, Body::full(format!("{error}\n")), server);
        response.fields.push(Known::ContentType, TEXT);
        response
    };
    let fields = &mut response.fields;
    fields.push(Known::XMaglorReason, verdict.flag.as_str().as_bytes());
    if let ProxyError::Busy(in_flight) = error {
        QueueResponse::Refused(*in_flight).set(fields);
    }
    if let Some(wait) = error.retry_after() {
        // Rounded up to whole seconds, so that the client does not retry too early.
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        fields.push(Known::RetryAfter, seconds.max(1).to_string().as_bytes());
    }
    response
}

/// Percent-encodes a `grpc-message`, as the gRPC protocol requires.
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

/// Returns the response that switches from HTTP to the queue protocol.
pub(crate) fn channel_upgrade() -> Response {
    let mut fields = Fields::default();
    fields.push(Known::Connection, b"upgrade");
    fields.push(Known::Upgrade, PROTOCOL);
    Response {
        status: StatusCode::SWITCHING_PROTOCOLS,
        fields,
        body: Body::channel_upgrade(),
    }
}

/// Returns the response that a route's `direct_response` configures.
pub(crate) fn direct(direct: &DirectResponse, server: &str) -> Response {
    let body = Body::full(direct.body.as_bytes().to_vec());
    let mut response = own(direct.status, body, server);
    for (name, value) in &direct.headers {
        response.fields.push(name, value.as_bytes());
    }
    if !direct.body.is_empty() && !response.fields.contains(Known::ContentType) {
        response.fields.push(Known::ContentType, TEXT);
    }
    response
}

/// Returns a redirect.
pub(crate) fn redirect(status: StatusCode, location: &[u8], server: &str) -> Response {
    let mut response = own(status, Body::empty(), server);
    response.fields.push(Known::Location, location);
    response
}

fn own(status: StatusCode, body: Body, server: &str) -> Response {
    let mut fields = Fields::default();
    fields.push(Known::Server, server.as_bytes());
    let date = httpdate::fmt_http_date(SystemTime::now());
    fields.push(Known::Date, date.as_bytes());
    Response {
        status,
        fields,
        body,
    }
}
