//! Starts the dashboard on a thread of its own, so that viewers delay nothing else.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::dashboard::page::{Access, Dashboard, Reviewer};

use super::threads::{Thread, Threads};
use super::{RunError, bind};
use crate::dashboard::{self, Feed, Options, Origin};
use crate::graph::Graphs;
use crate::https::Serving;
use crate::resource_server::Table;

/// What a cluster adds to the dashboard.
#[derive(Default)]
pub(super) struct Sources {
    /// Its data.
    pub(super) origin: Origin,
    /// Reviews the tokens of users; `None` without HTTPS.
    pub(super) reviewer: Option<Arc<dyn Reviewer>>,
    /// The webhook's certificate, for HTTPS.
    pub(super) certificate: Option<Certificate>,
}

/// A certificate, and the names for which it is valid: those of the controller's Service.
pub(super) type Certificate = (Serving, Vec<String>);

/// The started dashboard.
pub(super) struct Page {
    /// Its data.
    pub(super) feed: Arc<Feed>,
    /// Its loopback address.
    pub(super) address: Option<SocketAddr>,
}

/// Starts the dashboard if it is enabled.
pub(super) async fn start(
    options: Options,
    (graphs, table): (&Arc<Graphs>, &Table),
    sources: Sources,
    threads: &mut Threads,
) -> Result<Option<Page>, RunError> {
    if !options.is_enabled() {
        return Ok(None);
    }
    let mut host_names = options.host_names;
    if let Some((_, names)) = &sources.certificate {
        host_names.extend_from_slice(names);
    }
    let access = Access {
        host_names,
        reviewer: sources.reviewer,
    };
    let feed = Feed::new(graphs, table, sources.origin, options.proxies);
    let feed = Arc::new(feed);
    let mut page = Page {
        feed: Arc::clone(&feed),
        address: None,
    };
    let dashboard = Dashboard::new(feed, access);
    let runs = dashboard.clone();
    threads.spawn(
        Thread::Dashboard,
        "dashboard",
        async move { runs.run().await },
    );
    if let (Some(address), Some((serving, _))) = (options.https, sources.certificate) {
        let socket = threads.make(Thread::Dashboard, bind(address)).await?;
        tracing::info!(address = ?socket.local_addr().ok(), "dashboard listening (HTTPS)");
        let served = dashboard::serve(dashboard.clone(), socket, serving);
        threads.spawn(Thread::Dashboard, "dashboard (HTTPS)", served);
    }
    if let Some(address) = options.address {
        let socket = threads.make(Thread::Dashboard, bind(address)).await?;
        page.address = socket.local_addr().ok();
        tracing::info!(address = ?page.address, "dashboard listening");
        threads.spawn(
            Thread::Dashboard,
            "dashboard server",
            dashboard.serve_socket(socket),
        );
    }
    Ok(Some(page))
}
