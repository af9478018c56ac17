//! Leaf certificates from a signer outside the mesh, by CertificateSigningRequest objects (`certificates.k8s.io/v1`).
//!
//! The controller verifies a request, creates an object with it, approves it, and waits until the signer has written
//! the certificate into the status. The certificate is verified before it is used ([`maglor_identity::NamedRequest`]).
//! The root's key stays with the signer. Every replica does this: it needs no leader.

mod name;
mod object;

use std::time::{Duration, SystemTime};

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::{Api, Client};
use maglor_identity::{Error, Issued, NamedRequest, TrustBundle, TrustDomain};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout_at};

pub use self::name::{SignerName, SignerNameError};
use self::object::State;
use crate::api_server;
use crate::conditional_writes::{self, FIELD_MANAGER, Manager, Precondition};

/// Maximum number of requests of this replica that wait for the signer.
const AT_ONCE: usize = 64;
/// Maximum time for a certificate, including the wait for one of the places.
const LIMIT: Duration = Duration::from_secs(30);
/// Maximum time of that wait; the signer has the rest.
const PLACE_LIMIT: Duration = Duration::from_secs(10);
/// First and longest pause between two looks at an object; each is half as long again as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The reason why the signer has issued no certificate.
#[derive(Debug, thiserror::Error)]
pub enum SignerError {
    /// Too many requests wait for the signer.
    #[error("signer `{signer}`: {AT_ONCE} requests are waiting for it; retry later")]
    Busy {
        /// Its name.
        signer: SignerName,
    },
    /// The object was deleted before there was a certificate.
    #[error(
        "signer `{signer}`: CertificateSigningRequest `{object}` was deleted by another client"
    )]
    Deleted {
        /// Its name.
        signer: SignerName,
        /// The name of the object.
        object: String,
    },
    /// The request was denied, although the controller has approved it.
    #[error("signer `{signer}` denied the request: {why}")]
    Denied {
        /// Its name.
        signer: SignerName,
        /// Its reason and message.
        why: String,
    },
    /// The signer could not issue the certificate.
    #[error("signer `{signer}` failed: {why}")]
    Failed {
        /// Its name.
        signer: SignerName,
        /// Its reason and message.
        why: String,
    },
    /// The API server has rejected a step, or cannot be reached.
    #[error("signer `{signer}`: cannot {step} the CertificateSigningRequest: {source}")]
    Kubernetes {
        /// Its name.
        signer: SignerName,
        /// The attempted step.
        step: &'static str,
        /// The error.
        source: kube::Error,
    },
    /// The signer did not respond in time.
    #[error(
        "signer `{signer}` issued no certificate within {LIMIT:?}; check that it is running and serves this signerName"
    )]
    Timeout {
        /// Its name.
        signer: SignerName,
    },
    /// The certificate that the signer has issued is not what was requested.
    #[error("signer `{signer}`: {source}")]
    Unusable {
        /// Its name.
        signer: SignerName,
        /// The difference.
        source: Error,
    },
}

impl SignerError {
    /// Returns whether an operator has to change something before a retry can succeed.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Denied { .. } | Self::Failed { .. } | Self::Unusable { .. } => true,
            Self::Busy { .. }
            | Self::Deleted { .. }
            | Self::Kubernetes { .. }
            | Self::Timeout { .. } => false,
        }
    }
}

/// Requests certificates from a signer; see the module's documentation.
#[derive(Debug)]
pub struct ExternalSigner {
    api: Api<CertificateSigningRequest>,
    name: SignerName,
    trust_domain: TrustDomain,
    ttl: Duration,
    at_once: Semaphore,
    finished: mpsc::UnboundedSender<Finished>,
}

/// An object that is no longer needed.
#[derive(Debug)]
struct Finished {
    name: String,
    seen: Precondition,
}

/// Reports an object as finished when it is dropped, also if the client has gone away meanwhile.
struct Pending<'a> {
    object: CertificateSigningRequest,
    finished: &'a mpsc::UnboundedSender<Finished>,
}

impl Pending<'_> {
    fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        // Without a receiver the process is about to end; Kubernetes deletes the object after an hour.
        let _ = self.finished.send(Finished {
            name: self.name().to_owned(),
            seen: Precondition::in_any_version(&self.object.metadata),
        });
    }
}

