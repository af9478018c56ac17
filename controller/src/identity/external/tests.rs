use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequestCondition;
use kube::client::Body;
use maglor_identity::{Authority, KeyRequest, LeafRequest, SpiffeId};
use serde_json::json;

use super::*;

/// What the signer does with an approved object.
type Behaviour = Box<dyn FnMut(&mut CertificateSigningRequest) + Send>;

/// The objects of an API server, and a signer that checks them whenever one is read.
struct Objects {
    all: BTreeMap<String, CertificateSigningRequest>,
    behaviour: Behaviour,
    /// Number of further approvals that fail with a conflict.
    conflicts: u32,
    /// Status with which creations fail; `None` if they succeed.
    creation_fails: Option<u16>,
    created: u32,
    /// Number of further reads that fail with status 503.
    failing_reads: u32,
}

#[derive(Clone)]
struct Fake(Arc<Mutex<Objects>>);

impl Fake {
    fn new(behaviour: impl FnMut(&mut CertificateSigningRequest) + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Objects {
            all: BTreeMap::new(),
            behaviour: Box::new(behaviour),
            conflicts: 0,
            creation_fails: None,
            created: 0,
            failing_reads: 0,
        })))
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.0.lock().unwrap()
    }

    fn client(&self) -> Client {
        let fake = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let fake = fake.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let path = head.uri.path().to_owned();
                let (status, text) = fake.objects().answer(&head.method, &path, &body);
                let mut response = Response::new(Body::from(text.into_bytes()));
                *response.status_mut() = StatusCode::from_u16(status).unwrap();
                Ok::<_, Infallible>(response)
            }
        });
        Client::new(service, "default")
    }
}

fn failure(code: u16) -> (u16, String) {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
        "reason": "Test", "message": format!("status {code}"), "metadata": {},
    });
    (code, status.to_string())
}

impl Objects {
    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> (u16, String) {
        let name = path.trim_end_matches("/approval").rsplit('/').next();
        let name = name.unwrap_or_default().to_owned();
        let shown = |object: &CertificateSigningRequest| serde_json::to_string(object).unwrap();
        match *method {
            Method::POST => {
                if let Some(code) = self.creation_fails {
                    return failure(code);
                }
                self.created += 1;
                let mut object: CertificateSigningRequest = serde_json::from_slice(body).unwrap();
                let name = format!("maglor-{}", self.created);
                object.metadata.uid = Some(format!("uid-{}", self.created));
                object.metadata.name = Some(name.clone());
                let text = shown(&object);
                self.all.insert(name, object);
                (201, text)
            }
            Method::PUT if path.ends_with("/approval") => {
                if self.conflicts > 0 {
                    self.conflicts -= 1;
                    return failure(409);
                }
                let object: CertificateSigningRequest = serde_json::from_slice(body).unwrap();
                let text = shown(&object);
                self.all.insert(name, object);
                (200, text)
            }
            Method::GET => {
                if self.failing_reads > 0 {
                    self.failing_reads -= 1;
                    return failure(503);
                }
                let Some(object) = self.all.get_mut(&name) else {
                    return failure(404);
                };
                if object.status.is_some() {
                    (self.behaviour)(object);
                }
                (200, shown(object))
            }
            Method::DELETE => match self.all.remove(&name) {
                Some(object) => {
                    let options: serde_json::Value = serde_json::from_slice(body).unwrap();
                    let uid = options["preconditions"]["uid"].as_str();
                    assert_eq!(uid, object.metadata.uid.as_deref());
                    (200, shown(&object))
                }
                None => failure(404),
            },
            _ => failure(405),
        }
    }
}

fn condition(object: &mut CertificateSigningRequest, type_: &str) {
    let condition = CertificateSigningRequestCondition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        reason: Some("Policy".to_owned()),
        message: Some("no names of shops".to_owned()),
        ..CertificateSigningRequestCondition::default()
    };
    let status = object.status.get_or_insert_default();
    status.conditions.get_or_insert_default().push(condition);
}

/// A signer over a fake API server, its roots, and a request for `cart`.
struct Fixture {
    fake: Fake,
    signer: Arc<ExternalSigner>,
    roots: TrustBundle,
    request: NamedRequest,
    _cleaned: tokio::task::JoinHandle<()>,
}

fn id(account: &str) -> SpiffeId {
    let domain = "mesh.test".parse().unwrap();
    SpiffeId::workload(&domain, "shop", account).unwrap()
}

impl Fixture {
    /// The signer's behaviour gets the certificate that it should issue.
    fn new(behaviour: impl Fn(&mut CertificateSigningRequest, &str) + Send + 'static) -> Self {
        let domain: TrustDomain = "mesh.test".parse().unwrap();
        let now = SystemTime::now();
        let authority = Authority::create(&domain, now).unwrap();
        let key = KeyRequest::generate().unwrap();
        let der = key.der_naming(&id("cart"), &[]).unwrap();
        let request = NamedRequest::verify(&der, &id("cart"), &[]).unwrap();
        let issued = authority.sign(&der, &LeafRequest::new(id("cart")), now);
        let issued = issued.unwrap().certificate_pem;
        let fake = Fake::new(move |object| behaviour(object, &issued));
        let ttl = Duration::from_secs(3600);
        let name = "a.test/b".parse().unwrap();
        let (signer, cleaned) = ExternalSigner::new(fake.client(), &name, &domain, ttl);
        Self {
            signer: Arc::new(signer),
            roots: authority.bundle().unwrap(),
            request,
            fake,
            _cleaned: tokio::spawn(cleaned),
        }
    }

