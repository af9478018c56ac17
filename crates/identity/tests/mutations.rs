//! Parsers of certificates, requests and ids accept any input without a panic. `SEED` replays a run.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::SystemTime;

use maglor_identity::{Identity, LeafRequest, SpiffeId, TrustBundle, x509};
use maglor_testkit::property::runner;
use proptest::prelude::*;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use support::{authority, id};

/// Cases from the seed in `SEED`, or from a fixed one; printed, so that a failure can be replayed.
fn check<S: Strategy>(cases: u32, strategy: &S, test: impl Fn(S::Value)) {
    let outcome = runner(17, cases).run(strategy, |value| {
        test(value);
        Ok(())
    });
    assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
}

/// The mutation: single bytes, and a truncation.
fn changes() -> impl Strategy<Value = (Vec<(prop::sample::Index, u8)>, prop::sample::Index)> {
    let byte = (any::<prop::sample::Index>(), any::<u8>());
    (
        prop::collection::vec(byte, 1..6),
        any::<prop::sample::Index>(),
    )
}

fn changed(der: &[u8], bytes: &[(prop::sample::Index, u8)]) -> Vec<u8> {
    let mut der = der.to_vec();
    for (at, value) in bytes {
        let at = at.index(der.len());
        der[at] = *value;
    }
    der
}

#[test]
fn mutated_certificates_are_never_trusted() {
    let authority = authority();
    let now = SystemTime::now();
    let issued = authority.issue(&LeafRequest::new(id("a")), now).unwrap();
    let der = CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap();
    let whole = x509::parse(&der).unwrap();
    assert_eq!(whole.uris, [id("a").to_string()]);
    check(3000, &changes(), |(bytes, cut)| {
        let changed = changed(&der, &bytes);
        let _ = x509::parse(&changed);
        assert_eq!(x509::parse(&der[..cut.index(der.len())]), None);
        let pem = pem::encode(&pem::Pem::new("CERTIFICATE", changed.clone()));
        let key = issued.private_key_pem.as_ref().unwrap();
        if let Ok(identity) = Identity::from_pem(pem.as_bytes(), key.as_bytes()) {
            let live = maglor_identity::Live::new(identity, authority.bundle().unwrap());
            let trusted = live.unwrap().is_trusted(now);
            assert!(!trusted || changed == *der, "{bytes:?}");
        }
    });
}

#[test]
fn changed_requests_are_not_signed() {
    let authority = authority();
    let key = rcgen::KeyPair::generate().unwrap();
    let request = rcgen::CertificateParams::default()
        .serialize_request(&key)
        .unwrap();
    let der = request.der().to_vec();
    let leaf = LeafRequest::new(id("a"));
    check(1000, &changes(), |(bytes, cut)| {
        let changed = changed(&der, &bytes);
        let signed = authority.sign(&changed, &leaf, SystemTime::now());
        assert!(signed.is_err() || changed == der, "{bytes:?}");
        let cut = &der[..cut.index(der.len())];
        assert!(authority.sign(cut, &leaf, SystemTime::now()).is_err());
    });
}

#[test]
fn pem_of_any_kind_is_read_or_refused() {
    let authority = authority();
    let text = authority.certificate_pem() + &authority.private_key_pem();
    check(1000, &changes(), |(bytes, cut)| {
        let changed = changed(text.as_bytes(), &bytes);
        let cut = &changed[..cut.index(changed.len())];
        let _ = TrustBundle::from_pem(cut);
        let _ = Identity::from_pem(&changed, cut);
        let _ = maglor_identity::Authority::from_pem(cut, &changed, None);
    });
}

#[test]
fn ids_are_refused_or_written_as_they_were_read() {
    let words = prop::sample::select(vec![
        "spiffe://",
        "spiffe:",
        "/",
        "//",
        "a",
        "mesh.test",
        "ns",
        "sa",
        ".",
        "..",
        "%41",
        ":80",
        "@",
        "?q",
        "#f",
        "A",
        "é",
        "_",
        "-",
        "0",
    ]);
    let texts = prop::collection::vec(words, 0..9).prop_map(|words| words.concat());
    check(5000, &texts, |text| {
        if let Ok(id) = text.parse::<SpiffeId>() {
            assert_eq!(id.to_string(), text);
            assert_eq!(format!("spiffe://{}{}", id.trust_domain(), id.path()), text);
            assert!(!id.path().contains("//") && !id.path().ends_with('/'));
            if let (Some(namespace), Some(account)) = (id.namespace(), id.service_account()) {
                let domain = id.to_trust_domain();
                assert_eq!(
                    SpiffeId::workload(&domain, namespace, account),
                    Ok(id.clone())
                );
            }
        }
    });
}
