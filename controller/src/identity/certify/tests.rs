use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use maglor_identity::{Authority, KeyRequest, TrustDomain};
use tokio::sync::{Semaphore, watch};

use super::super::authenticate::Authenticated;
use super::super::authority::Ca;
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
    let (_, ca) = watch::channel(Some(Arc::new(Ca { authority, bundle })));
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

/// Few of them reach the API server, and pods of other sources do not wait for the others.
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
    // The source is barred as a whole, and for a short time.
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