    async fn sign(&self) -> Result<Issued, SignerError> {
        let requester = "ServiceAccount shop/cart";
        self.signer
            .sign(&self.request, requester, &self.roots)
            .await
    }

    /// Waits until there are no objects any more.
    async fn is_clean(&self) {
        while !self.fake.objects().all.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn issue(object: &mut CertificateSigningRequest, pem: &str) {
    let status = object.status.get_or_insert_default();
    status.certificate = Some(ByteString(pem.as_bytes().to_vec()));
}

#[tokio::test(start_paused = true)]
async fn an_approved_request_is_issued_and_its_object_deleted() {
    let fixture = Fixture::new(|object, pem| {
        let conditions = object.status.as_ref().unwrap().conditions.as_ref();
        let approved = &conditions.unwrap()[0];
        assert_eq!(approved.type_, "Approved");
        assert_eq!(approved.reason.as_deref(), Some("MaglorVerified"));
        let message = approved.message.as_deref().unwrap();
        assert!(message.contains("ServiceAccount shop/cart"), "{message}");
        assert_eq!(object.spec.signer_name, "a.test/b");
        assert!(
            object
                .spec
                .request
                .0
                .starts_with(b"-----BEGIN CERTIFICATE REQUEST")
        );
        issue(object, pem);
    });
    // As if the signer had written an annotation.
    fixture.fake.objects().conflicts = 2;
    let issued = fixture.sign().await.unwrap();
    assert_eq!(issued.chain.len(), 1);
    fixture.is_clean().await;
    // The API server fails for a moment.
    fixture.fake.objects().failing_reads = 3;
    fixture.sign().await.unwrap();
    fixture.is_clean().await;
    assert_eq!(fixture.fake.objects().created, 2);
}

#[tokio::test(start_paused = true)]
async fn denial_and_failure_have_the_words_of_the_signer() {
    let denied = Fixture::new(|object, pem| {
        condition(object, "Denied");
        issue(object, pem);
    });
    let error = denied.sign().await.unwrap_err();
    assert!(error.is_lasting());
    let text = error.to_string();
    assert_eq!(
        text,
        "signer `a.test/b` denied the request: Policy: no names of shops"
    );
    denied.is_clean().await;

    let failed = Fixture::new(|object, _| condition(object, "Failed"));
    let error = failed.sign().await.unwrap_err();
    assert!(error.is_lasting());
    let text = error.to_string();
    assert_eq!(text, "signer `a.test/b` failed: Policy: no names of shops");
    failed.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_signer_that_does_not_respond_is_given_up() {
    let fixture = Fixture::new(|_, _| {});
    let begun = Instant::now();
    let error = fixture.sign().await.unwrap_err();
    assert!(matches!(error, SignerError::Timeout { .. }), "{error}");
    assert!(!error.is_lasting());
    assert_eq!(begun.elapsed().as_secs(), LIMIT.as_secs());
    fixture.is_clean().await;
}

/// A client that disconnects leaves no object behind.
#[tokio::test(start_paused = true)]
async fn an_abandoned_request_is_deleted() {
    let fixture = Fixture::new(|_, _| {});
    let abandoned = tokio::time::timeout(Duration::from_secs(1), fixture.sign()).await;
    assert!(abandoned.is_err());
    assert_eq!(fixture.fake.objects().created, 1);
    fixture.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn few_requests_wait_at_a_time() {
    let fixture = Arc::new(Fixture::new(|_, _| {}));
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..2 * AT_ONCE {
        let fixture = Arc::clone(&fixture);
        all.spawn(async move { fixture.sign().await.unwrap_err() });
    }
    let errors = all.join_all().await;
    let busy = errors
        .iter()
        .filter(|error| matches!(error, SignerError::Busy { .. }));
    assert_eq!(busy.count(), AT_ONCE);
    assert_eq!(fixture.fake.objects().created as usize, AT_ONCE);
    fixture.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_disappears_is_an_error() {
    let fixture = Fixture::new(|_, _| {});
    let signing = fixture.sign();
    let removed = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        fixture.fake.objects().all.clear();
    };
    let (signed, ()) = tokio::join!(signing, removed);
    let error = signed.unwrap_err();
    assert!(matches!(error, SignerError::Deleted { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_missing_is_named() {
    let fixture = Fixture::new(|_, _| {});
    fixture.fake.objects().creation_fails = Some(403);
    let error = fixture.sign().await.unwrap_err();
    assert!(!error.is_lasting());
    let text = error.to_string();
    let expected = "signer `a.test/b`: cannot create the CertificateSigningRequest: ";
    assert!(
        text.starts_with(expected) && text.contains("status 403"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_certificate_of_another_authority_is_not_used() {
    let fixture = Fixture::new(issue);
    let domain: TrustDomain = "mesh.test".parse().unwrap();
    let other = Authority::create(&domain, SystemTime::now()).unwrap();
    let roots = other.bundle().unwrap();
    let signed = fixture.signer.sign(&fixture.request, "a", &roots).await;
    let error = signed.unwrap_err();
    assert!(matches!(error, SignerError::Unusable { .. }), "{error}");
    let nonsense = Fixture::new(|object, _| issue(object, "nonsense"));
    let error = nonsense.sign().await.unwrap_err();
    assert!(
        error.to_string().contains("no certificate found"),
        "{error}"
    );
}
