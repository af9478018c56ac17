//! Enrolment: an identity from the control plane. The proxy generates a key, and the control plane certifies it for
//! the workload that the token proves (`maglor.identity.v1.Identity/Certify`). This is repeated at 70 % of each
//! certificate's lifetime.
//!
//! The first request names no identity: the control plane determines it. Where certificates come from a signer that
//! copies the names in the request, the control plane responds with the identity that the request must name, and the
//! proxy immediately sends a request with this name. Later requests name the identity from the start.
//!
//! Before the token is sent, the server must prove that it is the control plane, with a certificate of the trust
//! bundle's roots. The proxy authenticates by the token only: an expired identity would prevent its own renewal.
//! Failed requests are retried with growing pauses; meanwhile the last identity stays in force.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use maglor_balance::Rng;
use maglor_config::{ControlPlane, Enrolment, Origination};
use maglor_identity::{Identity, KeyRequest, SpiffeError, SpiffeId, TrustBundle};
use maglor_xds::Message as _;
use maglor_xds::frame::frame;
use maglor_xds::proto::maglor::identity::v1::{CertifyRequest, CertifyResponse};
use tokio::time::Instant;

use crate::control::app::SharedApp;
use crate::control::cache::Cache;
use crate::control::ticker;
use crate::mesh::identity::NotTaken;
use crate::upstream::grpc::{CallError, Connection};

const PATH: &str = "/maglor.identity.v1.Identity/Certify";
/// Maximum size of a response in bytes.
const LONGEST: usize = 256 << 10;
/// Timeout of a call.
const LIMIT: Duration = Duration::from_secs(10);
/// Timeout of a call whose request names an identity: the control plane waits up to 30 s for the signer.
const SIGNER_LIMIT: Duration = Duration::from_secs(40);
/// Shortest and longest pause between attempts. The longest is short, too, so that a proxy without an identity gets
/// one soon after the control plane is available again.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Minimum time between renewals of an unusable identity, which is otherwise renewed immediately. Replicas of the
/// control plane may trust different roots.
const SETTLED: Duration = Duration::from_secs(5);
/// Maximum number of doublings of the pause before a rejected identity is renewed. The pause begins at [`SETTLED`]
/// and grows to five minutes.
const MOST_DOUBLINGS: u32 = 6;
/// Maximum share of the time to a renewal by which the renewal is randomly advanced, so that certificates issued
/// together are not renewed together.
const SPREAD: f64 = 0.1;
/// Maximum size of a token in bytes; typical tokens have a few kilobytes.
const TOKEN: u64 = 64 << 10;
/// Maximum number of characters of a malformed identity in an error.
const LONGEST_ID: usize = 200;

