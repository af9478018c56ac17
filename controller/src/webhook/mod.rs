//! What the API server asks before it stores something: pods get their sidecars here, and the mesh's own resources
//! are refused where the proxy would refuse what they say.
//!
//! Every replica answers, over HTTPS with one certificate that all share (`certificate`). Who holds the Lease makes
//! it, renews it, and tells the API server by which root to know it (`keep`). Nothing has to be installed for that.
//!
//! Who asks is not checked: an answer only repeats what the question held. What cannot be decided (the namespace
//! cannot be read, say) is answered with 500, so that the `failurePolicy` decides.

mod certificate;
mod decide;
mod keep;
mod server;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kube::Client;
use maglor_inject::{Form, Settings};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::events::Events;
use crate::https;
use crate::lease::Term;
use crate::metrics::Metrics;
use crate::placement::wishes::Wishes;

pub(crate) use decide::asked;
pub use decide::{Decision, Word, inject, validate};

/// Name of the `MutatingWebhookConfiguration`.
pub const INJECT: &str = "maglor-inject";
/// Name of the `ValidatingWebhookConfiguration`.
pub const VALIDATE: &str = "maglor-validate";
/// Secret with the certificate, in the controller's namespace.
pub const SECRET: &str = "maglor-webhook";
/// The Service by which the API server finds the webhook.
pub const SERVICE: &str = "maglor-controller";

/// The minor version of Kubernetes 1 that knows native sidecars without being told to.
const NATIVE: u32 = 29;

/// What the webhook is to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// What sidecars are like.
    pub settings: Settings,
}

/// A webhook that runs until it is dropped.
pub(crate) struct Webhook {
    pub(crate) client: Client,
    /// The controller's.
    pub(crate) namespace: String,
    pub(crate) events: Events,
    pub(crate) settings: Settings,
    pub(crate) term: watch::Receiver<Term>,
    pub(crate) metrics: Arc<Metrics>,
    /// Set once the API server can reach it.
    pub(crate) ready: Arc<AtomicBool>,
    /// Where the certificate goes.
    pub(crate) serving: watch::Sender<Option<Arc<ServerConfig>>>,
}

impl Webhook {
    /// Answers as long as it is polled.
    pub(crate) async fn run(mut self, socket: TcpListener) {
        if self.settings.form == Form::Auto {
            self.settings.form = form(&self.client).await;
        }
        let names = certificate::names(SERVICE, &self.namespace, &self.settings.cluster_domain);
        let certificates = self.serving.subscribe();
        let keeper = keep::Keeper::new(&self.client, &self.namespace, names, self.term.clone());
        let wishes = Wishes::default();
        let following = wishes.clone().follow(self.client.clone());
        let service = Arc::new(server::Service {
            wishes,
            client: self.client,
            events: self.events,
            settings: self.settings,
            metrics: self.metrics,
        });
        let handle = move |request| {
            let service = Arc::clone(&service);
            async move { service.handle(request).await }
        };
        tokio::join!(
            following,
            keeper.run(&self.serving, &self.ready),
            https::serve(socket, certificates, "webhook", handle),
        );
        self.ready.store(false, Ordering::Relaxed);
    }
}

/// Which form the API server's version knows.
async fn form(client: &Client) -> Form {
    let version = match client.apiserver_version().await {
        Ok(version) => version,
        Err(error) => {
            tracing::warn!(%error, "the API server does not tell its version; sidecars are native");
            return Form::Native;
        }
    };
    let digits: String = version
        .minor
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    let form = match digits.parse::<u32>() {
        Ok(minor) if minor < NATIVE => Form::Container,
        _ => Form::Native,
    };
    tracing::info!(
        version = version.git_version,
        ?form,
        "how sidecars stand in pods"
    );
    form
}
