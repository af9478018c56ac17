//! A port of an API server that records the requests which pass.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use kube::Client;
use kube::client::Body;
use tokio::net::TcpListener;

use crate::support::api_port;

/// See the module's documentation. Requests are forwarded as the client's user.
#[derive(Clone)]
pub(crate) struct Relay {
    client: Client,
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Relay {
    pub(crate) async fn start(client: Client) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = Self {
            client,
            address: listener.local_addr().unwrap(),
            requests: Arc::default(),
        };
        let served = relay.clone();
        let answer = move |request| {
            let relay = served.clone();
            async move { relay.forward(request).await }
        };
        tokio::spawn(api_port::serve(listener, answer));
        relay
    }

    /// Writes a kubeconfig that leads to the port.
    pub(crate) fn write_kubeconfig(&self, path: &Path) {
        api_port::write_kubeconfig(path, self.address);
    }

    /// Takes the requests so far, `METHOD path?query`.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }

    async fn forward(&self, request: Request<Incoming>) -> Response<Body> {
        let (mut head, body) = request.into_parts();
        let said = format!("{} {}", head.method, head.uri);
        self.requests.lock().unwrap().push(said);
        head.headers.remove(http::header::HOST);
        let Ok(body) = body.collect().await else {
            return refused();
        };
        let request = Request::from_parts(head, Body::from(body.to_bytes()));
        let forwarded = self.client.send(request).await;
        forwarded.unwrap_or_else(|_| refused())
    }
}

fn refused() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = http::StatusCode::BAD_GATEWAY;
    response
}
