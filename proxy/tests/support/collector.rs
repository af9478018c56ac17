//! A collector of spans: a real OTLP receiver over HTTP or gRPC, which decodes with messages of its own.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use maglor_testkit::{TIMEOUT, eventually};
use prost::Message;
use tokio::sync::oneshot;
use tokio::task::LocalSet;

/// The transport of a collector.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Transport {
    Grpc,
    Http,
}

/// A running collector; it resets its connections when it is dropped.
pub(crate) struct Collector {
    address: SocketAddr,
    transport: Transport,
    received: Arc<Mutex<Vec<Span>>>,
    rejected: Arc<Mutex<i64>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A span with its attributes as text.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    /// Empty for the first one of a trace.
    pub(crate) parent: String,
    pub(crate) state: String,
    pub(crate) is_server: bool,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) failed: bool,
    pub(crate) flags: u32,
    attributes: Vec<(String, String)>,
    resource: Vec<(String, String)>,
}

impl Span {
    /// Returns the value of an attribute; `-` if there is none.
    #[track_caller]
    pub(crate) fn get(&self, key: &str) -> &str {
        find(&self.attributes, key)
    }

    pub(crate) fn resource(&self, key: &str) -> &str {
        find(&self.resource, key)
    }
}

#[track_caller]
fn find<'a>(attributes: &'a [(String, String)], key: &str) -> &'a str {
    let mut found = attributes.iter().filter(|(name, _)| name == key);
    let value = found.next().map_or("-", |(_, value)| value);
    assert!(found.next().is_none(), "{key} is there twice");
    value
}

impl Collector {
    pub(crate) fn start(transport: Transport) -> Self {
        Self::at((Ipv4Addr::LOCALHOST, 0).into(), transport)
    }

    /// Starts one at the address of an earlier one.
    pub(crate) fn at(address: SocketAddr, transport: Transport) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let (received, rejected) = (Arc::<Mutex<_>>::default(), Arc::<Mutex<_>>::default());
        let (stop, stopped) = oneshot::channel();
        let state = (Arc::clone(&received), Arc::clone(&rejected));
        let thread = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            let local = LocalSet::new();
            local.block_on(&runtime, async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    () = accept(listener, transport, state) => {}
                    _ = stopped => {}
                }
            });
        });
        Self {
            address,
            transport,
            received,
            rejected,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the settings of a proxy that uses it, without `sampling`; see [`super::Web::top`].
    pub(crate) fn tracing(&self, sampling: &str) -> String {
        let protocol = match self.transport {
            Transport::Grpc => "grpc",
            Transport::Http => "http",
        };
        format!(
            "tracing: {{cluster: collector, protocol: {protocol}, service_name: shop, sampling: {{{sampling}}}}}"
        )
    }

    /// Returns the cluster that [`Self::tracing`] names, as the end of a configuration.
    pub(crate) fn cluster(&self) -> String {
        format!("- {{name: collector, endpoints: [\"{}\"]}}\n", self.address)
    }

    /// Makes it reject this many spans of each batch.
    pub(crate) fn reject(&self, spans: i64) {
        *self.rejected.lock().unwrap() = spans;
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        self.received.lock().unwrap().clone()
    }

    /// Waits for this many spans, and returns them in the order of their beginnings.
    #[track_caller]
    pub(crate) fn wait_for(&self, count: usize) -> Vec<Span> {
        eventually(TIMEOUT, "spans arrive", || self.spans().len() >= count);
        let mut spans = self.spans();
        assert_eq!(spans.len(), count, "{spans:#?}");
        spans.sort_by_key(|span| (span.start, !span.is_server));
        spans
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

type State = (Arc<Mutex<Vec<Span>>>, Arc<Mutex<i64>>);
type Body = UnsyncBoxBody<Bytes, Infallible>;

async fn accept(listener: tokio::net::TcpListener, transport: Transport, state: State) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let state = state.clone();
        let service = service_fn(move |request| answer(request, transport, state.clone()));
        let io = TokioIo::new(stream);
        tokio::task::spawn_local(async move {
            match transport {
                Transport::Http => {
                    let http1 = hyper::server::conn::http1::Builder::new();
                    let _ = http1.serve_connection(io, service).await;
                }
                Transport::Grpc => {
                    let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    // Connections of this kind need no other thread, but their executor may use one.
                    let _ = http2.serve_connection(io, service).await;
                }
            }
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    transport: Transport,
    (received, rejected): State,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let (path, content_type, message) = match transport {
        Transport::Http => ("/v1/traces", "application/x-protobuf", &body[..]),
        Transport::Grpc => {
            let length = u32::from_be_bytes(body[1..5].try_into().unwrap());
            assert_eq!((body[0], length as usize), (0, body.len() - 5));
            let path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
            (path, "application/grpc", &body[5..])
        }
    };
    assert_eq!((head.method.as_str(), head.uri.path()), ("POST", path));
    assert_eq!(head.headers["content-type"], content_type);
    let request = ExportTraceServiceRequest::decode(message).unwrap();
    received.lock().unwrap().extend(spans(request));
    let rejected_spans = *rejected.lock().unwrap();
    let partial = PartialSuccess { rejected_spans };
    let answer = ExportTraceServiceResponse {
        partial_success: (rejected_spans > 0).then_some(partial),
    };
    let answer = answer.encode_to_vec();
    let response = Response::builder().header("content-type", content_type);
    Ok(match transport {
        Transport::Http => response.body(Full::from(answer).boxed_unsync()).unwrap(),
        Transport::Grpc => {
            let mut framed = vec![0];
            framed.extend_from_slice(&u32::try_from(answer.len()).unwrap().to_be_bytes());
            framed.extend_from_slice(&answer);
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            let frames = [Frame::data(Bytes::from(framed)), Frame::trailers(trailers)];
            let frames = futures_util::stream::iter(frames.map(Ok));
            response
                .body(StreamBody::new(frames).boxed_unsync())
                .unwrap()
        }
    })
}

fn spans(request: ExportTraceServiceRequest) -> Vec<Span> {
    let mut spans = Vec::new();
    for of_resource in request.resource_spans {
        let resource = texts(&of_resource.resource.unwrap().attributes);
        for of_scope in of_resource.scope_spans {
            assert_eq!(of_scope.scope.unwrap().name, "maglor-proxy");
            spans.extend(of_scope.spans.into_iter().map(|span| Span {
                name: span.name,
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                state: span.trace_state,
                is_server: is_server(span.kind),
                start: span.start_time_unix_nano,
                end: span.end_time_unix_nano,
                failed: span.status.is_some_and(|status| status.code == 2),
                flags: span.flags,
                attributes: texts(&span.attributes),
                resource: resource.clone(),
            }));
        }
    }
    spans
}

fn is_server(kind: i32) -> bool {
    assert!(matches!(kind, 2 | 3), "a span of kind {kind}");
    kind == 2
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn texts(attributes: &[KeyValue]) -> Vec<(String, String)> {
    let text = |one: &KeyValue| {
        let value = match one.value.as_ref().unwrap().value.as_ref().unwrap() {
            AnyValueKind::Text(text) => text.clone(),
            AnyValueKind::Number(number) => number.to_string(),
        };
        (one.key.clone(), value)
    };
    attributes.iter().map(text).collect()
}

// OTLP's messages (`opentelemetry/proto`), as far as they are used.

#[derive(Clone, PartialEq, Message)]
struct ExportTraceServiceRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ExportTraceServiceResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_spans: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<ResourceMessage>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceMessage {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<SpanMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct SpanMessage {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "AnyValueKind", tags = "1, 3")]
    value: Option<AnyValueKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum AnyValueKind {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}
