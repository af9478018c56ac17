//! Certificates that an authority issues or rejects, and its files.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use maglor_identity::{
    Authority, Error, Files, Fingerprint, Identity, LeafRequest, MAX_TTL, Paths, TrustBundle,
    Watch, x509,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, KeyUsagePurpose, SanType};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use support::{DAY, authority, id, identity};

fn leaf(pem: &str) -> x509::Certificate {
    x509::parse(&CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap()
}

#[test]
fn a_leaf_is_what_was_asked_for() {
    let request = LeafRequest {
        ttl: Duration::from_secs(3600),
        dns_names: vec!["cart.shop.svc".to_owned()],
        addresses: vec!["10.0.0.7".parse().unwrap(), "2001:db8::7".parse().unwrap()],
        ..LeafRequest::new(id("cart"))
    };
    let now = SystemTime::now();
    let issued = authority().issue(&request, now).unwrap();
    let leaf = leaf(&issued.certificate_pem);
    assert_eq!(leaf.uris, ["spiffe://mesh.test/ns/shop/sa/cart"]);
    assert_eq!(leaf.dns_names, request.dns_names);
    assert_eq!(leaf.addresses, request.addresses);
    assert!(!leaf.is_ca);
    assert!(leaf.begins() < now && leaf.begins() > now - Duration::from_secs(600));
    let left = leaf.expires().duration_since(now).unwrap();
    assert!(left <= request.ttl && left > request.ttl - Duration::from_secs(2));
}

#[test]
fn names_and_validity_of_a_certificate() {
    let read = |years: (i32, i32)| {
        let names = ["a.test", "*.B.test", "192.0.2.1"].map(str::to_owned);
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = rcgen::date_time_ymd(years.0, 2, 28);
        params.not_after = rcgen::date_time_ymd(years.1, 3, 1);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        x509::parse(certificate.der()).unwrap()
    };
    let found = read((2024, 2049));
    assert_eq!(found.dns_names, ["a.test", "*.b.test"]);
    assert_eq!(found.addresses, ["192.0.2.1".parse::<IpAddr>().unwrap()]);
    assert_eq!(
        (found.not_before, found.not_after),
        (1_709_078_400, 2_498_169_600)
    );
    // From 2050 on, and before 1950, as GeneralizedTime.
    assert_eq!(read((2024, 2050)).not_after, 2_529_705_600);
    assert_eq!(read((1949, 1970)).not_before, 0);
    assert_eq!(read((1999, 2000)).not_after, 951_868_800);
}

#[test]
fn what_must_not_be_issued_is_refused() {
    let authority = authority();
    let now = SystemTime::now();
    let issue = |request: LeafRequest| authority.issue(&request, now).unwrap_err();
    for ttl in [Duration::ZERO, MAX_TTL + Duration::from_secs(1)] {
        let error = issue(LeafRequest {
            ttl,
            ..LeafRequest::new(id("a"))
        });
        assert!(matches!(error, Error::Ttl { .. }), "{error}");
    }
    let foreign = LeafRequest::new("spiffe://other.test/ns/a/sa/b".parse().unwrap());
    assert!(matches!(issue(foreign), Error::ForeignId { .. }));
    let late = now + 20 * 365 * DAY;
    let error = authority
        .issue(&LeafRequest::new(id("a")), late)
        .unwrap_err();
    assert!(matches!(error, Error::AuthorityExpired), "{error}");
    // Nothing outlives the root.
    let last = authority.expires() - DAY / 2;
    let issued = authority.issue(&LeafRequest::new(id("a")), last).unwrap();
    assert_eq!(issued.expires, authority.expires());
}

#[test]
fn a_signing_request_returns_its_key_and_nothing_else() {
    let authority = authority();
    let now = SystemTime::now();
    for algorithm in [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_ED25519,
    ] {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let mut params = CertificateParams::new(vec!["admin.example".to_owned()]).unwrap();
        let uri = "spiffe://mesh.test/ns/kube-system/sa/admin";
        params
            .subject_alt_names
            .push(SanType::URI(uri.try_into().unwrap()));
        let csr = params.serialize_request(&key).unwrap();
        let issued = authority
            .sign(csr.der(), &LeafRequest::new(id("cart")), now)
            .unwrap();
        assert_eq!(issued.private_key_pem, None);
        let pem = &issued.certificate_pem;
        let identity = Identity::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes()).unwrap();
        assert_eq!(identity.id(), &id("cart"));
        let leaf = leaf(pem);
        assert_eq!((leaf.uris.len(), leaf.dns_names.len()), (1, 0));

        // Another key, or bytes that are not a request.
        let der = csr.der().to_vec();
        for at in [der.len() - 1, der.len() / 3] {
            let mut changed = der.clone();
            changed[at] ^= 1;
            assert!(
                authority
                    .sign(&changed, &LeafRequest::new(id("a")), now)
                    .is_err()
            );
        }
        for cut in 0..der.len() {
            assert!(
                authority
                    .sign(&der[..cut], &LeafRequest::new(id("a")), now)
                    .is_err()
            );
        }
        let more = [der.as_slice(), b"x"].concat();
        let error = authority
            .sign(&more, &LeafRequest::new(id("a")), now)
            .unwrap_err();
        assert!(matches!(error, Error::RequestMalformed));
    }
}

