//! Executes the behaviour selected by the path of a request: the table in [`super`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    UPGRADE,
};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::json;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use xxhash_rust::xxh3::Xxh3;

use super::body::{self, Body};
use super::io::Interim;
use super::record::{OpenConnection, Recorded, Shared};
use super::tunnel;
use crate::pattern::PatternBody;

const EARLY_HINTS: &[u8] =
    b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload; as=style\r\n\r\n";

/// The state that a behaviour may need besides the request.
pub(super) struct Call {
    pub(super) shared: Arc<Shared>,
    pub(super) open: Arc<OpenConnection>,
    pub(super) interim: Interim,
    pub(super) recorded: Recorded,
}

/// Responds to a request. An error closes the connection or, in HTTP/2, resets the stream.
pub(super) async fn serve(call: Call, request: Request<Incoming>) -> io::Result<Response<Body>> {
    let name = HeaderValue::from_str(call.shared.name()).map_err(io::Error::other)?;
    let head_only = request.method() == Method::HEAD && request.version() == Version::HTTP_2;
    let mut response = match call.shared.choose(&call.recorded) {
        Some(answer) => {
            read(request.into_body()).await?;
            answer.respond().await?
        }
        None => behave(&call, request).await?,
    };
    response.headers_mut().insert("x-upstream", name);
    if head_only {
        leave_out_body(&mut response);
    }
    Ok(response)
}

/// Removes the body of a response to HEAD, which hyper does in HTTP/1.1 only.
fn leave_out_body(response: &mut Response<Body>) {
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    *response.body_mut() = body::full("");
}

async fn behave(call: &Call, request: Request<Incoming>) -> io::Result<Response<Body>> {
    if request.method() == Method::CONNECT {
        return Ok(connect(call, request));
    }
    let path = request
        .headers()
        .get("x-behave")
        .and_then(|path| path.to_str().ok())
        .unwrap_or(request.uri().path())
        .to_owned();
    let mut segments = path.trim_matches('/').split('/');
    let action = segments.next().unwrap_or_default();
    let (first, second) = (segments.next().unwrap_or(""), segments.next().unwrap_or(""));
    match action {
        // These do not wait for the end of the request.
        "early" if !second.is_empty() => {
            let body = PatternBody::sized(number(second)?).boxed();
            let mut response = Response::new(body);
            *response.status_mut() = status(first)?;
            return Ok(response);
        }
        "early" => return Ok(empty(status(first)?)),
        "close" => return Err(io::ErrorKind::ConnectionAborted.into()),
        "hang" => std::future::pending().await,
        "ws" | "upgrade" => return upgrade(call, request, action == "ws"),
        "echo" => return echo(&call.recorded, request.into_body()).await,
        "upload" | "continue" => return upload(request.into_body()).await,
        _ => read(request.into_body()).await?,
    };
    let body = match action {
        "status" => return Ok(empty(status(first)?)),
        "delay" => {
            tokio::time::sleep(time(first)?).await;
            body::full(call.shared.name().to_owned())
        }
        "bytes" => PatternBody::sized(number(first)?).boxed(),
        "chunked" => PatternBody::streamed(number(first)?).boxed(),
        "drip" => body::drip(number(first)?, time(second)?),
        "trailers" => return Ok(body::example_with_trailers()),
        "stall" => {
            let length = number(first)?;
            return Ok(promising(length + 1, body::stalling(length)));
        }
        "close-after-head" => return Ok(promising(1000, body::breaking())),
        "sse" => {
            let events = body::events(number(first)?, time(second)?);
            return Ok(typed("text/event-stream", events));
        }
        "early-hints" => {
            if call.recorded.version != Version::HTTP_2 {
                call.interim.push(EARLY_HINTS);
            }
            body::full("after the hints")
        }
        _ => body::full(call.shared.name().to_owned()),
    };
    Ok(Response::new(body))
}

/// A body read to its end.
struct Read {
    /// The beginning of it.
    kept: Vec<u8>,
    length: u64,
    hash: Xxh3,
    trailers: HeaderMap,
}

