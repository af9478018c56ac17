//! Settings and start of the identity service.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use maglor_identity::tls::{self, OpenServer};
use maglor_identity::{SpiffeError, SpiffeId, TrustDomain};
use tokio::sync::watch;

use super::authenticate::Authenticator;
use super::authority::Watched;
use super::certify::{Certifier, CertifyMetrics};
use super::folder::{CaDirError, Follower};
use super::own::{Own, Serving};
use super::replicas;
use super::review::Reviews;
use super::secret::{self, Keeper, Progress};
use super::tokens::{FileError, Tokens};
use super::trust_bundles;
use crate::events::Events;
use crate::lease::Term;
use crate::metrics::on_call::Expiries;
use crate::serve::Table;

/// The service account of the controller.
const ACCOUNT: &str = "maglor-controller";

/// Settings of the identity service.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whom the authority vouches for.
    pub trust_domain: TrustDomain,
    /// The namespace of the controller: it stands in its own id.
    pub namespace: String,
    /// Name of its Service, for clients that verify DNS names.
    pub service: String,
    /// How long certificates live, at most [`MAX_TTL`](maglor_identity::MAX_TTL).
    pub ttl: Duration,
    /// Where the authority is.
    pub ca: CaSource,
    /// How long a new root is announced at most before it signs.
    pub deadline: Duration,
    /// A file of tokens in place of Kubernetes' own.
    pub tokens: Option<PathBuf>,
}

/// Where the authority is.
#[derive(Clone, Debug)]
pub enum CaSource {
    /// Files.
    Folder(PathBuf),
    /// A Secret in the controller's namespace.
    Secret {
        /// Its name.
        name: String,
    },
}

