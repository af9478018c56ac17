//! Obtains leaf certificates from a signer outside the mesh with CertificateSigningRequest objects
//! (`certificates.k8s.io/v1`).
//!
//! The controller verifies a request, creates an object with it, approves it, and waits until the signer has written
//! the certificate into the status. The certificate is verified before it is used
//! ([`maglor_identity::NamedRequest`]). The root's key stays with the signer. Every replica requests certificates;
//! this needs no leader.

mod object;

use std::time::{Duration, SystemTime};

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::{Api, Client};
use maglor_identity::{Issued, NamedRequest, TrustBundle, TrustDomain};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout_at};

use self::object::State;
use super::signer::{AT_ONCE, LIMIT, RemoteSigner, Signed, SignerError, SignerName};
use crate::api_server;
use crate::conditional_writes::{self, FIELD_MANAGER, Manager, Precondition};

/// Maximum time of this wait; the rest of the time is left to the signer.
const PLACE_LIMIT: Duration = Duration::from_secs(10);
/// Initial and maximum interval at which an object is polled. The interval grows by half each time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Requests certificates from a signer.
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

/// Reports an object as finished on drop, even if the client has disconnected in the meantime.
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
        // Without a receiver the process is about to end; Kubernetes then deletes the object after an hour.
        let _ = self.finished.send(Finished {
            name: self.name().to_owned(),
            seen: Precondition::in_any_version(&self.object.metadata),
        });
    }
}

impl ExternalSigner {
    /// Creates a client of the signer of this name, for IDs of a trust domain. `ttl` is the requested lifetime; it is
    /// raised to the minimum of Kubernetes, ten minutes. The returned future deletes objects that are no longer
    /// needed, and must run for as long as the signer is used.
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

    async fn issue(
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

    /// Returns the certificate as written by the signer, in PEM.
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
                // Another client has changed the object: the signer may have written an annotation, for example.
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
                    tracing::debug!(%error, "cannot read a CertificateSigningRequest; retrying");
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
            source: source.into(),
        }
    }
}

impl RemoteSigner for ExternalSigner {
    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn trust_domain(&self) -> &TrustDomain {
        &self.trust_domain
    }

    fn sign<'a>(
        &'a self,
        request: &'a NamedRequest,
        requester: &'a str,
        roots: &'a TrustBundle,
    ) -> Signed<'a> {
        Box::pin(self.issue(request, requester, roots))
    }
}

/// Returns whether a retry would also be rejected.
fn is_rejection(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
}

/// Deletes objects until the signer is dropped. Kubernetes deletes an object that cannot be deleted now after an
/// hour.
async fn delete_finished(
    api: Api<CertificateSigningRequest>,
    mut finished: mpsc::UnboundedReceiver<Finished>,
) {
    while let Some(Finished { name, seen }) = finished.recv().await {
        match conditional_writes::delete(&api, &name, &seen).await {
            Err(error) if !api_server::is(&error, 404) => {
                tracing::warn!(object = name, %error, "cannot delete a CertificateSigningRequest");
            }
            Ok(()) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
