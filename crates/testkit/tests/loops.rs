//! The loops and clients against servers of this process.
#![allow(clippy::unwrap_used, reason = "a failure is what a test is for")]

use std::cell::Cell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use maglor_testkit::load_generator::Clock;
use maglor_testkit::load_generator::closed::{self, Users};
use maglor_testkit::load_generator::http::{Call, Client, Protocol};
use maglor_testkit::load_generator::open::Open;
use maglor_testkit::load_generator::record::Record;
use maglor_testkit::load_generator::tls::Settings;
use tokio::net::TcpListener;
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

/// How a server responds: to the first request after a pause, to all with this status.
#[derive(Debug, Clone, Copy)]
struct Behaviour {
    status: u16,
    grpc_status: &'static str,
    first: Duration,
}

const GOOD: Behaviour = Behaviour {
    status: 200,
    grpc_status: "0",
    first: Duration::ZERO,
};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    LocalSet::new().block_on(&runtime.unwrap(), work)
}

/// Starts a server, and returns its address.
async fn server(protocol: Protocol, behaviour: Behaviour) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let count = Rc::new(Cell::new(0));
    tokio::task::spawn_local(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let io = TokioIo::new(stream);
            let count = Rc::clone(&count);
            let service = service_fn(move |request| {
                let turn = count.replace(count.get() + 1);
                respond(request, behaviour, turn)
            });
            tokio::task::spawn_local(async move {
                // Errors are those of clients that are gone.
                let _ = match protocol {
                    Protocol::Http1 => http1::Builder::new().serve_connection(io, service).await,
                    Protocol::Http2 | Protocol::Grpc => {
                        http2::Builder::new(LocalExecutor)
                            .serve_connection(io, service)
                            .await
                    }
                };
            });
        }
    });
    address
}

#[derive(Debug, Clone, Copy)]
struct LocalExecutor;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(async {
            task.await;
        });
    }
}

async fn respond(
    request: Request<Incoming>,
    behaviour: Behaviour,
    turn: u32,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    if turn == 0 {
        sleep(behaviour.first).await;
    }
    let is_grpc = request.headers().get("content-type").is_some();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    if is_grpc {
        assert_eq!(&body[..], b"\0\0\0\0\x03abc");
    }
    let mut trailers = HeaderMap::new();
    if is_grpc {
        trailers.insert(
            "grpc-status",
            HeaderValue::from_static(behaviour.grpc_status),
        );
    }
    let body = Full::new(Bytes::from_static(b"hello"));
    let body = body.with_trailers(async move { (!trailers.is_empty()).then_some(Ok(trailers)) });
    let response = Response::builder().status(behaviour.status).body(body);
    Ok(response.unwrap())
}

fn call(protocol: Protocol, address: SocketAddr) -> Rc<Call> {
    let url = format!("http://{address}/a").parse().unwrap();
    let body = Bytes::from_static(b"abc");
    let limit = Duration::from_secs(20);
    let (what, tls) = ((Method::POST, url), Settings::default());
    let call = Call::new(protocol, what, HeaderMap::new(), body, limit, &tls);
    Rc::new(call.unwrap())
}

fn clients(call: &Rc<Call>, count: usize) -> Vec<Client> {
    (0..count).map(|_| Client::new(Rc::clone(call))).collect()
}

