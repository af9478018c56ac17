//! Serves the page with a simulated mesh, for work on the page: `cargo run -p maglor-controller --example dashboard --
//! 127.0.0.1:8088 50 500` with 50 services and 500 edges. The first service loses a replica for 10 s of each 30 s. The
//! second address that it prints has the true graph as JSON.

#![allow(
    clippy::unwrap_used,
    reason = "for work on the page; it shares the simulated mesh with tests"
)]

#[path = "../tests/page/support.rs"]
mod support;

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use maglor_controller::dashboard::page::{Access, Dashboard, Source as _, View};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use self::support::Simulated;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments
        .next()
        .unwrap_or_else(|| "127.0.0.1:8088".to_owned());
    let mut count = |default: usize| {
        let text = arguments.next();
        text.map_or(Ok(default), |text| text.parse())
    };
    let (services, edges) = (count(8)?, count(12)?);
    let mesh = Simulated::new(services, edges);
    let proxy = support::tapped_proxy().await;
    mesh.taps
        .lock()
        .unwrap()
        .push(("shop/productpage-0".to_owned(), proxy));
    let dashboard = Dashboard::new(Arc::<Simulated>::clone(&mesh), Access::default());
    let socket = TcpListener::bind(address).await?;
    let truth = TcpListener::bind("127.0.0.1:0").await?;
    println!(
        "http://{}/ http://{}/",
        socket.local_addr()?,
        truth.local_addr()?
    );
    tokio::spawn(dashboard.clone().serve_socket(socket));
    tokio::spawn(serve_truth(truth, Arc::clone(&mesh)));
    tokio::spawn(async move { dashboard.run().await });
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let second = mesh.seconds.fetch_add(1, Ordering::Relaxed) + 1;
        mesh.killed.store(second % 30 >= 20, Ordering::Relaxed);
    }
}

/// Answers each connection with the true graph.
async fn serve_truth(socket: TcpListener, mesh: Arc<Simulated>) {
    while let Ok((mut tcp, _)) = socket.accept().await {
        let graph = mesh.mesh(View::Service);
        let edges = graph.edges.iter().map(|edge| {
            json!({"from": edge.from, "to": edge.to, "rps": edge.signals.rps, "failures": edge.signals.failures})
        });
        let replicas = graph.vertices.iter();
        let replicas = replicas.map(|(name, vertex)| (name.clone(), vertex.replicas.into()));
        let body = json!({"edges": edges.collect::<Vec<_>>(), "replicas": replicas.collect::<serde_json::Map<_, _>>()});
        let body = body.to_string();
        let mut head = [0; 1024];
        let _ = tcp.read(&mut head).await;
        let response = format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let _ = tcp.write_all(response.as_bytes()).await;
    }
}