#[test]
fn an_authority_is_the_same_after_it_was_written_and_read() {
    let first = authority();
    let (certificate, key) = (first.certificate_pem(), first.private_key_pem());
    let again = Authority::from_pem(certificate.as_bytes(), key.as_bytes(), None).unwrap();
    assert_eq!(again.trust_domain().as_str(), "mesh.test");
    assert_eq!(again.expires(), first.expires());
    let live = maglor_identity::Live::new(identity(&again, "a"), first.bundle().unwrap());
    assert!(live.unwrap().is_trusted(SystemTime::now()));

    let other = authority();
    let key = other.private_key_pem();
    let error = Authority::from_pem(certificate.as_bytes(), key.as_bytes(), None).unwrap_err();
    assert!(matches!(error, Error::KeyMismatch), "{error}");
    let issued = first
        .issue(&LeafRequest::new(id("a")), SystemTime::now())
        .unwrap();
    let (leaf, key) = (issued.certificate_pem, issued.private_key_pem.unwrap());
    let error = Authority::from_pem(leaf.as_bytes(), key.as_bytes(), None).unwrap_err();
    assert!(matches!(error, Error::NotAnAuthority), "{error}");
}

#[test]
fn a_root_made_elsewhere_is_used_under_its_own_name() {
    use rcgen::{BasicConstraints, DnType, IsCa};
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let name = &mut params.distinguished_name;
    name.push(
        DnType::CountryName,
        rcgen::DnValue::PrintableString("DE".try_into().unwrap()),
    );
    name.push(DnType::OrganizationName, "Ünion");
    name.push(
        DnType::from_oid(&[1, 2, 840, 113_549, 1, 9, 1]),
        "a@b.example",
    );
    let key = KeyPair::generate().unwrap();
    let root = params.self_signed(&key).unwrap().pem();
    let read =
        |domain| Authority::from_pem(root.as_bytes(), key.serialize_pem().as_bytes(), domain);
    assert!(matches!(read(None), Err(Error::NoTrustDomain)));
    let authority = read(Some("mesh.test".parse().unwrap())).unwrap();
    let live = maglor_identity::Live::new(identity(&authority, "a"), authority.bundle().unwrap());
    assert!(live.unwrap().is_trusted(SystemTime::now()));
}

fn write(dir: &Path, authority: &Authority, account: &str) {
    let now = SystemTime::now();
    let issued = authority
        .issue(&LeafRequest::new(id(account)), now)
        .unwrap();
    fs::write(dir.join("certificate.pem"), issued.certificate_pem).unwrap();
    fs::write(dir.join("private_key.pem"), issued.private_key_pem.unwrap()).unwrap();
    fs::write(dir.join("trust_bundle.pem"), authority.certificate_pem()).unwrap();
}

#[test]
fn files_are_read_again_when_they_change_and_errors_name_them() {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths {
        certificate: dir.path().join("certificate.pem"),
        private_key: dir.path().join("private_key.pem"),
        trust_bundle: dir.path().join("trust_bundle.pem"),
    };
    let open = || Files::open(paths.clone());
    assert!(
        open()
            .unwrap_err()
            .to_string()
            .contains("certificate.pem: No such file")
    );
    let authority = authority();
    write(dir.path(), &authority, "a");
    let (mut files, identity, bundle) = open().unwrap();
    assert_eq!((identity.id(), bundle.certificates().len()), (&id("a"), 1));
    assert!(files.poll().is_none());
    write(dir.path(), &authority, "b");
    let (identity, _) = files.poll().unwrap().unwrap();
    assert_eq!(identity.id(), &id("b"));
    assert!(files.poll().is_none());
    // Half of a new pair.
    let certificate = fs::read(&paths.certificate).unwrap();
    write(dir.path(), &authority, "c");
    let new = fs::read(&paths.certificate).unwrap();
    fs::write(&paths.certificate, &certificate).unwrap();
    let error = files.poll().unwrap().unwrap_err().to_string();
    assert!(
        error.contains("private_key.pem: the private key does not belong"),
        "{error}"
    );
    assert!(files.poll().is_none(), "said once");
    fs::write(&paths.certificate, &new[..new.len() / 2]).unwrap();
    let error = files.poll().unwrap().unwrap_err().to_string();
    assert!(error.contains("certificate.pem: not PEM"), "{error}");
    // A broken key is not the certificate's fault.
    fs::write(&paths.certificate, new).unwrap();
    let key = fs::read(&paths.private_key).unwrap();
    fs::write(&paths.private_key, &key[..key.len() / 2]).unwrap();
    let error = files.poll().unwrap().unwrap_err().to_string();
    let expected = "private_key.pem: private key not usable: not PEM";
    assert!(error.contains(expected), "{error}");
    fs::write(&paths.private_key, key).unwrap();
    assert_eq!(files.poll().unwrap().unwrap().0.id(), &id("c"));
    fs::write(&paths.trust_bundle, "").unwrap();
    let error = files.poll().unwrap().unwrap_err().to_string();
    assert!(
        error.contains("trust_bundle.pem: no certificate"),
        "{error}"
    );
}

