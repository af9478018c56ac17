//! Admin ports of proxies in a cluster. They answer in their own pods only, so connections go through the API server, as
//! by `kubectl port-forward`: with the token of the viewer, never with the permissions of the controller, which may not
//! connect to pods.

use std::collections::BTreeSet;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::dashboard::page::{
    AdminPort, Connecting, Connector, Denied, Io, Permissions, Permitted, Proxies,
};
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::config::AuthInfo;
use kube::{Api, Client, Config};
use maglor_manifests::inject::ADMIN_PORT;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::review::LIMIT;
use crate::api_server;
use crate::graph::Graphs;

/// Verbs on `pods/portforward`: a WebSocket begins with a GET, and the permission to connect is `create`.
const VERBS: [&str; 2] = ["create", "get"];
/// How many namespaces are reviewed at a time.
const AT_ONCE: usize = 8;
/// Maximum number of connections of all viewers; each takes about 100 kB.
const MOST_CONNECTIONS: usize = 256;

/// Connects viewers to proxies.
pub(crate) struct PortForwards {
    /// How to reach the API server; its credentials are replaced.
    config: Config,
    graphs: Arc<Graphs>,
    connections: Arc<Semaphore>,
}

impl PortForwards {
    /// Creates access to the pods with a sidecar in the present topology.
    pub(crate) fn new(config: Config, graphs: &Arc<Graphs>) -> Self {
        Self {
            config,
            graphs: Arc::clone(graphs),
            connections: Arc::new(Semaphore::new(MOST_CONNECTIONS)),
        }
    }
}

impl Permissions for PortForwards {
    fn proxies(&self, token: &str) -> Permitted {
        let client = client(self.config.clone(), token);
        let topology = self.graphs.topology();
        let connections = Arc::clone(&self.connections);
        Box::pin(async move {
            let client = client.map_err(|_| Denied::Unavailable)?;
            // Pods that have ended have no vertex.
            let names = topology.makers.keys();
            let names: Vec<_> = names
                .filter(|pod| topology.pods.contains_key(pod))
                .collect();
            let namespaces = names.iter().map(|pod| pod.namespace.clone()).collect();
            let limited = timeout(LIMIT, permitted(&client, namespaces)).await;
            let namespaces = limited.map_err(|_| Denied::Unavailable)??;
            let connector: Arc<dyn Connector> = Arc::new(OfViewer {
                client,
                connections,
            });
            let names = names.into_iter();
            let permitted = names.filter(|pod| namespaces.contains(&pod.namespace));
            let port = AdminPort::Through(connector);
            Ok::<Proxies, _>(
                permitted
                    .map(|pod| (pod.to_string(), port.clone()))
                    .collect(),
            )
        })
    }
}

/// Returns a client that has the credentials of a viewer, and none of the controller.
fn client(mut config: Config, token: &str) -> Result<Client, kube::Error> {
    config.auth_info = AuthInfo {
        token: Some(token.to_owned().into()),
        ..AuthInfo::default()
    };
    // A proxy without requests is silent.
    config.read_timeout = None;
    Client::try_from(config)
}

/// Returns those of the namespaces in which the user may connect to pods; fails if there are none of them.
async fn permitted(
    client: &Client,
    namespaces: BTreeSet<String>,
) -> Result<BTreeSet<String>, Denied> {
    if namespaces.is_empty() || may_connect(client, None).await? {
        return Ok(namespaces);
    }
    let reviews = namespaces.into_iter().map(|namespace| async move {
        let may = may_connect(client, Some(&namespace)).await?;
        Ok(may.then_some(namespace))
    });
    let mut reviews = stream::iter(reviews).buffer_unordered(AT_ONCE);
    let mut permitted = BTreeSet::new();
    while let Some(reviewed) = reviews.next().await {
        permitted.extend(reviewed?);
    }
    match permitted.is_empty() {
        true => Err(Denied::Forbidden),
        false => Ok(permitted),
    }
}

/// Returns whether the user may connect to the pods of a namespace, or of all.
async fn may_connect(client: &Client, namespace: Option<&str>) -> Result<bool, Denied> {
    let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
    for verb in VERBS {
        let created = reviews
            .create(&PostParams::default(), &question(verb, namespace))
            .await;
        let review = created.map_err(|error| match &error {
            error if api_server::is(error, 401) => Denied::Invalid,
            error if api_server::is(error, 403) => Denied::Forbidden,
            _ => Denied::Unavailable,
        })?;
        if !review.status.is_some_and(|status| status.allowed) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn question(verb: &str, namespace: Option<&str>) -> SelfSubjectAccessReview {
    let attributes = ResourceAttributes {
        namespace: namespace.map(str::to_owned),
        resource: Some("pods".to_owned()),
        subresource: Some("portforward".to_owned()),
        verb: Some(verb.to_owned()),
        ..ResourceAttributes::default()
    };
    SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    }
}

/// Opens connections with the permissions of one viewer.
struct OfViewer {
    client: Client,
    connections: Arc<Semaphore>,
}

impl Connector for OfViewer {
    fn connect(&self, proxy: &str) -> Connecting {
        let client = self.client.clone();
        let permit = Arc::clone(&self.connections).try_acquire_owned();
        let pod = proxy.to_owned();
        Box::pin(async move {
            let permit = permit.map_err(|_| {
                format!("{MOST_CONNECTIONS} connections to proxies are open; select a proxy, or retry later")
            })?;
            let (namespace, name) = pod.split_once('/').ok_or("not the name of a pod")?;
            let pods: Api<Pod> = Api::namespaced(client, namespace);
            let forwarded = pods.portforward(name, &[ADMIN_PORT]).await;
            let mut forwarded = forwarded.map_err(|error| error.to_string())?;
            let stream = forwarded.take_stream(ADMIN_PORT);
            Ok(Box::new(Counted {
                stream: stream.ok_or("port forwarding failed")?,
                _permit: permit,
            }) as Box<dyn Io>)
        })
    }
}

/// A connection that counts until it is dropped.
struct Counted {
    stream: DuplexStream,
    _permit: OwnedSemaphorePermit,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
