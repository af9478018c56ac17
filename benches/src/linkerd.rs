//! A stand-in for Linkerd's control plane, enough for linkerd2-proxy to run without Linkerd and Kubernetes.
//!
//! One gRPC port has the services that the proxy calls: `identity` signs its certificate, `policy` returns the policies of
//! a service's clients and of any server, `discovery` the endpoints of a service. The messages are those of the crate `linkerd2-proxy-api`, and
//! the values are the defaults of Linkerd's policy controller.

mod discovery;
mod identity;
mod policy;
mod services;

use std::convert::Infallible;
use std::fmt;
use std::io::Write as _;
use std::net::{AddrParseError, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

use crate::error::{Doing, Result};
use crate::http;

pub(crate) use identity::{Documents, NAME};
use services::ControlPlane;

/// The answers of the stand-in.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// The address of the gRPC port.
    #[arg(long)]
    pub listen: SocketAddr,
    /// The directory with the root certificate and its key.
    #[arg(long)]
    pub directory: PathBuf,
    /// The services, as `ADDRESS=ENDPOINT,ENDPOINT`.
    #[arg(long, required = true)]
    pub service: Vec<ServiceEndpoints>,
    /// The endpoints have a proxy, too: connections to them use mutual TLS and HTTP/2.
    #[arg(long)]
    pub mesh: bool,
}

/// A service, and where its connections go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceEndpoints {
    /// Where clients connect.
    pub address: SocketAddr,
    /// Where their proxies connect.
    pub endpoints: Vec<SocketAddr>,
}

impl FromStr for ServiceEndpoints {
    type Err = AddrParseError;

    fn from_str(text: &str) -> std::result::Result<Self, AddrParseError> {
        let (address, endpoints) = text.split_once('=').unwrap_or((text, ""));
        Ok(Self {
            address: address.parse()?,
            endpoints: endpoints
                .split(',')
                .map(str::parse)
                .collect::<std::result::Result<_, _>>()?,
        })
    }
}

impl fmt::Display for ServiceEndpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoints: Vec<_> = self.endpoints.iter().map(ToString::to_string).collect();
        write!(f, "{}={}", self.address, endpoints.join(","))
    }
}

/// Serves until killed; prints `ready` once it listens.
///
/// # Errors
/// The root cannot be read, or the address is already in use.
pub fn run(options: &Options) -> Result<()> {
    let control = Arc::new(ControlPlane::new(options)?);
    http::block_on(async {
        let listener = TcpListener::bind(options.listen).await;
        let listener = listener.doing(format!("listen on {}", options.listen))?;
        writeln!(std::io::stdout(), "ready").doing("report that the control plane is ready")?;
        serve(&listener, &control).await;
        Ok(())
    })
}

async fn serve(listener: &TcpListener, control: &Arc<ControlPlane>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let control = Arc::clone(control);
        let service = service_fn(move |request| {
            let control = Arc::clone(&control);
            async move { Ok::<_, Infallible>(services::call(control, request).await) }
        });
        let connection = http2::Builder::new(TokioExecutor::new());
        // A proxy that ends closes its connection: no error of the stand-in.
        tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
    }
}

#[cfg(test)]
mod tests {
    use linkerd2_proxy_api::outbound::outbound_policies_client::OutboundPoliciesClient;
    use linkerd2_proxy_api::outbound::{TrafficSpec, traffic_spec};
    use tonic::transport::Endpoint;

    use super::*;

    const SERVICE: &str = "10.89.0.1:80=10.90.0.1:80,10.90.0.2:81";

    #[test]
    fn services_are_parsed_and_formatted() {
        let service: ServiceEndpoints = SERVICE.parse().unwrap();
        assert_eq!(service.endpoints.len(), 2);
        assert_eq!(service.to_string(), SERVICE);
        for malformed in ["", "10.89.0.1:80", "10.89.0.1:80=", "x=10.90.0.1:80"] {
            assert!(
                malformed.parse::<ServiceEndpoints>().is_err(),
                "{malformed}"
            );
        }
    }

    #[test]
    fn answers_over_a_socket() {
        let directory = tempfile::tempdir().unwrap();
        Documents::create()
            .unwrap()
            .write(directory.path())
            .unwrap();
        let options = Options {
            listen: "127.0.0.1:0".parse().unwrap(),
            directory: directory.path().into(),
            service: vec![SERVICE.parse().unwrap()],
            mesh: true,
        };
        let control = Arc::new(ControlPlane::new(&options).unwrap());
        let talked = http::block_on(async {
            let listener = TcpListener::bind(options.listen).await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::task::spawn_local(async move { serve(&listener, &control).await });
            let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
            let channel = endpoint.connect().await.unwrap();
            let spec = TrafficSpec {
                source_workload: "bench".into(),
                target: Some(traffic_spec::Target::Addr(
                    options.service[0].address.into(),
                )),
            };
            let mut policies = OutboundPoliciesClient::new(channel);
            let policy = policies.get(spec).await.unwrap();
            assert!(policy.into_inner().protocol.is_some());
            Ok(())
        });
        talked.unwrap();
    }
}
