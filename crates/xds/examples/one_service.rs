//! A control plane of one service, to try clients against:
//!
//! ```text
//! cargo run -p maglor-xds --example one_service -- 127.0.0.1:15010 echo.shop.svc.cluster.local:80 127.0.0.1:9001 127.0.0.1:9002
//! ```
//!
//! The first argument is where it listens, the second the service's name, the others its endpoints.
//! The cluster is called `echo`. What clients refuse is printed.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use maglor_config::{raw, resource};
use maglor_xds::grpc_server::{Node, Peer, Policy, Server, Status};
use maglor_xds::server::Scope;
use maglor_xds::{Health, Listener, ServedEndpoint, encode};
use tokio::net::TcpListener;

struct Everybody;

impl Policy for Everybody {
    fn authorize(&self, _: &Peer, _: &Node) -> Result<Scope, Status> {
        Ok(Arc::new(|_, name| Some(name.into())))
    }
}

fn fill(server: &Server, service: &str, endpoints: &[String]) -> Result<(), Box<dyn Error>> {
    let routes = service.to_owned();
    let listener = Listener::Http {
        routes,
        bytes: None,
    };
    let table = format!(
        "{{name: {service:?}, virtual_hosts: [{{domains: ['*'], routes: [{{cluster: echo, retry: 5xx}}]}}]}}"
    );
    let table: raw::RouteTable = resource::read(&table, "routes")?;
    let text = "{name: echo, policy: round-robin, protocol: http2, limits: {max_requests: 1000}}";
    let cluster: raw::Cluster = resource::read(text, "cluster")?;
    let endpoint = |address: &String| ServedEndpoint {
        described: raw::Endpoint {
            address: Some(address.clone()),
            locality: Some("eu/a".to_owned()),
            ..raw::Endpoint::default()
        },
        health: Health::Healthy,
    };
    let endpoints: Vec<_> = endpoints.iter().map(endpoint).collect();
    let all = [
        encode::cluster(&cluster)?,
        encode::endpoints("echo", &endpoints)?,
        encode::listener(service, &listener)?,
        encode::routes(&table)?,
    ];
    server.cache(|cache, now| {
        for resource in all {
            cache.set(resource, now);
        }
    });
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, service, endpoints @ ..] = arguments.as_slice() else {
        return Err("usage: one_service LISTEN SERVICE:PORT ENDPOINT…".into());
    };
    let server = Server::new(Arc::new(Everybody));
    fill(&server, service, endpoints)?;
    let listener = TcpListener::bind(address).await?;
    let watched = server.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            for session in watched.sessions() {
                let (node, subscribed) = (&session.node, &session.subscribed);
                println!(
                    "{node} {:?} {subscribed:?} {:?}",
                    session.protocol, session.nacks
                );
            }
        }
    });
    loop {
        let (socket, address) = listener.accept().await?;
        let peer = Peer {
            address,
            identity: None,
        };
        tokio::spawn(server.clone().serve(socket, peer));
    }
}