/// Why the identity service was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The authority's folder cannot be used.
    #[error("--ca-dir: {0}")]
    CaDir(#[from] CaDirError),
    /// There is no token validator.
    #[error("without Kubernetes, --tokens FILE is required")]
    NoTokens,
    /// The controller's namespace cannot stand in an id.
    #[error("--namespace: {0}")]
    Namespace(#[from] SpiffeError),
    /// A Secret without Kubernetes.
    #[error("without Kubernetes, --ca-dir DIR is required")]
    NoSecret,
    /// The file of tokens cannot be used.
    #[error("--tokens: {0}")]
    Tokens(#[from] FileError),
}

/// A replica of several on Kubernetes.
pub struct Replica {
    /// The API server.
    pub client: Client,
    /// The same, for what only the replica that writes does.
    pub writer: Client,
    /// Different from every other.
    pub name: String,
    /// Whether this one writes.
    pub term: watch::Receiver<Term>,
}

/// The identity service at work.
pub struct Service {
    /// What clients are served, certificates among it.
    pub table: Table,
    /// TLS of the port; `None` until there is an authority.
    pub tls: watch::Receiver<Option<OpenServer>>,
    /// Who the controller is: what other replicas have to prove.
    pub id: SpiffeId,
    /// TLS to other replicas; `None` until there is an authority.
    pub replicas: watch::Receiver<Option<Arc<tls::Client>>>,
    /// What is in force.
    pub ca: Watched,
    /// Where a rotation is.
    pub progress: watch::Receiver<Option<Progress>>,
}

/// Starts a task with this name, which the process does not outlive where it panics.
pub(crate) type Spawn<'a> =
    &'a mut dyn FnMut(&'static str, Pin<Box<dyn Future<Output = ()> + Send>>);

/// Starts it; it ends with the last of what is returned.
///
/// # Errors
/// When the authority's folder or the tokens cannot be used.
pub(crate) fn start(
    settings: &Settings,
    replica: Option<&Replica>,
    (metrics, expiries): (CertifyMetrics, &Expiries),
    spawn: Spawn<'_>,
) -> Result<Service, StartError> {
    let own = Own {
        id: SpiffeId::workload(&settings.trust_domain, &settings.namespace, ACCOUNT)?,
        dns_names: dns_names(&settings.service, &settings.namespace),
        ttl: settings.ttl,
        expiries: expiries.clone(),
    };
    let (sender, ca) = watch::channel(None);
    expiries.of_authority(ca.clone());
    let (progressing, progress) = watch::channel(None);
    let authenticator: Box<dyn Authenticator> = match (&settings.tokens, replica) {
        (Some(path), _) => Box::new(Tokens::open(path)?),
        (None, Some(replica)) => Box::new(Reviews::new(replica.client.clone())),
        (None, None) => return Err(StartError::NoTokens),
    };
    let events = replica
        .map(|replica| Events::new(replica.client.clone(), "maglor.dev/identity", &replica.name));
    let certifier = Certifier::new(ca.clone(), authenticator, settings.ttl, metrics);
    let certifier = certifier.telling(events);
    let table = Table::certifying(certifier);
    let (server, tls) = watch::channel(None);
    let (to_replicas, replicas) = watch::channel(None);
    let (id, serving) = (
        own.id.clone(),
        Serving {
            server,
            replicas: to_replicas,
        },
    );
    let registered = match replica {
        Some(replica) => report(replica, settings, &ca, &table, spawn),
        None => watch::channel(true).1,
    };
    match (&settings.ca, replica) {
        (CaSource::Folder(path), _) => {
            let deadline = settings.deadline;
            let follower = Follower::open(path, &settings.trust_domain, settings.ttl, deadline)?;
            sender.send_replace(Some(Arc::new(follower.ca()?)));
            let followed = follower.follow(sender, table.clone(), progressing);
            spawn("authority", Box::pin(followed));
        }
        (CaSource::Secret { .. }, None) => return Err(StartError::NoSecret),
        (CaSource::Secret { name }, Some(replica)) => {
            let secret = secret::Settings {
                namespace: settings.namespace.clone(),
                name: name.clone(),
                trust_domain: settings.trust_domain.clone(),
                ttl: settings.ttl,
                deadline: settings.deadline,
            };
            let (client, term) = (replica.writer.clone(), replica.term.clone());
            let keeper = Keeper::new(client, secret, term, sender, progressing);
            spawn("authority", Box::pin(keeper.keep()));
        }
    }
    if let Some(replica) = replica {
        let (client, term) = (replica.writer.clone(), replica.term.clone());
        let kept = trust_bundles::keep(client, ca.clone(), term);
        spawn("trust bundles", Box::pin(kept));
    }
    let certified = certify_own(own, ca.clone(), registered, serving);
    spawn("own certificate", Box::pin(certified));
    spawn(
        "served roots",
        Box::pin(publish_roots(ca.clone(), table.clone())),
    );
    Ok(Service {
        table,
        tls,
        id,
        replicas,
        ca,
        progress,
    })
}

/// Starts to report the trusted roots of this replica's clients to the other replicas.
fn report(
    replica: &Replica,
    settings: &Settings,
    ca: &Watched,
    table: &Table,
    spawn: Spawn<'_>,
) -> watch::Receiver<bool> {
    let (sender, registered) = watch::channel(false);
    let (namespace, name) = (settings.namespace.clone(), replica.name.clone());
    let client = replica.client.clone();
    let reported = replicas::report(client, namespace, name, ca.clone(), table.clone(), sender);
    spawn("report of trust", Box::pin(reported));
    registered
}

/// The port is served only by a replica that the others know of: none of its clients is overlooked then.
async fn certify_own(
    own: Own,
    ca: Watched,
    mut registered: watch::Receiver<bool>,
    serving: Serving,
) {
    let waits = registered.wait_for(|registered| *registered).await.is_ok();
    if waits {
        own.keep(ca, serving).await;
    }
}

/// Publishes the trusted roots to clients, whenever they change.
async fn publish_roots(mut ca: Watched, table: Table) {
    loop {
        let now = ca.borrow_and_update().clone();
        if let Some(ca) = now {
            table.trust(&ca.bundle);
        }
        if ca.changed().await.is_err() {
            return;
        }
    }
}

/// How the controller's Service is called.
fn dns_names(service: &str, namespace: &str) -> Vec<String> {
    ["", ".svc", ".svc.cluster.local"]
        .map(|domain| format!("{service}.{namespace}{domain}"))
        .into()
}
