//! The RPC `maglor.identity.v1.Identity/Certify`: issues a certificate for a key and a token.
//!
//! The token identifies the client, and the signature of the request proves that it has the key. The name in the
//! certificate depends only on the token. The controller's own authority ignores the rest of the request. An external
//! signer copies names from the request, so these must be exactly the identity of the token; if the request has no
//! names, the response contains the required one.

mod outcome;

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use maglor_balance::guard::rate::{KeyedBuckets, RateParams};
use maglor_balance::{Rng, Time, hash_bytes};
use maglor_identity::{Error, Issued, LeafRequest, NamedRequest, SpiffeId};
use maglor_telemetry::admin::network_of;
use maglor_xds::Timestamp;
use maglor_xds::grpc_server::{CertifyRequest, CertifyResponse, Status};
use tokio::time::Instant;

pub use self::outcome::{CertifyError, CertifyMetrics};
use super::authenticate::{Authenticator, Caller, TokenError};
use super::authority::{InForce, Issuer, Watched};
use crate::clients::BySource;

/// The response to a client.
enum Answer {
    /// The issued certificate.
    Issued(CertifyResponse),
    /// The identity that the client's next request must name.
    Unnamed(CertifyResponse),
}

/// The rate limit of one workload (of one pod, if known), so that a faulty workload cannot use up the authority's
/// capacity.
const RATE: RateParams = RateParams {
    requests: 1,
    per: Duration::from_secs(1),
    burst: 10,
};
/// Maximum number of workloads that are tracked.
const WORKLOADS: usize = 16_384;

/// Maximum number of invalid tokens of a source per second, and the burst, because each one causes a TokenReview at
/// the API server. Valid tokens are not counted, so that all pods of a node that share an address can get
/// certificates at once.
const REFUSED: (u32, u32) = (5, 100);
/// Maximum number of sources that are barred at the same time.
const SOURCES: usize = 4096;

/// Minimum time between log lines about rejections, because remote peers can cause them.
const LOG: Duration = Duration::from_secs(1);

/// Reports rejected requests of pods to their owners.
pub trait Rejections: Send + Sync {
    /// Reports why a pod got no certificate; never blocks.
    fn report(&self, namespace: &str, pod: &str, error: &CertifyError);
}

/// Issues certificates to clients.
pub struct Certifier {
    in_force: Watched,
    authenticator: Box<dyn Authenticator>,
    ttl: Duration,
    metrics: CertifyMetrics,
    started: Instant,
    asked: KeyedBuckets,
    refused: BySource,
    /// Sources that have sent too many invalid tokens, and the time until which their tokens are not reviewed.
    barred: Mutex<HashMap<IpAddr, Instant>>,
    /// When the last rejection was logged, and the number of rejections since then that were not.
    logged: Mutex<(Option<Instant>, u64)>,
    rejections: Option<Box<dyn Rejections>>,
}

impl Certifier {
    /// Creates a certifier that uses the current issuer and authenticates clients with `authenticator`. Certificates
    /// of an authority are valid for `ttl`, at most [`MAX_TTL`](maglor_identity::MAX_TTL); an external signer has its
    /// own lifetime.
    #[must_use]
    pub fn new(
        in_force: Watched,
        authenticator: Box<dyn Authenticator>,
        ttl: Duration,
        metrics: CertifyMetrics,
    ) -> Self {
        Self {
            in_force,
            authenticator,
            ttl,
            metrics,
            started: Instant::now(),
            asked: KeyedBuckets::new(
                RATE,
                WORKLOADS,
                &mut Rng::seed(RandomState::new().hash_one(0)),
            ),
            refused: BySource::new(REFUSED.0, REFUSED.1),
            barred: Mutex::default(),
            logged: Mutex::default(),
            rejections: None,
        }
    }

    /// Reports rejections for the affected pods, if the token identifies them.
    #[must_use]
    pub fn reporting(self, rejections: Option<Box<dyn Rejections>>) -> Self {
        Self { rejections, ..self }
    }

    /// Handles a request from an address.
    ///
    /// # Errors
    /// The gRPC status for the client: `UNAUTHENTICATED`, `INVALID_ARGUMENT`, `RESOURCE_EXHAUSTED`,
    /// `FAILED_PRECONDITION` or `UNAVAILABLE`.
    pub async fn certify(
        &self,
        address: SocketAddr,
        request: CertifyRequest,
    ) -> Result<CertifyResponse, Status> {
        let mut caller = None;
        let asked = Instant::now();
        match self.issue(address.ip(), request, &mut caller).await {
            Ok((Answer::Unnamed(response), id)) => {
                self.metrics.count("unnamed");
                tracing::debug!(%id, %address, "certificate request without names; identity returned");
                Ok(response)
            }
            Ok((Answer::Issued(response), id)) => {
                self.metrics.count("issued");
                self.metrics.issued.observe_shared(asked.elapsed());
                let pod = caller.as_ref().and_then(|caller| caller.pod.as_deref());
                tracing::info!(%id, pod, %address, "certificate issued");
                Ok(response)
            }
            Err(error) => {
                self.metrics.count(error.word());
                if let Some(unsaid) = self.may_log() {
                    let reason = error.word();
                    tracing::warn!(%address, reason, %error, suppressed = unsaid, "certificate request rejected");
                }
                self.report(caller.as_ref(), &error);
                Err(error.status())
            }
        }
    }

