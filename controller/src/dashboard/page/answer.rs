//! Responses: files of the page, documents, and errors, with headers that browsers use to isolate the page.

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use serde_json::json;

use crate::dashboard::page::assets::Asset;
use crate::dashboard::page::hub::Document;
use crate::dashboard::page::stream::Content;
use crate::dashboard::page::tokens::Denied;

/// A response.
pub(crate) type Answer = Response<Content>;

/// No script, style or request but from this origin, and no frame around the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Headers of each response.
const SECURITY: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), geolocation=(), microphone=()",
    ),
];
const JSON: &str = "application/json";

/// Returns a response without a body.
fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(Content::Whole(None));
    *answer.status_mut() = status;
    answer
}

/// Adds the headers of each response, and removes the body if only the head was requested.
pub(crate) fn finished(mut answer: Answer, head_only: bool) -> Answer {
    for (name, value) in SECURITY {
        answer
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    let default = HeaderValue::from_static("no-store");
    answer
        .headers_mut()
        .entry(header::CACHE_CONTROL)
        .or_insert(default);
    if head_only {
        if let Content::Whole(Some(body)) = answer.body() {
            let length = HeaderValue::from(body.len());
            answer.headers_mut().insert(header::CONTENT_LENGTH, length);
        }
        *answer.body_mut() = Content::Whole(None);
    }
    answer
}

/// Returns an error as JSON.
pub(crate) fn error(status: StatusCode, message: &str) -> Answer {
    let text = json!({"error": message}).to_string();
    let mut answer = whole(text.into(), JSON);
    *answer.status_mut() = status;
    if status == StatusCode::UNAUTHORIZED {
        let bearer = HeaderValue::from_static("Bearer");
        answer
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, bearer);
    }
    answer
}

/// Returns the response to a request without a token.
pub(crate) fn without_token() -> Answer {
    let why = "a token is required: `Authorization: Bearer TOKEN`";
    error(StatusCode::UNAUTHORIZED, why)
}

/// Returns the response to a request whose token is not accepted; `forbidden` names the missing permission.
pub(crate) fn denied(denied: Denied, forbidden: &str) -> Answer {
    let (status, why) = match denied {
        Denied::Forbidden => (StatusCode::FORBIDDEN, forbidden),
        Denied::Invalid => (
            StatusCode::UNAUTHORIZED,
            "the token is invalid or has expired",
        ),
        Denied::TooOften => (
            StatusCode::TOO_MANY_REQUESTS,
            "too many invalid tokens; retry in 10 s",
        ),
        Denied::Unavailable => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the API server cannot review the token",
        ),
    };
    error(status, why)
}

fn whole(body: Bytes, content_type: &'static str) -> Answer {
    let mut answer = Response::new(Content::Whole(Some(body)));
    let kind = HeaderValue::from_static(content_type);
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

/// Returns a stream of events.
pub(crate) fn events(receiver: tokio::sync::mpsc::Receiver<Bytes>) -> Answer {
    let mut answer = Response::new(Content::Events(receiver, None));
    let kind = HeaderValue::from_static("text/event-stream");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

/// Returns a document, or 304 if the client has it.
pub(crate) fn document(head: &Parts, document: &Document) -> Answer {
    tagged(head, &document.hash, || whole(document.text.clone(), JSON))
}

/// Returns a file of the page, or 304 if the client has it.
pub(crate) fn asset(head: &Parts, asset: &'static Asset) -> Answer {
    let compressed = accepts_gzip(head);
    let hash = match compressed {
        true => format!("{}-gz", asset.hash),
        false => asset.hash.to_owned(),
    };
    let mut answer = tagged(head, &hash, || {
        let body = if compressed {
            asset.compressed
        } else {
            asset.plain
        };
        let mut answer = whole(Bytes::from_static(body), asset.content_type);
        if compressed {
            let gzip = HeaderValue::from_static("gzip");
            answer.headers_mut().insert(header::CONTENT_ENCODING, gzip);
        }
        answer
    });
    let vary = HeaderValue::from_static("Accept-Encoding");
    answer.headers_mut().insert(header::VARY, vary);
    answer
}

fn tagged(head: &Parts, hash: &str, full: impl Fn() -> Answer) -> Answer {
    let tag = format!("\"{hash}\"");
    let has = head
        .headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .any(|value| {
            let tags = value.to_str().unwrap_or_default().split(',').map(str::trim);
            let mut tags = tags.map(|one| one.strip_prefix("W/").unwrap_or(one));
            tags.any(|one| one == tag || one == "*")
        });
    let mut answer = if has {
        empty(StatusCode::NOT_MODIFIED)
    } else {
        full()
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        answer.headers_mut().insert(header::ETAG, tag);
    }
    let revalidate = HeaderValue::from_static("no-cache");
    answer
        .headers_mut()
        .insert(header::CACHE_CONTROL, revalidate);
    answer
}

/// Returns whether a client accepts gzip (RFC 9110, 12.5.3).
fn accepts_gzip(head: &Parts) -> bool {
    let fields = head.headers.get_all(header::ACCEPT_ENCODING).iter();
    let codings = fields.flat_map(|value| value.to_str().unwrap_or_default().split(','));
    let mut codings = codings.map(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        (name.trim(), weight.trim().trim_start_matches("q=").trim())
    });
    codings.any(|(name, weight)| {
        let none = !weight.is_empty() && weight.parse() == Ok(0.0);
        name.eq_ignore_ascii_case("gzip") && !none
    })
}
