//! A controller of a cluster: the parts of every controller, the servers that the API server calls, and the operators.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::dashboard::{Certificate, Page, Sources};
use super::kubernetes::Kubernetes;
pub(crate) use super::kubernetes::Settings;
use super::threads::{Boxed, Thread, Threads};
use super::{Mesh, Options, Parts, RunError, Shown, Started, bind};
use crate::api_server;
use crate::clients::Clients;
use crate::dashboard::{self, Origin, PortForwards, Reviews};
use crate::events::Events;
use crate::gateway;
use crate::graph::Graphs;
use crate::graph::usage::Source as UsageOfPods;
use crate::https;
use crate::lease::{self, Term};
use crate::metrics::Metrics;
use crate::placement;
use crate::proxy_service;
use crate::resource_server::Table;
use crate::source;
use crate::source::Event;
use crate::status_writer;
use crate::tuning;

/// Runs a controller of a cluster until `stop` resolves.
///
/// # Errors
/// If the controller cannot be started.
pub(crate) async fn run(
    options: Options,
    settings: Settings,
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let mut parts = Parts::bind(options).await?;
    let port = parts.listener.local_addr();
    let port = port.map_or(0, |address| address.port());
    let mut kubernetes =
        Kubernetes::connect(settings, port, (&mut parts.threads, &parts.metrics)).await?;
    let usage = UsageOfPods::new(kubernetes.clients.operators.clone());
    let graphs = Graphs::new(parts.options.graph).with_usage(Box::new(usage));
    let mesh = parts.mesh(Some(&kubernetes.identity()), graphs)?;
    if let Some(service) = &mesh.service {
        kubernetes.connector.tls = Some(service.replicas.clone());
    }
    share(&kubernetes, &mesh, &mut parts);
    let external = kubernetes.settings.external_metrics;
    let webhook = kubernetes.settings.webhook.take();
    let ready = Arc::new(AtomicBool::new(webhook.is_none()));
    let certificate = match webhook {
        Some(webhook) => {
            let shared = (&kubernetes, &mesh.graphs, &ready);
            Some(serve_api_server(webhook, external, shared, &mut parts).await?)
        }
        None => None,
    };
    let page = show(&kubernetes, &mesh, certificate, &mut parts).await?;
    let shown = Shown {
        dashboard: page.and_then(|page| page.address),
        webhook: ready,
    };
    let (metrics, graphs) = (Arc::clone(&parts.metrics), Arc::clone(&mesh.graphs));
    let table = mesh.table.clone();
    let start = move |events, threads: &mut Threads| {
        start(kubernetes, events, (&metrics, &graphs, &table), threads)
    };
    parts.serve(mesh, shown, start, stop).await
}

/// Publishes the graph, and collects what the other replicas observe.
fn share(kubernetes: &Kubernetes, mesh: &Mesh, parts: &mut Parts) {
    let mut spawn = |name, task: Boxed| parts.threads.spawn(Thread::Operators, name, task);
    let publisher = kubernetes.publisher(&mesh.graphs);
    spawn("graph publisher", Box::pin(publisher.run()));
    if parts.options.graph.interval.is_some() {
        let shared = kubernetes.replicas();
        let shared = shared.share_called(Arc::clone(&mesh.graphs));
        spawn("graph of replicas", Box::pin(shared));
    }
}

/// Starts the servers that the API server calls: the webhook and external metrics. Returns their certificate.
async fn serve_api_server(
    webhook: crate::webhook::Options,
    external_metrics: Option<SocketAddr>,
    (kubernetes, graphs, ready): (&Kubernetes, &Arc<Graphs>, &Arc<AtomicBool>),
    parts: &mut Parts,
) -> Result<Certificate, RunError> {
    let (threads, metrics) = (&mut parts.threads, &parts.metrics);
    let socket = threads.make(Thread::Webhook, bind(webhook.listen)).await?;
    let webhook = kubernetes.webhook(webhook, metrics, ready);
    let certificate = (webhook.serving.subscribe(), webhook.names());
    if let Some(address) = external_metrics {
        let socket = threads.make(Thread::Operators, bind(address)).await?;
        let served = kubernetes.external_metrics(graphs, webhook.serving.subscribe());
        let clients = Clients::new(https::LIMITS, metrics.clients("external-metrics"));
        threads.spawn(
            Thread::Operators,
            "external metrics",
            served.run(socket, clients),
        );
    }
    threads.spawn(Thread::Webhook, "webhook", webhook.run(socket));
    Ok(certificate)
}