async fn read(mut body: Incoming) -> io::Result<Read> {
    const KEEP: usize = 1 << 20;
    let mut read = Read {
        kept: Vec::new(),
        length: 0,
        hash: Xxh3::new(),
        trailers: HeaderMap::new(),
    };
    while let Some(frame) = body.frame().await {
        match frame.map_err(io::Error::other)?.into_data() {
            Ok(data) => {
                read.length += data.len() as u64;
                read.hash.update(&data);
                let room = KEEP - read.kept.len();
                read.kept.extend_from_slice(&data[..data.len().min(room)]);
            }
            Err(frame) => read
                .trailers
                .extend(frame.into_trailers().ok().unwrap_or_default()),
        }
    }
    Ok(read)
}

async fn echo(recorded: &Recorded, body: Incoming) -> io::Result<Response<Body>> {
    let read = read(body).await?;
    Ok(typed_json(&json!({
        "method": recorded.method.as_str(),
        "uri": recorded.uri.to_string(),
        "version": format!("{:?}", recorded.version),
        "headers": pairs(&recorded.headers),
        "body": String::from_utf8_lossy(&read.kept),
        "trailers": pairs(&read.trailers),
    })))
}

async fn upload(body: Incoming) -> io::Result<Response<Body>> {
    let read = read(body).await?;
    Ok(typed_json(&json!({
        "bytes": read.length,
        "hash": read.hash.digest(),
        "trailers": pairs(&read.trailers),
    })))
}

/// Returns header fields as `[[name, value], …]`, in their order as far as it was kept.
fn pairs(headers: &HeaderMap) -> serde_json::Value {
    headers
        .iter()
        .map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]))
        .collect()
}

fn upgrade(call: &Call, mut request: Request<Incoming>, ws: bool) -> io::Result<Response<Body>> {
    let open = Arc::clone(&call.open);
    let upgrade = hyper::upgrade::on(&mut request);
    let mut response = empty(StatusCode::SWITCHING_PROTOCOLS);
    let headers = response.headers_mut();
    if ws {
        let Some(key) = request.headers().get(SEC_WEBSOCKET_KEY) else {
            return Ok(empty(StatusCode::BAD_REQUEST));
        };
        let accept = derive_accept_key(key.as_bytes());
        let accept = HeaderValue::from_str(&accept).map_err(io::Error::other)?;
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    let Some(protocol) = request.headers().get(UPGRADE) else {
        return Ok(empty(StatusCode::UPGRADE_REQUIRED));
    };
    headers.insert(UPGRADE, protocol.clone());
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    if ws {
        tunnel::echo_messages(upgrade, open);
    } else {
        tunnel::echo_bytes(upgrade, open);
    }
    Ok(response)
}

/// Opens a tunnel; with `:protocol` (RFC 8441) a WebSocket, if requested.
fn connect(call: &Call, mut request: Request<Incoming>) -> Response<Body> {
    let open = Arc::clone(&call.open);
    let upgrade = hyper::upgrade::on(&mut request);
    let protocol = request.extensions().get::<hyper::ext::Protocol>();
    if protocol.is_some_and(|protocol| protocol.as_str() == "websocket") {
        tunnel::echo_messages(upgrade, open);
    } else {
        tunnel::echo_bytes(upgrade, open);
    }
    empty(StatusCode::OK)
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(body::full(""));
    *response.status_mut() = status;
    response
}

/// Creates a response whose body may be shorter than announced.
fn promising(length: u64, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_LENGTH, length.into());
    response
}

fn typed(content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

fn typed_json(value: &serde_json::Value) -> Response<Body> {
    typed("application/json", body::full(value.to_string()))
}

fn number(text: &str) -> io::Result<u64> {
    text.parse().map_err(|_| bad(text))
}

fn status(text: &str) -> io::Result<StatusCode> {
    text.parse().map_err(|_| bad(text))
}

fn time(text: &str) -> io::Result<Duration> {
    let parse = |digits: &str| number(digits);
    match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(millis), _) => parse(millis).map(Duration::from_millis),
        (None, Some(seconds)) => parse(seconds).map(Duration::from_secs),
        (None, None) => Err(bad(text)),
    }
}

/// Creates the error of a mistake in the test; the connection is closed, and the log has the
/// reason.
fn bad(text: &str) -> io::Error {
    eprintln!("upstream: \"{text}\" in the path is not understood");
    io::ErrorKind::InvalidInput.into()
}
