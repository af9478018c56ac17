//! Starts the dashboard on a thread of its own, so that viewers delay nothing else.

use std::net::SocketAddr;
use std::sync::Arc;

use maglor_dashboard::{Access, Dashboard, Reviewer};

use super::kubernetes::Kubernetes;
use super::threads::{Thread, Threads};
use super::{RunError, bind};
use crate::api_server;
use crate::dashboard::{self, Decisions, Feed, Options, Reviews};
use crate::graph::Graphs;
use crate::https::Serving;
use crate::resource_server::Table;

/// Starts the dashboard if it is enabled; returns its loopback address. `serving` is the webhook's certificate.
pub(super) async fn start(
    options: Options,
    (kubernetes, graphs, table): (Option<&Kubernetes>, &Arc<Graphs>, &Table),
    serving: Option<Serving>,
    threads: &mut Threads,
) -> Result<Option<SocketAddr>, RunError> {
    if !options.is_enabled() {
        return Ok(None);
    }
    let mut access = Access {
        host_names: options.host_names,
        reviewer: None,
    };
    let (mut decisions, mut replica) = (Decisions::default(), None);
    if let Some(kubernetes) = kubernetes {
        let client = threads
            .make(Thread::Dashboard, api_server::client())
            .await?;
        let (watched, followed) = dashboard::watch(&client);
        threads.spawn(Thread::Dashboard, "policies of the dashboard", followed);
        decisions = watched.into();
        replica = Some(kubernetes.replica.clone());
        if options.https.is_some() {
            access.reviewer = Some(Arc::new(Reviews::new(client)) as Arc<dyn Reviewer>);
        }
    }
    let feed = Feed::new(graphs, table, (replica, decisions), options.proxies);
    let feed = Arc::new(feed);
    if let Some(kubernetes) = kubernetes {
        let followed = Arc::clone(&feed).follow(kubernetes.replicas());
        threads.spawn(
            Thread::Dashboard,
            "graph of replicas for the dashboard",
            followed,
        );
    }
    let dashboard = Dashboard::new(feed, access);
    let runs = dashboard.clone();
    threads.spawn(
        Thread::Dashboard,
        "dashboard",
        async move { runs.run().await },
    );
    if let (Some(address), Some(serving)) = (options.https, serving) {
        let socket = threads.make(Thread::Dashboard, bind(address)).await?;
        tracing::info!(address = ?socket.local_addr().ok(), "dashboard listening (HTTPS)");
        let served = dashboard::serve(dashboard.clone(), socket, serving);
        threads.spawn(Thread::Dashboard, "dashboard (HTTPS)", served);
    }
    let Some(address) = options.address else {
        return Ok(None);
    };
    let socket = threads.make(Thread::Dashboard, bind(address)).await?;
    let address = socket.local_addr().ok();
    tracing::info!(?address, "dashboard listening");
    threads.spawn(
        Thread::Dashboard,
        "dashboard server",
        dashboard.serve_socket(socket),
    );
    Ok(address)
}
