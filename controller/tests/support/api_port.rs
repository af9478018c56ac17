//! A port that answers as an API server does, over plain text.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;

/// Serves connections with `answer`; never returns.
pub(crate) async fn serve<A, F, B>(listener: TcpListener, answer: A)
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        // The events of a watch are small writes.
        stream.set_nodelay(true).unwrap();
        let answer = answer.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answered = answer(request);
                async move { Ok::<_, Infallible>(answered.await) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service);
            // A controller that is killed closes its connections.
            let _ = connection.await;
        });
    }
}

/// Serves connections to a free port with `answer`, and returns its address.
pub(crate) async fn start<A, F, B>(answer: A) -> SocketAddr
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, answer));
    address
}

/// Writes a kubeconfig that leads to the port.
pub(crate) fn write_kubeconfig(path: &Path, address: SocketAddr) {
    let server = format!("http://{address}");
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": server}}],
        "users": [{"name": "a", "user": {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    });
    std::fs::write(path, text.to_string()).unwrap();
}
