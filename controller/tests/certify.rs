//! The identity service of the program, over TLS: accepted and rejected certificate requests, and what a certificate
//! lets its owner see.

use std::time::{Duration, SystemTime};

use maglor_identity::{Authority, KeyRequest, Live};
use maglor_xds::grpc_server::CertifyRequest;
use maglor_xds::{BUNDLE, Kind, decode};

use crate::support::fixture::{CART, Fixture, OLD, WEB, domain};
use crate::support::grpc::Stream;

const PODS: &str = "
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {clusterIP: 10.0.0.1, ports: [{port: 80, name: http}]}
---
apiVersion: v1
kind: Pod
metadata: {name: cart-0, namespace: shop, annotations: {maglor.dev/injected: 'true'}}
spec: {serviceAccountName: cart}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop, annotations: {maglor.dev/injected: 'true'}}
spec: {serviceAccountName: web}
";

#[tokio::test]
async fn a_token_leads_to_a_certificate_of_its_account() {
    let fixture = Fixture::start(PODS, "1h").await;
    let identity = fixture.certified(CART).await;
    assert_eq!(
        identity.id().as_str(),
        "spiffe://mesh.example/ns/shop/sa/cart"
    );
    let left = identity
        .expires()
        .duration_since(SystemTime::now())
        .unwrap();
    assert!(left <= Duration::from_secs(3600), "{left:?}");
    let live = Live::new(identity, fixture.bundle()).unwrap();
    assert!(live.is_trusted(SystemTime::now()));
    // A server that impersonates the controller gets no token: not even a workload of the mesh.
    let nameless = Live::nameless(fixture.bundle()).unwrap();
    assert!(
        fixture
            .connect_to(&nameless, "another-server")
            .await
            .is_err()
    );
    let foreign = Authority::create(&domain(), SystemTime::now()).unwrap();
    let foreign = Live::nameless(foreign.bundle().unwrap()).unwrap();
    assert!(
        fixture
            .connect_to(&foreign, "maglor-controller")
            .await
            .is_err()
    );
}

#[tokio::test]
async fn without_a_good_token_or_a_good_request_there_is_no_certificate() {
    let fixture = Fixture::start(PODS, "1h").await;
    let key = KeyRequest::generate().unwrap();
    let good = key.der().unwrap();
    let mut forged = good.clone();
    *forged.last_mut().unwrap() ^= 1;
    for (token, request, code) in [
        ("", &good, 16),
        ("token-of-no-workload", &good, 16),
        (OLD, &good, 16),
        (CART, &forged, 3),
        (CART, &Vec::new(), 3),
        (CART, &b"nonsense".to_vec(), 3),
    ] {
        let request = CertifyRequest {
            certificate_signing_request: request.clone().into(),
            token: token.to_owned(),
        };
        let status = fixture
            .nameless()
            .await
            .certify(&request)
            .await
            .unwrap_err();
        assert_eq!(status.code, code, "{token}: {}", status.message);
        assert!(token.is_empty() || !status.message.contains(token));
    }
    let log = fixture.controller.log();
    for token in [CART, OLD, "token-of-no-workload"] {
        assert!(!log.contains(token), "a token is in the log:\n{log}");
    }
}

#[tokio::test]
async fn what_a_request_asks_for_besides_its_key_is_ignored() {
    let fixture = Fixture::start(PODS, "1h").await;
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["example.com".to_owned()]).unwrap();
    let admin = "spiffe://mesh.example/ns/maglor/sa/maglor-controller";
    let admin = rcgen::SanType::URI(admin.try_into().unwrap());
    params.subject_alt_names.push(admin);
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    // The library writes no request of an authority; the names are enough to lie by.
    params.is_ca = rcgen::IsCa::NoCa;
    let asked = params.serialize_request(&key).unwrap();
    let request = CertifyRequest {
        certificate_signing_request: asked.der().to_vec().into(),
        token: CART.to_owned(),
    };
    let response = fixture.nameless().await.certify(&request).await.unwrap();
    let leaf = maglor_identity::x509::parse(&response.chain[0]).unwrap();
    assert_eq!(leaf.uris, ["spiffe://mesh.example/ns/shop/sa/cart"]);
    assert!(leaf.dns_names.is_empty() && !leaf.is_ca);
}