    fn report(&self, caller: Option<&Caller>, error: &CertifyError) {
        let pod = caller.and_then(|caller| Some((caller, caller.pod.as_deref()?)));
        if let (Some(rejections), Some((caller, pod))) = (&self.rejections, pod) {
            rejections.report(&caller.namespace, pod, error);
        }
    }

    /// Issues the certificate. Sets `known` to the owner of the token, even if issuing fails.
    async fn issue(
        &self,
        source: IpAddr,
        request: CertifyRequest,
        known: &mut Option<Caller>,
    ) -> Result<(Answer, SpiffeId), CertifyError> {
        if request.token.is_empty() {
            return Err(TokenError::Missing.into());
        }
        let source = network_of(source);
        self.may_show(source)?;
        let shown = self.authenticator.authenticate(&request.token).await;
        let caller = shown.inspect_err(|error| self.refuse(source, error))?;
        let caller = known.insert(caller);
        self.admit(caller)?;
        let in_force = self.in_force.borrow().clone();
        let in_force = in_force.ok_or(CertifyError::NoAuthority)?;
        let domain = in_force.issuer.trust_domain();
        let id = SpiffeId::workload(domain, &caller.namespace, &caller.service_account);
        let id = id.map_err(|error| TokenError::NoServiceAccount(error.to_string()))?;
        let signing_request = &request.certificate_signing_request;
        let answer = match &in_force.issuer {
            Issuer::Authority(authority) => {
                let wanted = LeafRequest {
                    ttl: self.ttl,
                    ..LeafRequest::new(id.clone())
                };
                let issued = authority.sign(signing_request, &wanted, SystemTime::now());
                Answer::Issued(response(&issued.map_err(rejected)?, &in_force))
            }
            Issuer::Signer(signer) => match NamedRequest::verify(signing_request, &id, &[]) {
                Ok(named) => {
                    let stated = stated(caller);
                    let issued = signer.sign(&named, &stated, &in_force.bundle).await?;
                    Answer::Issued(response(&issued, &in_force))
                }
                Err(Error::RequestUnnamed) => Answer::Unnamed(CertifyResponse {
                    required_identity: id.to_string(),
                    ..CertifyResponse::default()
                }),
                Err(error) => return Err(CertifyError::Request(error)),
            },
        };
        Ok((answer, id))
    }

    /// Returns an error if tokens of this source are currently not reviewed.
    fn may_show(&self, source: IpAddr) -> Result<(), CertifyError> {
        let mut barred = self.barred.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(until) = barred.get(&source) else {
            return Ok(());
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            barred.remove(&source);
            return Ok(());
        }
        Err(CertifyError::Source(left))
    }

    /// Counts an invalid token of this source, and bars the source if it has sent too many.
    fn refuse(&self, source: IpAddr, error: &TokenError) {
        if matches!(error, TokenError::Unavailable(_)) {
            return;
        }
        let verdict = self.refused.take(source);
        // The last allowed token already bars the source; otherwise one more would be reviewed.
        let rest = match (verdict.allowed, verdict.remaining) {
            (true, 1..) => return,
            (true, 0) => Duration::from_secs(1) / REFUSED.0,
            (false, _) => verdict.retry_after,
        };
        let now = Instant::now();
        let mut barred = self.barred.lock().unwrap_or_else(PoisonError::into_inner);
        if barred.len() >= SOURCES {
            barred.retain(|_, until| *until > now);
        }
        if barred.len() < SOURCES {
            barred.insert(source, now + rest);
        }
    }

    fn admit(&self, caller: &Caller) -> Result<(), CertifyError> {
        let pod = caller.pod.as_deref().unwrap_or_default();
        let workload = format!("{}/{}/{pod}", caller.namespace, caller.service_account);
        let now = self.started.elapsed().as_nanos();
        let now = Time::from_nanos(u64::try_from(now).unwrap_or(u64::MAX));
        let verdict = self.asked.take(hash_bytes(workload.as_bytes()), now);
        match verdict.allowed {
            true => Ok(()),
            false => Err(CertifyError::TooOften(verdict.retry_after)),
        }
    }

    /// Returns the number of rejections that were not logged since the last one, if this rejection may be logged;
    /// otherwise `None`.
    fn may_log(&self) -> Option<u64> {
        let now = Instant::now();
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, unsaid) = &mut *logged;
        if last.is_some_and(|last| now.duration_since(last) < LOG) {
            *unsaid += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(unsaid))
    }
}

/// Converts an error of the controller's own authority.
fn rejected(error: Error) -> CertifyError {
    match error {
        Error::RequestMalformed | Error::RequestKey | Error::RequestSignature => {
            CertifyError::Request(error)
        }
        error => CertifyError::Authority(error),
    }
}

/// Returns the description of a client that the approval of its request contains.
fn stated(caller: &Caller) -> String {
    let Caller {
        namespace,
        service_account,
        pod,
    } = caller;
    let account = format!("ServiceAccount {namespace}/{service_account}");
    match pod {
        Some(pod) => format!("{account}, Pod {namespace}/{pod}"),
        None => account,
    }
}

fn response(issued: &Issued, in_force: &InForce) -> CertifyResponse {
    let der = |certificate: &[u8]| Bytes::copy_from_slice(certificate);
    let roots = in_force.bundle.certificates().iter();
    CertifyResponse {
        chain: issued.chain.iter().map(|one| der(one)).collect(),
        roots: roots.map(|one| der(one)).collect(),
        not_after: Some(timestamp(issued.expires)),
        required_identity: String::new(),
    }
}

fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: 0,
    }
}

#[cfg(test)]
mod tests;
