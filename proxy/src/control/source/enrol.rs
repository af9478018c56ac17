//! An identity from the control plane: a key made here, certified for whom the token proves
//! (`maglor.identity.v1.Identity/Certify`), and so again at 70 % of each certificate's life.
//!
//! Whoever certifies has to be the control plane by the roots of the trust bundle, before it is shown the
//! token. The token is all that is shown: an identity that has expired would keep its owner from the next one.
//! What fails is retried, later each time; meanwhile the last identity goes on.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use maglor_balance::Rng;
use maglor_config::{ControlPlane, Enrolment};
use maglor_identity::{Identity, KeyRequest, TrustBundle};
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
/// Bytes of an answer at most.
const LONGEST: usize = 256 << 10;
/// No call takes longer.
const LIMIT: Duration = Duration::from_secs(10);
/// The first pause before another attempt, and the longest: a proxy without an identity is to be certified soon after the
/// control plane has come back.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// An identity that can be used no more is renewed at once, but not more often: replicas of the control plane may differ on
/// which roots to trust.
const SETTLED: Duration = Duration::from_secs(5);
/// One that the control plane does not take is renewed after [`SETTLED`] at first, and at most so many times twice as late:
/// after five minutes.
const MOST_DOUBLINGS: u32 = 6;
/// Certificates that were issued at the same time are not renewed at the same time: up to so much earlier.
const SPREAD: f64 = 0.1;
/// Tokens are some kilobytes; what is longer is no token.
const TOKEN: u64 = 64 << 10;

/// Why we were not certified.
#[derive(Debug, thiserror::Error)]
enum EnrolError {
    #[error("the control plane does not certify: {0}")]
    Call(#[from] CallError),
    #[error("the control plane does not certify in time")]
    Timeout,
    #[error("the control plane's answer: {0}")]
    Decode(#[from] maglor_xds::MessageError),
    #[error("the control plane's answer: {0}")]
    Identity(#[from] maglor_identity::Error),
    #[error("the cluster `{0}` of the control plane is not there")]
    NoCluster(Arc<str>),
    #[error("{0}")]
    NotTaken(#[from] NotTaken),
    #[error("token {}: {source}", path.display())]
    Token { path: PathBuf, source: io::Error },
}

/// Keeps the proxy certified; never returns.
pub(crate) async fn run(app: SharedApp, enrolment: Enrolment, plane: ControlPlane, seed: u64) {
    let source = Source {
        cache: plane.cache_dir.as_deref().map(Cache::new),
        app,
        enrolment,
        cluster: plane.cluster,
        rng: Rng::seed(seed),
        refusals: 0,
    };
    source.serve().await;
}

struct Source {
    app: SharedApp,
    enrolment: Enrolment,
    cluster: Arc<str>,
    cache: Option<Cache>,
    rng: Rng,
    /// How often in succession an identity was renewed because the control plane did not take it.
    refusals: u32,
}

impl Source {
    async fn serve(mut self) {
        // One that an earlier process has left is renewed when it is its time.
        let kept = self.app.borrow().renew_at();
        if let Some(at) = kept {
            let wait = at.duration_since(SystemTime::now()).unwrap_or_default();
            self.rest(wait).await;
        }
        let mut failures = 0_u32;
        loop {
            match self.ask().await {
                Ok(lasts) => {
                    failures = 0;
                    let wait = lasts.mul_f64(1.0 - SPREAD * self.rng.unit());
                    self.rest(wait).await;
                }
                Err(error) => {
                    let doubled = FIRST_PAUSE.saturating_mul(1 << failures.min(16));
                    failures = failures.saturating_add(1);
                    let pause = doubled
                        .min(LONGEST_PAUSE)
                        .mul_f64(0.5 + 0.5 * self.rng.unit());
                    {
                        let mut app = self.app.borrow_mut();
                        app.shared().metrics.identity.failed.add_shared(1);
                        tracing::warn!(%error, again_in = ?pause, "no new certificate");
                        app.not_certified(error.to_string());
                    }
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Waits until the certificate is to be renewed: after `wait` by the clock that never jumps or by the system's, which
    /// goes on while a machine is suspended; when it cannot be used any more; or when the control plane does not take it, as
    /// after its authority was lost, then later each time.
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

    /// Gets a certificate and puts it in force; how long to wait with the next one.
    async fn ask(&mut self) -> Result<Duration, EnrolError> {
        let key = KeyRequest::generate()?;
        let request = CertifyRequest {
            certificate_signing_request: key.der()?.into(),
            token: self.token()?,
        };
        let answer = tokio::time::timeout(LIMIT, self.call(frame(&request))).await;
        let answer = answer.map_err(|_| EnrolError::Timeout)??;
        let response = CertifyResponse::decode(answer)?;
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

    /// The token as it is now: the kubelet replaces it long before it expires.
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
            tracing::warn!(%error, "the identity cannot be kept for the next start");
        }
    }
}

/// Begins to ask, where the configuration says so.
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
