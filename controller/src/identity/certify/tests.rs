use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use maglor_identity::{Authority, KeyRequest, TrustDomain};
use maglor_telemetry::Registry;
use maglor_xds::grpc_server::Code;
use tokio::sync::{Semaphore, watch};

use super::super::authenticate::Authenticated;
use super::super::authority::{Ca, InForce};
use super::*;

/// An API server that accepts one token, counts reviews, and handles few at a time.
struct Reviews {
    asked: Arc<AtomicUsize>,
    at_once: Semaphore,
}

impl Authenticator for Reviews {
    fn authenticate<'a>(&'a self, token: &'a str) -> Authenticated<'a> {
        Box::pin(async move {
            let _place = self.at_once.acquire().await;
            self.asked.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(2)).await;
            let caller = Caller {
                namespace: "shop".to_owned(),
                service_account: "cart".to_owned(),
                pod: Some(token.to_owned()),
            };
            match token.starts_with("good") {
                true => Ok(caller),
                false => Err(TokenError::Invalid("no such token".to_owned())),
            }
        })
    }
}

fn certifier() -> (Arc<Certifier>, Arc<AtomicUsize>) {
    let domain: TrustDomain = "mesh.example".parse().unwrap();
    let authority = Authority::create(&domain, SystemTime::now()).unwrap();
    let bundle = authority.bundle().unwrap();
    let ca = InForce::from(Ca { authority, bundle });
    let (_, ca) = watch::channel(Some(Arc::new(ca)));
    let asked = Arc::default();
    let reviews = Reviews {
        asked: Arc::clone(&asked),
        at_once: Semaphore::new(2),
    };
    let metrics = CertifyMetrics::new(&Registry::new(1));
    let ttl = Duration::from_secs(3600);
    let certifier = Certifier::new(ca, Box::new(reviews), ttl, metrics);
    (Arc::new(certifier), asked)
}

async fn certify(certifier: &Certifier, from: u8, token: String) -> Result<(), Code> {
    let request = CertifyRequest {
        certificate_signing_request: KeyRequest::generate().unwrap().der().unwrap().into(),
        token,
    };
    let address = SocketAddr::from(([10, 0, 0, from], 1));
    let answer = certifier.certify(address, request).await;
    answer.map(drop).map_err(|status| status.code)
}

/// Few of the tokens reach the API server, and pods of other sources do not wait for their review.
#[tokio::test]
async fn random_tokens_of_one_source_are_refused_without_a_review() {
    let (certifier, asked) = certifier();
    let began = Instant::now();
    let attack = Arc::clone(&certifier);
    let attack = tokio::spawn(async move {
        let mut refused = 0;
        for i in 0..2000 {
            let answer = certify(&attack, 9, format!("random {i}")).await;
            refused += usize::from(answer == Err(Code::ResourceExhausted));
        }
        refused
    });
    for i in 0..8 {
        assert_eq!(certify(&certifier, 1, format!("good {i}")).await, Ok(()));
    }
    let refused = attack.await.unwrap();
    let allowed = began.elapsed().as_secs_f64() * f64::from(REFUSED.0);
    let allowed = REFUSED.1 as usize + 2 + allowed.ceil() as usize + 8;
    let asked = asked.load(Ordering::SeqCst);
    assert!(asked <= allowed, "{asked} of at most {allowed}");
    assert!(refused >= 2000 - allowed, "{refused}");
    // The source is barred as a whole, for a short time.
    let mut again = certify(&certifier, 9, "good 9".to_owned()).await;
    while again == Err(Code::ResourceExhausted) {
        assert!(began.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(10)).await;
        again = certify(&certifier, 9, "good 9".to_owned()).await;
    }
    assert_eq!(again, Ok(()));
}

/// All pods of a node may have one address.
#[tokio::test]
async fn tokens_that_are_valid_are_not_counted_by_source() {
    let (certifier, _) = certifier();
    for i in 0..2 * REFUSED.1 {
        assert_eq!(certify(&certifier, 1, format!("good {i}")).await, Ok(()));
    }
}

/// A failed review does not count against the source.
#[tokio::test]
async fn reviews_that_fail_bar_no_source() {
    let (certifier, _) = certifier();
    let source = IpAddr::from([10, 0, 0, 1]);
    for _ in 0..2 * REFUSED.1 {
        certifier.refuse(source, &TokenError::Unavailable("away".to_owned()));
    }
    assert!(certifier.may_show(source).is_ok());
}

