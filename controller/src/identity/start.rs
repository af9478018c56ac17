//! Settings and start of the identity service.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use maglor_identity::tls::{self, OpenServer};
use maglor_identity::{SpiffeError, SpiffeId, TrustDomain};
use tokio::sync::watch;

use super::authenticate::Authenticator;
use super::authority::{InForce, Watched};
use super::certify::{Certifier, CertifyMetrics, Rejections};
use super::folder::{CaDirError, Follower};
use super::own::{ControllerIdentity, Serving};
use super::rotation::Progress;
use super::signer::SignerName;
use super::tokens::{FileError, Tokens};
use crate::metrics::on_call::Expiries;
use crate::resource_server::Table;

/// The service account of the controller.
const ACCOUNT: &str = "maglor-controller";

/// Settings of the identity service.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The trust domain of the certificate authority.
    pub trust_domain: TrustDomain,
    /// The namespace of the controller, which is part of its SPIFFE ID.
    pub namespace: String,
    /// Name of the controller's Service, for clients that verify DNS names.
    pub service: String,
    /// Lifetime of certificates, at most [`MAX_TTL`](maglor_identity::MAX_TTL).
    pub ttl: Duration,
    /// The source of the certificate authority, or the external signer.
    pub ca: CaSource,
    /// Maximum time for which a new root is announced before it signs.
    pub deadline: Duration,
    /// A file of tokens that is used instead of Kubernetes tokens; `None` if there is none.
    pub tokens: Option<PathBuf>,
}

/// The source of the certificate authority.
#[derive(Clone, Debug)]
pub enum CaSource {
    /// Files in this directory.
    Folder(PathBuf),
    /// A Secret in the controller's namespace.
    Secret {
        /// Name of the Secret.
        name: String,
    },
    /// A signer outside the mesh; the controller does not have its key.
    Signer {
        /// Name of the signer.
        name: SignerName,
        /// The Secret in the controller's namespace that contains the signer's roots in `ca.crt`.
        roots: String,
    },
}