/// Starts the dashboard if it is enabled, with the decisions of operators, the reports of the other replicas, and the
/// admin ports of proxies. `certificate` is the webhook's.
async fn show(
    kubernetes: &Kubernetes,
    mesh: &Mesh,
    certificate: Option<Certificate>,
    parts: &mut Parts,
) -> Result<Option<Page>, RunError> {
    let options = &parts.options.dashboard;
    let https = options.https;
    if !options.is_enabled() {
        return Ok(None);
    }
    let client = parts
        .threads
        .make(Thread::Dashboard, api_server::client())
        .await?;
    let (watched, followed) = dashboard::watch(&client);
    parts
        .threads
        .spawn(Thread::Dashboard, "policies of the dashboard", followed);
    let config = parts.threads.make(Thread::Dashboard, api_server::config());
    let permissions = PortForwards::new(config.await?, &mesh.graphs);
    let sources = Sources {
        origin: Origin {
            replica: Some(kubernetes.settings.replica.clone()),
            decisions: Some(Arc::new(watched)),
            permissions: Some(Arc::new(permissions)),
        },
        reviewer: https.map(|_| Arc::new(Reviews::new(client)) as _),
        certificate,
    };
    let page = parts.dashboard(mesh, sources).await?;
    if let Some(page) = &page {
        let followed = Arc::clone(&page.feed).follow(kubernetes.replicas());
        parts.threads.spawn(
            Thread::Dashboard,
            "graph of replicas for the dashboard",
            followed,
        );
    }
    Ok(page)
}

/// Starts the source of resources, the operators, and the writers of statuses.
fn start(
    kubernetes: Kubernetes,
    events: mpsc::Sender<Event>,
    (metrics, graphs, table): (&Arc<Metrics>, &Arc<Graphs>, &Table),
    threads: &mut Threads,
) -> Started {
    let (stop, stopped) = watch::channel(false);
    let mut spawn = |name, task: Boxed| threads.spawn(Thread::Operators, name, task);
    let replicas = kubernetes.replicas();
    let placed = placement::run::run(kubernetes.placement(graphs, metrics));
    spawn("placement", Box::pin(placed));
    let tuned = tuning::run::run(kubernetes.tuning(graphs, metrics));
    spawn("tuning", Box::pin(tuned));
    let Kubernetes {
        clients,
        settings,
        term,
        own_term,
        ..
    } = kubernetes;
    let Settings {
        namespace,
        replica,
        revision,
        proxies,
        inserts,
        gateways,
        auto,
        ..
    } = settings;
    let (statuses, wanted) = mpsc::unbounded_channel();
    let written = status_writer::write(clients.operators.clone(), wanted, term.subscribe());
    spawn("statuses", Box::pin(written));
    let inserted = proxy_service::run::Options {
        client: clients.operators.clone(),
        root: namespace.clone(),
        replicas,
        graphs: Arc::clone(graphs),
        table: table.clone(),
        settings: proxies,
        inserts,
        limits: auto,
    };
    let operator = proxy_service::run::run(inserted, term.subscribe());
    spawn("ProxyServices", Box::pin(operator));
    let secrets = gateways
        .as_ref()
        .map(|options| options.certificates.clone());
    if let Some(options) = gateways {
        let client = clients.operators.clone();
        let events = Events::new(client.clone(), "maglor.dev/gateway", &replica);
        let operator = gateway::run::run(client, *options, term.subscribe(), events);
        spawn("gateways", Box::pin(operator));
    }
    let shown = show_term(term.subscribe(), Arc::clone(metrics));
    spawn("leader metric", Box::pin(shown));
    let (watched, client) = (clients.discovery, clients.lease);
    let answered = metrics.on_call.answered.clone();
    let lease = async move {
        lease::hold(
            client,
            &namespace,
            &revision.lease(),
            &replica,
            own_term,
            stopped,
        )
        .await;
    };
    Started {
        watch: tokio::spawn(async move {
            source::kubernetes::watch(watched, events, secrets, answered).await;
            Ok(())
        }),
        statuses: Some(statuses),
        lease: Some(threads.spawn_watched(Thread::Lease, "lease", lease)),
        stop,
    }
}

/// Pause after the computed end of the leadership, whose clocks have a finer resolution than timers.
const AFTER_END: Duration = Duration::from_millis(10);

/// Keeps the leader metric up to date. No event reports that a partition has ended the leadership.
async fn show_term(mut term: watch::Receiver<Term>, metrics: Arc<Metrics>) {
    loop {
        let now = *term.borrow_and_update();
        let holds = now.holds(Instant::now());
        metrics.leads(holds);
        tokio::select! {
            changed = term.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(now.left() + AFTER_END), if holds => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a partition, no event reports the end of the leadership.
    #[tokio::test]
    async fn the_metric_of_the_leader_is_true_in_a_partition() {
        let metrics = Arc::new(Metrics::new());
        let table = Table::new(false);
        let leads = || {
            let shown = metrics.expose(&table, "", "").body;
            String::from_utf8_lossy(&shown).contains("\nmaglor_controller_leader 1\n")
        };
        let (term, seen) = watch::channel(Term::of_seconds(2));
        let shown = show_term(seen, Arc::clone(&metrics));
        let turns = async {
            for expected in [true, false] {
                while leads() != expected {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        };
        tokio::select! {
            () = turns => {}
            () = shown => panic!("it is shown as long as there is a term"),
            () = tokio::time::sleep(Duration::from_secs(60)) => panic!("it leads for ever"),
        }
        drop(term);
    }
}
