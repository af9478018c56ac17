//! A port of an API server that records the requests which pass.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use kube::Client;
use kube::client::Body;

use crate::support::api_port;

/// `METHOD path?query` of each request.
type Requests = Arc<Mutex<Vec<String>>>;

/// See the module's documentation. Requests are forwarded as the client's user.
pub(crate) struct Relay {
    address: SocketAddr,
    requests: Requests,
}

impl Relay {
    pub(crate) async fn start(client: Client) -> Self {
        let requests = Requests::default();
        let seen = Arc::clone(&requests);
        let answer = move |request| forward(client.clone(), Arc::clone(&seen), request);
        let address = api_port::start(answer).await;
        Self { address, requests }
    }

    /// Writes a kubeconfig that leads to the port.
    pub(crate) fn write_kubeconfig(&self, path: &Path) {
        api_port::write_kubeconfig(path, self.address);
    }

    /// Takes the requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

async fn forward(client: Client, requests: Requests, request: Request<Incoming>) -> Response<Body> {
    let (mut head, body) = request.into_parts();
    let said = format!("{} {}", head.method, head.uri);
    requests.lock().unwrap().push(said);
    head.headers.remove(http::header::HOST);
    let Ok(body) = body.collect().await else {
        return refused();
    };
    let request = Request::from_parts(head, Body::from(body.to_bytes()));
    let forwarded = client.send(request).await;
    forwarded.unwrap_or_else(|_| refused())
}

fn refused() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = http::StatusCode::BAD_GATEWAY;
    response
}
