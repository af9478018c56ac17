use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::SystemTime;

use http::{Request, Response};
use k8s_openapi::ByteString;
use kube::client::Body;
use maglor_identity::{Authority, TrustDomain};

use super::super::external::ExternalSigner;
use super::*;

fn secret(data: &[(&str, String)]) -> Secret {
    let data = data.iter();
    let data = data.map(|(key, text)| ((*key).to_owned(), ByteString(text.clone().into_bytes())));
    Secret {
        data: Some(data.collect::<BTreeMap<_, _>>()),
        ..Secret::default()
    }
}

fn root() -> String {
    let domain: TrustDomain = "mesh.test".parse().unwrap();
    let authority = Authority::create(&domain, SystemTime::now()).unwrap();
    authority.certificate_pem()
}

fn roots() -> Roots {
    let none = |_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) };
    let client = Client::new(tower::service_fn(none), "default");
    let domain = "mesh.test".parse().unwrap();
    let name = "a.test/b".parse().unwrap();
    let (signer, _) = ExternalSigner::new(client, &name, &domain, Duration::from_secs(3600));
    Roots {
        place: Place {
            namespace: "maglor".to_owned(),
            name: "maglor-ca".to_owned(),
        },
        signer: Arc::new(signer),
        in_force: watch::channel(None).0,
        progress: watch::channel(None).0,
    }
}

fn refused(roots: &Roots) -> Option<String> {
    roots.progress.borrow().as_ref().unwrap().refused.clone()
}

fn count(roots: &Roots) -> Option<usize> {
    let in_force = roots.in_force.borrow();
    Some(in_force.as_ref()?.bundle.certificates().len())
}

#[tokio::test]
async fn until_there_are_roots_it_is_said_what_is_missing() {
    let mut roots = roots();
    roots.take(None);
    let why = refused(&roots).unwrap();
    assert!(
        why.starts_with("Secret maglor/maglor-ca does not exist"),
        "{why}"
    );
    roots.take(Some(&secret(&[("tls.crt", root())])));
    let why = refused(&roots).unwrap();
    assert!(why.contains("has no `ca.crt`"), "{why}");
    assert_eq!(count(&roots), None);
    roots.take(Some(&secret(&[("ca.crt", root())])));
    assert_eq!((refused(&roots), count(&roots)), (None, Some(1)));
}

#[tokio::test]
async fn roots_change_at_once_and_unusable_ones_not_at_all() {
    let mut roots = roots();
    let (old, new) = (root(), root());
    roots.take(Some(&secret(&[("ca.crt", old.clone())])));
    let mut in_force = roots.in_force.subscribe();
    roots.take(Some(&secret(&[("ca.crt", old.clone())])));
    assert!(!in_force.has_changed().unwrap(), "the same roots");
    roots.take(Some(&secret(&[("ca.crt", format!("{new}{old}"))])));
    assert!(in_force.has_changed().unwrap());
    assert_eq!(count(&roots), Some(2));
    in_force.borrow_and_update();
    for wrong in [
        None,
        Some(secret(&[])),
        Some(secret(&[("ca.crt", String::new())])),
        Some(secret(&[("ca.crt", "nonsense".to_owned())])),
    ] {
        roots.take(wrong.as_ref());
        assert!(refused(&roots).is_some());
        assert_eq!(count(&roots), Some(2));
    }
    assert!(!in_force.has_changed().unwrap());
    roots.take(Some(&secret(&[("ca.crt", new)])));
    assert_eq!((refused(&roots), count(&roots)), (None, Some(1)));
}