/// With a signer that issues nothing: requests that are rejected before the signer is used.
mod with_a_signer {
    use maglor_identity::{SpiffeId, TrustBundle};
    use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, IsCa, KeyPair, SanType};

    use super::super::super::signer::{RemoteSigner, Signed, SignerError};
    use super::*;

    const CART: &str = "spiffe://mesh.example/ns/shop/sa/cart";

    /// A signer that is always busy.
    #[derive(Debug)]
    struct Busy(TrustDomain);

    impl RemoteSigner for Busy {
        fn name(&self) -> &'static str {
            "a.test/b"
        }

        fn trust_domain(&self) -> &TrustDomain {
            &self.0
        }

        fn sign<'a>(&'a self, _: &'a NamedRequest, _: &'a str, _: &'a TrustBundle) -> Signed<'a> {
            let signer = self.name().parse().unwrap();
            Box::pin(async { Err(SignerError::Busy { signer }) })
        }
    }

    fn signing() -> Certifier {
        let domain: TrustDomain = "mesh.example".parse().unwrap();
        let signer = Busy(domain.clone());
        let ttl = Duration::from_secs(3600);
        let authority = Authority::create(&domain, SystemTime::now()).unwrap();
        let in_force = InForce {
            issuer: Issuer::Signer(Arc::new(signer)),
            bundle: authority.bundle().unwrap(),
        };
        let (_, in_force) = watch::channel(Some(Arc::new(in_force)));
        let reviews = Reviews {
            asked: Arc::default(),
            at_once: Semaphore::new(2),
        };
        let metrics = CertifyMetrics::new(&Registry::new(1));
        Certifier::new(in_force, Box::new(reviews), ttl, metrics)
    }

    async fn ask(certifier: &Certifier, der: Vec<u8>) -> Result<CertifyResponse, Status> {
        let request = CertifyRequest {
            certificate_signing_request: der.into(),
            token: "good".to_owned(),
        };
        let address = SocketAddr::from(([10, 0, 0, 1], 1));
        certifier.certify(address, request).await
    }

    #[tokio::test]
    async fn a_request_without_names_gets_the_identity_that_it_must_name() {
        let certifier = signing();
        let key = KeyRequest::generate().unwrap();
        let response = ask(&certifier, key.der().unwrap()).await.unwrap();
        assert_eq!(response.required_identity, CART);
        assert!(response.chain.is_empty() && response.roots.is_empty());
        // With this name it reaches the signer.
        let id: SpiffeId = response.required_identity.parse().unwrap();
        let named = key.der_naming(&id, &[]).unwrap();
        let status = ask(&certifier, named).await.unwrap_err();
        assert_eq!(status.code, Code::Unavailable, "{status}");
    }

    #[tokio::test]
    async fn other_names_never_reach_the_signer() {
        let certifier = signing();
        let uri = |text: &str| SanType::URI(text.try_into().unwrap());
        let request = |names: &[&str], is_ca| {
            let mut params = CertificateParams::default();
            params.distinguished_name = DistinguishedName::new();
            params.subject_alt_names = names.iter().map(|name| uri(name)).collect();
            params.is_ca = is_ca;
            let key = KeyPair::generate().unwrap();
            params.serialize_request(&key).unwrap().der().to_vec()
        };
        let web = "spiffe://mesh.example/ns/shop/sa/web";
        let mut forged = request(&[CART], IsCa::NoCa);
        *forged.last_mut().unwrap() ^= 1;
        for (der, why) in [
            (request(&[web], IsCa::NoCa), "it must name"),
            (request(&[CART, web], IsCa::NoCa), "it must name"),
            (
                request(&[CART], IsCa::Ca(BasicConstraints::Unconstrained)),
                "CA certificate",
            ),
            (forged, "not signed by its own key"),
            (b"nonsense".to_vec(), "malformed"),
        ] {
            let status = ask(&certifier, der).await.unwrap_err();
            assert_eq!(status.code, Code::InvalidArgument, "{status}");
            assert!(status.message.contains(why), "{status}");
        }
    }
}