#[test]
fn unreadable_files_are_retried_although_they_do_not_change() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    fs::write(&path, "a").unwrap();
    let look = || Fingerprint::of([path.as_path()].into_iter());
    let mut watch = Watch::new(look());
    let no_descriptor = || Err::<(), _>(Error::Read(io::Error::from_raw_os_error(24)));
    assert!(watch.poll(look(), no_descriptor).is_none(), "not changed");
    fs::write(&path, "ab").unwrap();
    assert!(watch.poll(look(), no_descriptor).unwrap().is_err());
    assert!(watch.poll(look(), no_descriptor).is_none(), "said once");
    let denied = || Err::<(), _>(Error::Read(io::ErrorKind::PermissionDenied.into()));
    assert!(watch.poll(look(), denied).unwrap().is_err(), "another one");
    assert!(watch.poll(look(), || Ok(())).unwrap().is_ok());
    assert!(watch.poll(look(), || Ok(())).is_none());
    // Invalid content stays an error until the files change.
    fs::write(&path, "abc").unwrap();
    let broken = || Err::<(), _>(Error::NoCertificate);
    assert!(watch.poll(look(), broken).unwrap().is_err());
    assert!(watch.poll(look(), || Ok(())).is_none());
}

#[test]
fn who_may_sign_is_no_workload_and_who_may_not_is_no_root() {
    let ours = authority();
    let read = |usages: &[KeyUsagePurpose], is_ca| {
        let mut params = CertificateParams::default();
        let uri = id("web").as_str().try_into().unwrap();
        params.subject_alt_names.push(SanType::URI(uri));
        params.key_usages = usages.to_vec();
        params.is_ca = is_ca;
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Identity::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes())
    };
    use KeyUsagePurpose::{CrlSign, DigitalSignature, KeyCertSign};
    assert!(read(&[DigitalSignature], IsCa::NoCa).is_ok());
    let unconstrained = IsCa::Ca(BasicConstraints::Unconstrained);
    for error in [
        read(&[DigitalSignature, KeyCertSign], IsCa::NoCa),
        read(&[CrlSign], IsCa::ExplicitNoCa),
        read(&[DigitalSignature], unconstrained),
    ] {
        let error = error.unwrap_err().to_string();
        assert!(error.contains("is a CA certificate"), "{error}");
    }
    // A leaf that has got into the bundle would make its owner an authority.
    let leaf = ours.issue(&LeafRequest::new(id("web")), SystemTime::now());
    let both = ours.certificate_pem() + &leaf.unwrap().certificate_pem;
    let error = TrustBundle::from_pem(both.as_bytes()).unwrap_err();
    assert!(
        matches!(error, Error::RootNotAnAuthority { position: 2 }),
        "{error}"
    );
}

#[test]
fn identities_are_renewed_at_seventy_percent() {
    let identity = identity(&authority(), "a");
    let begins = SystemTime::now() - Duration::from_secs(300);
    let after = identity
        .renew_at()
        .duration_since(begins)
        .unwrap()
        .as_secs_f64();
    let lifetime = identity
        .expires()
        .duration_since(begins)
        .unwrap()
        .as_secs_f64();
    assert!((after / lifetime - 0.7).abs() < 0.01);
}

#[test]
fn bundles_are_united_without_repetition() {
    let (a, b) = (authority().bundle().unwrap(), authority().bundle().unwrap());
    let both = a.union(&b).unwrap();
    assert_eq!(both.certificates().len(), 2);
    assert_eq!(both.union(&a).unwrap().certificates().len(), 2);
    let again = TrustBundle::from_pem(both.to_pem().as_bytes()).unwrap();
    assert_eq!(again.certificates(), both.certificates());
    let malformed = format!(
        "{}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        both.to_pem()
    );
    let error = TrustBundle::from_pem(malformed.as_bytes()).unwrap_err();
    assert!(
        error.to_string().contains("certificate 3 is not usable"),
        "{error}"
    );
}