/// Error of enrolment.
#[derive(Debug, thiserror::Error)]
enum EnrolError {
    #[error("enrolment failed: {0}")]
    Call(#[from] CallError),
    #[error("enrolment timed out")]
    Timeout,
    #[error("invalid response of the control plane: {0}")]
    Decode(#[from] maglor_xds::MessageError),
    #[error("invalid response of the control plane: {0}")]
    Identity(#[from] maglor_identity::Error),
    #[error("the control plane requires the identity {0}, which is not in its own trust domain")]
    ForeignId(SpiffeId),
    #[error("the control plane requires `{id}` as identity: {source}")]
    MalformedId { id: String, source: SpiffeError },
    #[error("the control plane's cluster `{0}` does not exist")]
    NoCluster(Arc<str>),
    #[error("{0}")]
    NotTaken(#[from] NotTaken),
    #[error("token {}: {source}", path.display())]
    Token { path: PathBuf, source: io::Error },
    #[error("the control plane requires the identity {0} again, although the request names it")]
    Unsatisfied(SpiffeId),
}

/// Keeps the proxy's certificate valid; never returns.
pub(crate) async fn run(app: SharedApp, enrolment: Enrolment, plane: ControlPlane, seed: u64) {
    let source = Source {
        cache: plane.cache_dir.as_deref().map(Cache::new),
        app,
        enrolment,
        cluster: plane.cluster,
        rng: Rng::seed(seed),
        refusals: 0,
        required: None,
    };
    source.serve().await;
}

struct Source {
    app: SharedApp,
    enrolment: Enrolment,
    cluster: Arc<str>,
    cache: Option<Cache>,
    rng: Rng,
    /// Number of consecutive renewals because the control plane rejected the identity.
    refusals: u32,
    /// Identity that the request must name; `None` if the control plane has required none so far.
    required: Option<SpiffeId>,
}

impl Source {
    async fn serve(mut self) {
        // A cached identity of an earlier process is renewed at its usual time.
        let kept = self.app.borrow().renew_at();
        if let Some(at) = kept {
            let wait = at.duration_since(SystemTime::now()).unwrap_or_default();
            self.rest(wait).await;
        }
        let mut failures = 0_u32;
        loop {
            match self.request_certificate().await {
                Ok(lasts) => {
                    failures = 0;
                    let wait = lasts.mul_f64(1.0 - SPREAD * self.rng.unit());
                    self.rest(wait).await;
                }
                Err(error) => {
                    // The pod may have another service account now, or the control plane another issuer.
                    self.required = None;
                    let doubled = FIRST_PAUSE.saturating_mul(1 << failures.min(16));
                    failures = failures.saturating_add(1);
                    let pause = doubled
                        .min(LONGEST_PAUSE)
                        .mul_f64(0.5 + 0.5 * self.rng.unit());
                    {
                        let mut app = self.app.borrow_mut();
                        app.shared().metrics.identity.failed.add_shared(1);
                        tracing::warn!(%error, retry_in = ?pause, "enrolment failed; retrying");
                        app.not_certified(error.to_string());
                    }
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Waits until the certificate has to be renewed: after `wait`, by the monotonic clock or by the system clock,
    /// which continues while a machine is suspended; or when the certificate is no longer usable; or, with growing
    /// pauses, when the control plane rejects it, as after the loss of its certificate authority.
    async fn rest(&mut self, wait: Duration) {
        let (began, at) = (Instant::now(), SystemTime::now() + wait);
        let patience = SETTLED.saturating_mul(1 << self.refusals.min(MOST_DOUBLINGS));
        let mut look = ticker::every_second();
        loop {
            look.tick().await;
            let (passed, now) = (began.elapsed(), SystemTime::now());
            let (is_unusable, is_refused) = {
                let app = self.app.borrow();
                (app.without_identity().is_some(), app.is_identity_refused())
            };
            if is_refused && passed >= patience.min(wait) {
                self.refusals += 1;
                return;
            }
            if passed >= wait || now >= at || (is_unusable && passed >= SETTLED.min(wait)) {
                self.refusals = 0;
                return;
            }
        }
    }

    /// Requests a certificate and applies it; returns the time until its renewal.
    async fn request_certificate(&mut self) -> Result<Duration, EnrolError> {
        let key = KeyRequest::generate()?;
        let response = self.request(&key).await?;
        let now = SystemTime::now();
        let identity = key.certified(response.chain.iter().map(|one| one.to_vec()))?;
        let bundle = TrustBundle::from_der(response.roots.iter().map(|one| one.to_vec()))?;
        let lasts = identity.renew_after(now);
        self.app
            .borrow_mut()
            .certified(identity.clone(), bundle.clone())?;
        self.keep(&identity, &key, &bundle);
        let app = self.app.borrow();
        app.shared().metrics.identity.certified.add_shared(1);
        Ok(lasts)
    }

    /// Requests a certificate for a key. Sends a second request if the control plane requires it to name an identity.
    async fn request(&mut self, key: &KeyRequest) -> Result<CertifyResponse, EnrolError> {
        let required = self.required.clone();
        let response = self.request_named(key, required.as_ref()).await?;
        if response.required_identity.is_empty() {
            return Ok(response);
        }
        let id = self.required_identity(&response.required_identity)?;
        if required.as_ref() == Some(&id) {
            return Err(EnrolError::Unsatisfied(id));
        }
        let response = self.request_named(key, Some(&id)).await?;
        if !response.required_identity.is_empty() {
            return Err(EnrolError::Unsatisfied(id));
        }
        self.required = Some(id);
        Ok(response)
    }

    async fn request_named(
        &mut self,
        key: &KeyRequest,
        name: Option<&SpiffeId>,
    ) -> Result<CertifyResponse, EnrolError> {
        let (request, limit) = match name {
            Some(id) => (key.der_naming(id, &[])?, SIGNER_LIMIT),
            None => (key.der()?, LIMIT),
        };
        let request = CertifyRequest {
            certificate_signing_request: request.into(),
            token: self.token()?,
        };
        let answer = tokio::time::timeout(limit, self.call(frame(&request))).await;
        let answer = answer.map_err(|_| EnrolError::Timeout)??;
        Ok(CertifyResponse::decode(answer)?)
    }

    /// Parses the identity that the request must name. Its trust domain must be that of the configured identity of
    /// the control plane, which the server has proved by TLS.
    fn required_identity(&self, text: &str) -> Result<SpiffeId, EnrolError> {
        let id: SpiffeId = text.parse().map_err(|source| EnrolError::MalformedId {
            id: text.chars().take(LONGEST_ID).collect(),
            source,
        })?;
        let app = self.app.borrow();
        let cluster = app.clusters().get(&self.cluster);
        let cluster = cluster.ok_or_else(|| EnrolError::NoCluster(Arc::clone(&self.cluster)))?;
        let expected = match &cluster.config().tls {
            Some(Origination::Mesh(expected)) => expected.as_slice(),
            Some(_) | None => &[],
        };
        match is_expected(&id, expected) {
            true => Ok(id),
            false => Err(EnrolError::ForeignId(id)),
        }
    }

    async fn call(&mut self, message: Bytes) -> Result<Bytes, EnrolError> {
        let (cluster, roots, now) = {
            let app = self.app.borrow();
            let cluster = app.clusters().get(&self.cluster);
            (cluster, app.anchors(), app.shared().time(Instant::now()))
        };
        let roots = roots.ok_or(maglor_identity::Error::NoCertificate)?;
        let cluster = cluster.ok_or_else(|| EnrolError::NoCluster(Arc::clone(&self.cluster)))?;
        let picked = cluster.pick(now, None, &[], &mut self.rng);
        let picked = picked.map_err(|_| CallError::NoServer)?;
        let connection = Connection::open_to_enrol(&cluster, &picked.target, roots).await?;
        Ok(connection.ask(PATH, message, LONGEST).await?)
    }

    /// Reads the current token: the kubelet replaces it long before it expires.
    fn token(&self) -> Result<String, EnrolError> {
        let path = &self.enrolment.token_file;
        let failed = |source| EnrolError::Token {
            path: path.clone(),
            source,
        };
        if std::fs::metadata(path).map_err(failed)?.len() > TOKEN {
            let long = io::Error::new(io::ErrorKind::InvalidData, "longer than a token can be");
            return Err(failed(long));
        }
        let text = std::fs::read_to_string(path).map_err(failed)?;
        Ok(text.trim().to_owned())
    }

    fn keep(&self, identity: &Identity, key: &KeyRequest, bundle: &TrustBundle) {
        let Some(cache) = &self.cache else { return };
        let kept = cache
            .keep_identity(identity, &key.private_key_pem())
            .and_then(|()| cache.keep_roots(bundle));
        if let Err(error) = kept {
            tracing::warn!(%error, "cannot write the identity to the cache");
        }
    }
}

/// Returns whether an identity is that of a workload in the control plane's trust domain.
fn is_expected(id: &SpiffeId, control_plane: &[SpiffeId]) -> bool {
    let mut domains = control_plane.iter().map(SpiffeId::trust_domain);
    !id.path().is_empty() && domains.any(|domain| domain == id.trust_domain())
}

/// Starts enrolment if the configuration requires it.
pub(crate) fn begin(app: &SharedApp, seed: u64) {
    let config = Rc::clone(app);
    let config = config.borrow().config().clone();
    if let (Some(maglor_config::Identity::ControlPlane(enrolment)), Some(plane)) =
        (&config.identity, &config.control_plane)
    {
        let source = run(Rc::clone(app), enrolment.clone(), plane.clone(), seed);
        tokio::task::spawn_local(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_identities_of_the_own_trust_domain_are_named() {
        let id = |text: &str| text.parse::<SpiffeId>().unwrap();
        let plane = [id("spiffe://mesh.test/ns/maglor/sa/maglor-controller")];
        assert!(is_expected(
            &id("spiffe://mesh.test/ns/shop/sa/cart"),
            &plane
        ));
        for foreign in [
            "spiffe://mesh.test",
            "spiffe://other.test/ns/shop/sa/cart",
            "spiffe://mesh.test.other/ns/shop/sa/cart",
        ] {
            assert!(!is_expected(&id(foreign), &plane), "{foreign}");
        }
        assert!(!is_expected(&plane[0], &[]));
    }
}