/// Reason why the identity service was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The authority's directory cannot be used.
    #[error("--ca-dir: {0}")]
    CaDir(#[from] CaDirError),
    /// No token validator is configured.
    #[error("without Kubernetes, --tokens FILE is required")]
    NoTokens,
    /// The controller's namespace is not valid in a SPIFFE ID.
    #[error("--namespace: {0}")]
    Namespace(#[from] SpiffeError),
    /// An external signer is configured without Kubernetes.
    #[error("--signer requires Kubernetes: omit --folder")]
    NoSigner,
    /// A Secret is configured without Kubernetes.
    #[error("without Kubernetes, --ca-dir DIR is required")]
    NoSecret,
    /// The file of tokens cannot be used.
    #[error("--tokens: {0}")]
    Tokens(#[from] FileError),
}

/// What the identity service uses of a cluster. Without one, the authority and the tokens are files.
pub(crate) trait Cluster {
    /// Returns the validator of the cluster's own tokens.
    fn authenticator(&self) -> Box<dyn Authenticator>;

    /// Returns where rejected requests of pods are reported.
    fn rejections(&self) -> Box<dyn Rejections>;

    /// Starts to keep an authority in the Secret with this name.
    fn keep_secret(&self, settings: &Settings, name: &str, published: Published, spawn: Spawn<'_>);

    /// Starts to request certificates from a signer, with the roots of the ConfigMap with this name.
    fn follow_signer(
        &self,
        settings: &Settings,
        signer: (&SignerName, &str),
        published: Published,
        spawn: Spawn<'_>,
    );

    /// Starts to distribute the trusted roots to starting pods, and to report to the other replicas which roots this
    /// replica's clients trust. Returns whether the replica has reported once.
    fn share(
        &self,
        settings: &Settings,
        ca: &Watched,
        table: &Table,
        spawn: Spawn<'_>,
    ) -> watch::Receiver<bool>;
}

/// The running identity service.
pub struct Service {
    /// The table of resources and RPCs that is served to clients, including the certificate service.
    pub table: Table,
    /// TLS of the xDS port; `None` until there is a certificate authority.
    pub tls: watch::Receiver<Option<OpenServer>>,
    /// The SPIFFE ID of the controller, which other replicas must also have.
    pub id: SpiffeId,
    /// TLS to other replicas; `None` until there is a certificate authority.
    pub replicas: watch::Receiver<Option<Arc<tls::Client>>>,
    /// The current issuer and roots.
    pub ca: Watched,
    /// The progress of a rotation.
    pub progress: watch::Receiver<Option<Progress>>,
    /// Why the controller has no certificate of its own or no new one; `None` if it has.
    pub failure: watch::Receiver<Option<String>>,
}

/// Starts a task with this name. The process ends if the task panics.
pub(crate) type Spawn<'a> =
    &'a mut dyn FnMut(&'static str, Pin<Box<dyn Future<Output = ()> + Send>>);

/// Starts the identity service; it ends when all returned receivers are dropped.
///
/// # Errors
/// If the authority's directory or the tokens cannot be used.
pub(crate) fn start(
    settings: &Settings,
    cluster: Option<&dyn Cluster>,
    (metrics, expiries): (CertifyMetrics, &Expiries),
    spawn: Spawn<'_>,
) -> Result<Service, StartError> {
    let own = ControllerIdentity {
        id: SpiffeId::workload(&settings.trust_domain, &settings.namespace, ACCOUNT)?,
        dns_names: dns_names(&settings.service, &settings.namespace),
        ttl: settings.ttl,
        expiries: expiries.clone(),
    };
    let (sender, ca) = watch::channel(None);
    expiries.of_authority(ca.clone());
    let (progressing, progress) = watch::channel(None);
    let authenticator: Box<dyn Authenticator> = match (&settings.tokens, cluster) {
        (Some(path), _) => Box::new(Tokens::open(path)?),
        (None, Some(cluster)) => cluster.authenticator(),
        (None, None) => return Err(StartError::NoTokens),
    };
    let certifier = Certifier::new(ca.clone(), authenticator, settings.ttl, metrics);
    let certifier = certifier.reporting(cluster.map(Cluster::rejections));
    let table = Table::certifying(certifier);
    let (server, tls) = watch::channel(None);
    let (to_replicas, replicas) = watch::channel(None);
    let (failing, failure) = watch::channel(None);
    let id = own.id.clone();
    let serving = Serving {
        server,
        replicas: to_replicas,
        failure: failing,
    };
    let registered = match cluster {
        Some(cluster) => cluster.share(settings, &ca, &table, spawn),
        None => watch::channel(true).1,
    };
    follow(settings, cluster, (sender, progressing), &table, spawn)?;
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
        failure,
    })
}

/// Publishers of the current issuer and roots, and of the progress of their replacement.
pub(crate) type Published = (
    watch::Sender<Option<Arc<InForce>>>,
    watch::Sender<Option<Progress>>,
);

/// Starts to follow the source of the issuer and the roots.
fn follow(
    settings: &Settings,
    cluster: Option<&dyn Cluster>,
    (in_force, progress): Published,
    table: &Table,
    spawn: Spawn<'_>,
) -> Result<(), StartError> {
    match (&settings.ca, cluster) {
        (CaSource::Folder(path), _) => {
            let deadline = settings.deadline;
            let follower = Follower::open(path, &settings.trust_domain, settings.ttl, deadline)?;
            in_force.send_replace(Some(Arc::new(follower.ca()?.into())));
            let followed = follower.follow(in_force, table.clone(), progress);
            spawn("authority", Box::pin(followed));
        }
        (CaSource::Secret { .. }, None) => return Err(StartError::NoSecret),
        (CaSource::Signer { .. }, None) => return Err(StartError::NoSigner),
        (CaSource::Secret { name }, Some(cluster)) => {
            cluster.keep_secret(settings, name, (in_force, progress), spawn);
        }
        (CaSource::Signer { name, roots }, Some(cluster)) => {
            cluster.follow_signer(settings, (name, roots), (in_force, progress), spawn);
        }
    }
    Ok(())
}

/// Maintains the controller's certificate once the replica is registered. The port is not served before that, so that
/// the leader does not overlook any client.
async fn certify_own(
    own: ControllerIdentity,
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

/// Returns the DNS names of the controller's Service.
fn dns_names(service: &str, namespace: &str) -> Vec<String> {
    ["", ".svc", ".svc.cluster.local"]
        .map(|domain| format!("{service}.{namespace}{domain}"))
        .into()
}