impl ExternalSigner {
    /// Uses the signer of this name, for IDs of a trust domain. `ttl` is the requested lifetime; Kubernetes
    /// accepts no less than ten minutes, so a shorter one becomes that. The second value deletes the objects that are
    /// no longer needed: it has to run as long as the signer is used.
    pub fn new(
        client: Client,
        name: &SignerName,
        trust_domain: &TrustDomain,
        ttl: Duration,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let api: Api<CertificateSigningRequest> = Api::all(client);
        let (finished, receiver) = mpsc::unbounded_channel();
        let cleaned = delete_finished(api.clone(), receiver);
        let signer = Self {
            api,
            name: name.clone(),
            trust_domain: trust_domain.clone(),
            ttl,
            at_once: Semaphore::new(AT_ONCE),
            finished,
        };
        (signer, cleaned)
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Returns the trust domain of the requested IDs.
    #[must_use]
    pub fn trust_domain(&self) -> &TrustDomain {
        &self.trust_domain
    }

    /// Requests a certificate, and verifies it by `roots`. `requester` is stated in the approval. Takes 30 s at most.
    ///
    /// # Errors
    /// When the API server or the signer rejects the request or does not respond, or the certificate differs from the
    /// request.
    pub async fn sign(
        &self,
        request: &NamedRequest,
        requester: &str,
        roots: &TrustBundle,
    ) -> Result<Issued, SignerError> {
        let begun = Instant::now();
        let place = timeout_at(begun + PLACE_LIMIT, self.at_once.acquire()).await;
        // The semaphore is never closed.
        let _place = place.map_err(|_| self.busy())?.map_err(|_| self.busy())?;
        let obtained = timeout_at(begun + LIMIT, self.obtain(request, requester)).await;
        let chain = obtained.map_err(|_| SignerError::Timeout {
            signer: self.name.clone(),
        })??;
        let issued = request.issued(&chain, roots, SystemTime::now());
        issued.map_err(|source| SignerError::Unusable {
            signer: self.name.clone(),
            source,
        })
    }

    /// Returns the certificate as the signer has written it, PEM.
    async fn obtain(
        &self,
        request: &NamedRequest,
        requester: &str,
    ) -> Result<Vec<u8>, SignerError> {
        let object = object::new(self.name(), &request.pem(), self.ttl);
        let created = Manager(FIELD_MANAGER).create(&self.api, &object).await;
        let mut pending = Pending {
            object: created.map_err(self.failed("create"))?,
            finished: &self.finished,
        };
        self.approve(&mut pending, requester).await?;
        self.wait(&pending).await
    }

    /// Approves an object, unless another approver was faster.
    async fn approve(&self, pending: &mut Pending<'_>, requester: &str) -> Result<(), SignerError> {
        while let Some(approved) = object::approved(&pending.object, requester) {
            let by = Manager(FIELD_MANAGER);
            match by.approve(&self.api, pending.name(), &approved).await {
                Ok(_) => return Ok(()),
                // The signer has written an annotation, for example.
                Err(error) if api_server::is(&error, 409) => {
                    let now = self.api.get(pending.name()).await;
                    pending.object = now.map_err(self.failed("read"))?;
                }
                Err(error) => return Err(self.failed("approve")(error)),
            }
        }
        Ok(())
    }

    async fn wait(&self, pending: &Pending<'_>) -> Result<Vec<u8>, SignerError> {
        let signer = || self.name.clone();
        let mut pause = FIRST_PAUSE;
        loop {
            tokio::time::sleep(pause).await;
            pause = pause.mul_f64(1.5).min(LONGEST_PAUSE);
            let object = match self.api.get(pending.name()).await {
                Ok(object) => object,
                Err(error) if api_server::is(&error, 404) => {
                    return Err(SignerError::Deleted {
                        signer: signer(),
                        object: pending.name().to_owned(),
                    });
                }
                Err(error) if is_rejection(&error) => return Err(self.failed("read")(error)),
                Err(error) => {
                    tracing::debug!(%error, "CertificateSigningRequest not read; retrying");
                    continue;
                }
            };
            match object::state(&object) {
                State::Denied(why) => {
                    return Err(SignerError::Denied {
                        signer: signer(),
                        why,
                    });
                }
                State::Failed(why) => {
                    return Err(SignerError::Failed {
                        signer: signer(),
                        why,
                    });
                }
                State::Issued(chain) => return Ok(chain),
                State::Pending => {}
            }
        }
    }

    fn busy(&self) -> SignerError {
        SignerError::Busy {
            signer: self.name.clone(),
        }
    }

    fn failed(&self, step: &'static str) -> impl FnOnce(kube::Error) -> SignerError {
        let signer = self.name.clone();
        move |source| SignerError::Kubernetes {
            signer,
            step,
            source,
        }
    }
}

/// Returns whether a retry would be rejected as well.
fn is_rejection(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
}

/// Deletes objects until the signer is dropped. One that cannot be deleted now is left to Kubernetes, which deletes
/// it after an hour.
async fn delete_finished(
    api: Api<CertificateSigningRequest>,
    mut finished: mpsc::UnboundedReceiver<Finished>,
) {
    while let Some(Finished { name, seen }) = finished.recv().await {
        match conditional_writes::delete(&api, &name, &seen).await {
            Err(error) if !api_server::is(&error, 404) => {
                tracing::warn!(object = name, %error, "CertificateSigningRequest not deleted");
            }
            Ok(()) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