#[tokio::test]
async fn a_client_that_asks_repeatedly_waits_and_no_other_does() {
    let fixture = Fixture::start(PODS, "1h").await;
    let key = KeyRequest::generate().unwrap().der().unwrap();
    let ask = async |token: &str| {
        let request = CertifyRequest {
            certificate_signing_request: key.clone().into(),
            token: token.to_owned(),
        };
        fixture.nameless().await.certify(&request).await
    };
    let mut refused = None;
    for _ in 0..100 {
        if let Err(status) = ask(CART).await {
            refused = Some(status);
            break;
        }
    }
    let refused = refused.unwrap();
    assert_eq!(refused.code, 8, "{}", refused.message);
    ask(WEB).await.unwrap();
}

#[tokio::test]
async fn members_see_what_is_theirs_and_others_nothing() {
    let fixture = Fixture::start(PODS, "1h").await;
    let none = fixture.nameless().await.refused("shop/cart-0").await;
    assert_eq!(none.code, 16, "{}", none.message);
    let cart = fixture.member(CART).await;
    let elsewhere = fixture.connect(&cart).await.refused("other/cart-0").await;
    assert_eq!(elsewhere.code, 7, "{}", elsewhere.message);

    let connection = fixture.connect(&cart).await;
    let mut stream = Stream::open(connection, "shop/cart-0").await;
    stream.want(Kind::Inbound, &["shop/cart-0", "shop/web-0"]);
    stream.want(Kind::Cluster, &["cart.shop.svc.cluster.local:80"]);
    stream
        .until("its own inbound and not that of others", |seen| {
            seen.len() == 3
        })
        .await;
    assert!(stream.body(Kind::Inbound, "shop/cart-0").is_some());
    assert!(stream.body(Kind::Inbound, "shop/web-0").is_none());
    assert!(
        stream
            .body(Kind::Cluster, "cart.shop.svc.cluster.local:80")
            .is_some()
    );

    // A pod's name is not enough: the account has to be that of the pod.
    let web = fixture.member(WEB).await;
    let connection = fixture.connect(&web).await;
    let mut stream = Stream::open(connection, "shop/cart-0").await;
    stream.want(Kind::Inbound, &["shop/cart-0"]);
    stream
        .until("it gets an empty response", |seen| seen.len() == 1)
        .await;
    assert!(stream.body(Kind::Inbound, "shop/cart-0").is_none());
}

#[tokio::test]
async fn trusted_roots_are_published_and_acknowledged() {
    let fixture = Fixture::start(PODS, "1h").await;
    let cart = fixture.member(CART).await;
    let mut stream = Stream::open(fixture.connect(&cart).await, "shop/cart-0").await;
    stream.want(Kind::Bundle, &[BUNDLE]);
    let roots = |stream: &Stream| {
        let body = stream.body(Kind::Bundle, BUNDLE)?;
        Some(decode::bundle(BUNDLE, body).unwrap().certificates().len())
    };
    stream
        .until("the root is published", |seen| !seen.is_empty())
        .await;
    assert_eq!(roots(&stream), Some(1));

    let now = SystemTime::now();
    let next = Authority::create(&domain(), now).unwrap();
    let both = next.bundle().unwrap().union(&fixture.bundle()).unwrap();
    let crossed = next.crossed_by(&fixture.authority, now).unwrap();
    stream.hold();
    fixture.rotate(&next, &both, Some(&crossed));
    stream
        .until("both roots are published", |seen| {
            let body = seen.values().next().cloned().flatten();
            body.is_some_and(|body| {
                decode::bundle(BUNDLE, &body).unwrap().certificates().len() == 2
            })
        })
        .await;
    let trust = fixture.controller.json("/trust").await;
    assert_eq!(
        trust["clients_behind"],
        serde_json::json!(["shop/cart-0"]),
        "{trust}"
    );
    stream.answer();
    fixture
        .controller
        .until("the client has said to trust both", "/trust", |trust| {
            trust["clients_behind"]
                .as_array()
                .is_some_and(Vec::is_empty)
                && trust["roots"] == 2
        })
        .await;
    // A client with only the old root verifies a certificate of the new one, and vice versa.
    let again = fixture.certified(CART).await;
    let live = Live::new(again, fixture.bundle()).unwrap();
    assert!(live.is_trusted(SystemTime::now()));
    fixture.connect(&live).await;
}
