//! A port of an API server that records the requests which pass.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::net::TcpListener;

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
        tokio::spawn(relay.clone().serve(listener));
        relay
    }

    /// Writes a kubeconfig that leads to the port.
    pub(crate) fn write_kubeconfig(&self, path: &Path) {
        let server = format!("http://{}", self.address);
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{"name": "a", "cluster": {"server": server}}],
            "users": [{"name": "a", "user": {}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        });
        std::fs::write(path, text.to_string()).unwrap();
    }

    /// Takes the requests so far, `METHOD path?query`.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }

    async fn serve(self, listener: TcpListener) {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // The events of a watch are small writes.
            stream.set_nodelay(true).unwrap();
            let relay = self.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let relay = relay.clone();
                    async move { Ok::<_, Infallible>(relay.forward(request).await) }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                // A controller that is killed closes its connections.
                let _ = connection.await;
            });
        }
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
