//! A replica's application: a small HTTP/1.1 server without knowledge of the mesh.
//!
//! It processes one request at a time, in the order of arrival, by sleeping; it calls other
//! services through its sidecar, by their names.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use maglor_balance::Rng;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};

use super::fault::{ERRORS, SLOWER};
use super::members;
use super::services::{Replica, SERVICES, callers};
use crate::demo::client::Client;
use crate::demo::exponential;

/// The headers that an application forwards to called services, so that a request can be traced.
const PASSED_ON: [HeaderName; 3] = [
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
];
/// The header with the client's identity, set by the sidecar.
const CLIENT: HeaderName = HeaderName::from_static("x-forwarded-client-cert");
/// The limit of a request's work, in mean times.
const MOST_WORK: f64 = 8.0;

/// One replica's application.
#[derive(Debug)]
pub(super) struct Application {
    replica: Replica,
    /// Clients of the called services by name, through the sidecar.
    calls: Vec<Rc<Client>>,
    /// The ids of the expected callers.
    callers: Vec<String>,
    rng: RefCell<Rng>,
    /// Its only worker; waits are served in order.
    worker: Mutex<()>,
    pub(super) slow: Cell<bool>,
    pub(super) failing: Cell<bool>,
    /// The number of requests, and of those whose caller was authenticated and expected; reset when
    /// read.
    arrived: Cell<u64>,
    proved: Cell<u64>,
    serving: RefCell<Option<Serving>>,
}

/// The server's task, which ends when this is dropped.
#[derive(Debug)]
struct Serving(JoinHandle<()>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Application {
    /// Creates an application that is not started. Its calls go to `sidecar`.
    pub(super) fn new(replica: Replica, sidecar: SocketAddr, seed: u64) -> Rc<Self> {
        let calls = SERVICES[replica.service].calls.iter();
        let client = |&called: &usize| Rc::new(Client::new(sidecar, SERVICES[called].name));
        let ids = callers(replica.service).map(members::id);
        let place = (replica.service as u64) << 8 | u64::from(replica.number.get());
        Rc::new(Self {
            replica,
            calls: calls.map(client).collect(),
            callers: ids.collect(),
            rng: RefCell::new(Rng::seed(seed ^ place)),
            worker: Mutex::new(()),
            slow: Cell::default(),
            failing: Cell::default(),
            arrived: Cell::default(),
            proved: Cell::default(),
            serving: RefCell::default(),
        })
    }

    /// Accepts connections until [`Application::stop`].
    pub(super) async fn start(self: &Rc<Self>, address: SocketAddr) -> io::Result<()> {
        let socket = TcpListener::bind(address).await?;
        let task = tokio::task::spawn_local(Rc::clone(self).serve(socket));
        self.serving.replace(Some(Serving(task)));
        Ok(())
    }

    /// Stops at once, including requests in progress; its socket is closed when this returns.
    pub(super) async fn stop(&self) {
        let serving = self.serving.take();
        if let Some(mut serving) = serving {
            serving.0.abort();
            // Cancelled, as requested.
            let _ = (&mut serving.0).await;
        }
    }

    /// Returns the number of requests since the last call, and of those whose caller was
    /// authenticated and expected.
    pub(super) fn take_arrivals(&self) -> (u64, u64) {
        (self.arrived.take(), self.proved.take())
    }

    async fn serve(self: Rc<Self>, socket: TcpListener) {
        // Dropped with this task, which ends the connections.
        let mut connections = JoinSet::new();
        while let Ok((tcp, _)) = socket.accept().await {
            while connections.try_join_next().is_some() {}
            let _ = tcp.set_nodelay(true);
            let this = Rc::clone(&self);
            connections.spawn_local(async move {
                let service = service_fn(|request| {
                    let this = Rc::clone(&this);
                    async move { Ok::<_, Infallible>(this.answer(&request).await) }
                });
                // A disconnected client is no error here.
                let _ = http1::Builder::new()
                    .serve_connection(TokioIo::new(tcp), service)
                    .await;
            });
        }
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        self.arrived.set(self.arrived.get() + 1);
        if self.is_expected(request.headers()) {
            self.proved.set(self.proved.get() + 1);
        }
        if self.slow.get() {
            tokio::time::sleep(SLOWER).await;
        }
        {
            let _turn = self.worker.lock().await;
            tokio::time::sleep(self.work()).await;
        }
        let fails = self.failing.get() && self.rng.borrow_mut().unit() < ERRORS;
        let (status, text) = if fails {
            (StatusCode::INTERNAL_SERVER_ERROR, "injected fault\n".into())
        } else if self.ask_others(request.headers()).await {
            (StatusCode::OK, format!("{}\n", self.replica))
        } else {
            (
                StatusCode::BAD_GATEWAY,
                "a required service failed\n".into(),
            )
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        response
    }

    fn work(&self) -> Duration {
        let work = exponential(&mut self.rng.borrow_mut()).min(MOST_WORK);
        SERVICES[self.replica.service].work.mul_f64(work)
    }

    /// Calls all needed services concurrently; returns whether all have responded successfully.
    async fn ask_others(&self, headers: &HeaderMap) -> bool {
        let mut asked = JoinSet::new();
        for client in &self.calls {
            let client = Rc::clone(client);
            let mut request = Client::request("/");
            pass_on(headers, request.headers_mut());
            asked.spawn_local(async move { client.send(request).await.is_ok() });
        }
        asked.join_all().await.into_iter().all(|well| well)
    }

    fn is_expected(&self, headers: &HeaderMap) -> bool {
        let client = headers.get(CLIENT).and_then(|value| value.to_str().ok());
        let uri =
            client.and_then(|client| client.split(';').find_map(|part| part.strip_prefix("URI=")));
        uri.is_some_and(|uri| self.callers.iter().any(|id| id == uri))
    }
}

fn pass_on(from: &HeaderMap, to: &mut HeaderMap) {
    for name in PASSED_ON {
        if let Some(value) = from.get(&name) {
            to.insert(name, value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::super::services::RATINGS;
    use super::*;

    #[test]
    fn what_identifies_a_request_is_passed_on() {
        let mut from = HeaderMap::new();
        from.insert("traceparent", HeaderValue::from_static("00-a-b-01"));
        from.insert("cookie", HeaderValue::from_static("secret"));
        let mut to = HeaderMap::new();
        pass_on(&from, &mut to);
        assert_eq!((to.len(), &to["traceparent"]), (1, &from["traceparent"]));
    }

    #[test]
    fn only_callers_are_expected() {
        let sidecar = SocketAddr::from(([127, 0, 0, 1], 1));
        let ratings = Application::new(Replica::new(RATINGS, 1), sidecar, 1);
        let expected = |service: &str| {
            let text = format!("By={};URI={}", members::id("ratings"), members::id(service));
            let mut headers = HeaderMap::new();
            headers.insert(CLIENT, HeaderValue::try_from(text).unwrap());
            ratings.is_expected(&headers)
        };
        assert!(expected("reviews"));
        assert!(!expected("details"));
        assert!(!ratings.is_expected(&HeaderMap::new()));
    }
}