/// Waits until the record has as many successes and failures together.
async fn until(record: &Record, count: u64) {
    let enough = async {
        loop {
            let failed: u64 = record.failures().values().sum();
            if record.measured().count() + failed >= count {
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), enough).await.unwrap();
}

/// Lets users send at least 30 requests, and returns their record.
async fn thirty(protocol: Protocol, behaviour: Behaviour) -> Rc<Record> {
    let call = call(protocol, server(protocol, behaviour).await);
    let record = Rc::new(Record::new(Instant::now(), Duration::ZERO));
    let users = closed::start(clients(&call, 3), Users::default(), &record);
    until(&record, 30).await;
    drop(users);
    record
}

#[test]
fn every_protocol_is_answered() {
    block_on(async {
        for protocol in [Protocol::Http1, Protocol::Http2, Protocol::Grpc] {
            let record = thirty(protocol, GOOD).await;
            assert!(record.measured().count() >= 30, "{protocol:?}");
            assert_eq!(record.failures().len(), 0, "{:?}", record.failures());
        }
    });
}

#[test]
fn failures_are_counted_by_kind() {
    block_on(async {
        let unavailable = Behaviour {
            status: 503,
            ..GOOD
        };
        let aborted = Behaviour {
            grpc_status: "10",
            ..GOOD
        };
        for (protocol, behaviour, kind) in [
            (Protocol::Http1, unavailable, "status 503"),
            (Protocol::Http2, unavailable, "status 503"),
            (Protocol::Grpc, aborted, "gRPC status 10"),
        ] {
            let call = call(protocol, server(protocol, behaviour).await);
            let record = Rc::new(Record::new(Instant::now(), Duration::ZERO));
            let users = closed::start(clients(&call, 2), Users::default(), &record);
            until(&record, 4).await;
            drop(users);
            assert_eq!(record.measured().count(), 0);
            let failures = record.failures();
            assert_eq!(failures.keys().collect::<Vec<_>>(), [kind]);
        }
    });
}

/// A server that stalls for 0.4 s delays all requests that are due meanwhile.
#[test]
fn the_latency_of_an_open_loop_counts_from_when_a_request_was_due() {
    block_on(async {
        let stalls = Behaviour {
            first: Duration::from_millis(400),
            ..GOOD
        };
        let call = call(Protocol::Http1, server(Protocol::Http1, stalls).await);
        let began = Instant::now();
        let record = Rc::new(Record::new(began, Duration::ZERO));
        let open = Open::start(clients(&call, 1), &record);
        let due = (0..50).map(|turn| began + Duration::from_millis(10) * turn);
        let clock = Clock::new().unwrap();
        let mut sessions = open.pace(due, &clock).await.unwrap();
        let ended = async { while sessions.join_next().await.is_some() {} };
        timeout(Duration::from_secs(30), ended).await.unwrap();
        assert_eq!(record.measured().count(), 50);
        assert!(record.measured().max() >= 400.0);
        // 40 of the 50 are due during the stall, and wait from 400 ms down to 10 ms.
        assert!(record.measured().quantile(0.5) > 100.0);
    });
}

#[test]
fn users_think_and_do_not_poll_a_closed_port() {
    block_on(async {
        let call_ = call(Protocol::Http1, server(Protocol::Http1, GOOD).await);
        let began = Instant::now();
        let record = Rc::new(Record::new(began, Duration::ZERO));
        let think = Duration::from_millis(50);
        let users = Users {
            think,
            ..Users::default()
        };
        let users = closed::start(clients(&call_, 1), users, &record);
        until(&record, 5).await;
        drop(users);
        assert!(began.elapsed() >= think * 4);

        let closed_port = {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            listener.local_addr().unwrap()
        };
        let began = Instant::now();
        let record = Rc::new(Record::new(began, Duration::ZERO));
        let call_ = call(Protocol::Http1, closed_port);
        let users = closed::start(clients(&call_, 1), Users::default(), &record);
        until(&record, 3).await;
        drop(users);
        assert!(began.elapsed() >= Duration::from_millis(200));
        let kinds: Vec<_> = record.failures().into_keys().collect();
        assert_eq!(kinds, ["cannot connect: connection refused"]);
    });
}

#[test]
fn users_start_within_the_ramp() {
    block_on(async {
        let call = call(Protocol::Http1, server(Protocol::Http1, GOOD).await);
        let began = Instant::now();
        let record = Rc::new(Record::new(began, Duration::ZERO));
        let users = Users {
            ramp: Duration::from_millis(400),
            // So long that each user sends one request.
            think: Duration::from_secs(60),
        };
        let users = closed::start(clients(&call, 4), users, &record);
        until(&record, 4).await;
        drop(users);
        assert!(began.elapsed() >= Duration::from_millis(300));
    });
}
