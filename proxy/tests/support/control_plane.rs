//! A control plane with resources set by the test.

use std::net::SocketAddr;
use std::sync::Arc;

use maglor_config::{raw, resource};
use maglor_testkit::TIMEOUT;
use maglor_xds::grpc_server::{Node, Peer, Policy, Server, Status};
use maglor_xds::server::Scope;
use maglor_xds::{Health, Kind, Listener, Resource, ServedEndpoint, encode};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

struct Everybody;

impl Policy for Everybody {
    fn authorize(&self, _: &Peer, _: &Node) -> Result<Scope, Status> {
        Ok(Arc::new(|_, name| Some(name.into())))
    }
}

/// Returns a policy that sends every client all resources.
pub(crate) fn everybody() -> Arc<dyn Policy> {
    Arc::new(Everybody)
}

/// A control plane on a free port; stopped on drop.
pub(crate) struct ControlPlane {
    pub(crate) server: Server,
    pub(crate) address: SocketAddr,
    runtime: Option<Runtime>,
}

impl ControlPlane {
    pub(crate) fn start() -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), Server::new(everybody()))
    }

    pub(crate) fn at(address: SocketAddr, server: Server) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind(address)).unwrap();
        let address = listener.local_addr().unwrap();
        let serving = server.clone();
        runtime.spawn(async move {
            loop {
                let (socket, address) = listener.accept().await.unwrap();
                let peer = Peer {
                    address,
                    identity: None,
                };
                tokio::spawn(serving.clone().serve(socket, peer));
            }
        });
        Self {
            server,
            address,
            runtime: Some(runtime),
        }
    }

    pub(crate) fn put(&self, resource: Resource) {
        self.server.cache(|cache, now| cache.set(resource, now));
    }

    pub(crate) fn remove(&self, kind: Kind, name: &str) {
        self.server
            .cache(|cache, now| cache.remove(kind, name, now));
    }

    /// Publishes an HTTP service with one cluster.
    pub(crate) fn serve(&self, target: &str, cluster: &str, upstreams: &[SocketAddr]) {
        self.serve_with(target, &format!("{{name: {cluster}}}"), upstreams);
    }

    /// The same with the cluster in the notation of a configuration file.
    pub(crate) fn serve_with(&self, target: &str, cluster: &str, upstreams: &[SocketAddr]) {
        let routes = target.to_owned();
        let http = Listener::Http {
            routes,
            bytes: None,
        };
        let cluster = cluster_of(cluster);
        self.put(encode::listener(target, &http).unwrap());
        self.route(target, &format!("{{cluster: {}}}", cluster.name));
        self.assign(&cluster.name, upstreams);
        self.put(cluster);
    }

    /// Publishes a TCP service with one cluster.
    pub(crate) fn serve_bytes(&self, target: &str, cluster: &str, upstreams: &[SocketAddr]) {
        let tcp = Listener::Tcp {
            cluster: cluster.to_owned(),
        };
        self.put(encode::listener(target, &tcp).unwrap());
        self.put(cluster_of(&format!("{{name: {cluster}}}")));
        self.assign(cluster, upstreams);
    }

    /// Publishes the settings of a workload's inbound listener.
    pub(crate) fn inbound(&self, workload: &str, words: &str) {
        self.inbound_ahead(workload, words, &[]);
    }

    /// The same, with services that the workload is expected to call.
    pub(crate) fn inbound_ahead(&self, workload: &str, words: &str, ahead: &[String]) {
        let inbound = resource::read(words, "test").unwrap();
        self.put(encode::inbound(workload, &inbound, ahead).unwrap());
    }

    /// Returns the reason of the last rejected resource that has not been accepted since.
    pub(crate) fn refusal(&self) -> Option<String> {
        let sessions = self.server.sessions();
        let nack = sessions.first()?.nacks.first()?;
        Some(nack.reason.to_string())
    }

    pub(crate) fn route(&self, target: &str, route: &str) {
        let text =
            format!("{{name: {target:?}, virtual_hosts: [{{domains: ['*'], routes: [{route}]}}]}}");
        let table: raw::RouteTable = resource::read(&text, "test").unwrap();
        self.put(encode::routes(&table).unwrap());
    }

    pub(crate) fn assign(&self, cluster: &str, upstreams: &[impl ToString]) {
        let endpoint = |address: &dyn ToString| ServedEndpoint {
            described: raw::Endpoint {
                address: Some(address.to_string()),
                ..raw::Endpoint::default()
            },
            health: Health::Healthy,
        };
        let all: Vec<_> = upstreams.iter().map(|one| endpoint(one)).collect();
        self.put(encode::endpoints(cluster, &all).unwrap());
    }

    /// Stops the server abruptly, like a killed process.
    pub(crate) fn kill(mut self) -> (SocketAddr, Server) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(TIMEOUT);
        }
        (self.address, self.server.clone())
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Returns a cluster from the notation of a configuration file.
pub(crate) fn cluster_of(text: &str) -> Resource {
    encode::cluster(&resource::read::<raw::Cluster>(text, "test").unwrap()).unwrap()
}
