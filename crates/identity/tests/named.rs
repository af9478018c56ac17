//! Requests for a signer that copies their names, and the verification of what it has issued.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::{Duration, SystemTime};

use maglor_identity::{
    Authority, Error, KeyRequest, LeafRequest, MAX_TTL, NamedRequest, TrustBundle,
};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use support::{DAY, authority, id};

const MINUTE: Duration = Duration::from_secs(60);

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

/// The parameters of a request that is accepted for `cart`.
fn params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.subject_alt_names = vec![uri(id("cart").as_str())];
    params
}

fn verify(params: &CertificateParams) -> Result<NamedRequest, Error> {
    let key = KeyPair::generate().unwrap();
    let request = params.serialize_request(&key).unwrap();
    NamedRequest::verify(request.der(), &id("cart"), &[])
}

#[test]
fn a_request_with_its_own_names_is_accepted() {
    let key = KeyRequest::generate().unwrap();
    let der = key.der_naming(&id("cart"), &[]).unwrap();
    let request = NamedRequest::verify(&der, &id("cart"), &[]).unwrap();
    assert_eq!(request.id(), &id("cart"));
    let pem = request.pem();
    assert!(pem.starts_with("-----BEGIN CERTIFICATE REQUEST-----\n"));

    let dns = ["a.test".to_owned(), "b.test".to_owned()];
    let der = key.der_naming(&id("cart"), &dns).unwrap();
    NamedRequest::verify(&der, &id("cart"), &dns).unwrap();
    let reversed = [dns[1].clone(), dns[0].clone()];
    NamedRequest::verify(&der, &id("cart"), &reversed).unwrap();
    let error = NamedRequest::verify(&der, &id("cart"), &dns[..1]).unwrap_err();
    assert!(matches!(error, Error::RequestNames { .. }), "{error}");

    let mut explicit = params();
    explicit.is_ca = IsCa::ExplicitNoCa;
    verify(&explicit).unwrap();
}

#[test]
fn a_request_without_names_is_distinguished() {
    let der = KeyRequest::generate().unwrap().der().unwrap();
    let error = NamedRequest::verify(&der, &id("cart"), &[]).unwrap_err();
    assert!(matches!(error, Error::RequestUnnamed), "{error}");
    // Only if its signature is valid.
    let mut forged = der;
    *forged.last_mut().unwrap() ^= 1;
    let error = NamedRequest::verify(&forged, &id("cart"), &[]).unwrap_err();
    assert!(matches!(error, Error::RequestSignature), "{error}");
}

#[test]
fn other_names_are_rejected() {
    let names = |names: Vec<SanType>| {
        let mut params = params();
        params.subject_alt_names = names;
        verify(&params).unwrap_err()
    };
    let own = || uri(id("cart").as_str());
    let dns = SanType::DnsName("cart.shop.svc".try_into().unwrap());
    for wrong in [
        vec![uri(id("web").as_str())],
        vec![own(), uri(id("web").as_str())],
        vec![own(), own()],
        vec![own(), dns.clone()],
        vec![dns],
        vec![uri("spiffe://mesh.test/ns/shop/sa/cart/")],
    ] {
        let error = names(wrong);
        assert!(matches!(error, Error::RequestNames { .. }), "{error}");
        let text = error.to_string();
        let required = "it must name `spiffe://mesh.test/ns/shop/sa/cart` only";
        assert!(text.contains(required), "{text}");
    }
    for other in [
        SanType::IpAddress("10.0.0.1".parse().unwrap()),
        SanType::Rfc822Name("a@b.test".try_into().unwrap()),
    ] {
        let error = names(vec![own(), other]);
        assert!(matches!(error, Error::RequestExtra(_)), "{error}");
    }
}

#[test]
fn names_in_an_error_are_short() {
    let mut params = params();
    let long = format!("spiffe://a/{}\u{7}", "b".repeat(5000));
    params.subject_alt_names = (0..100).map(|_| uri(&long)).collect();
    let text = verify(&params).unwrap_err().to_string();
    assert!(text.len() < 2000, "{}", text.len());
    assert!(text.contains(" and 96 others"), "{text}");
}

#[test]
fn anything_else_that_a_signer_could_copy_is_rejected() {
    let mut authority = params();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let error = verify(&authority).unwrap_err();
    assert!(matches!(error, Error::RequestAuthority), "{error}");

    let mut subject = params();
    subject.distinguished_name.push(DnType::CommonName, "admin");
    let mut usages = params();
    usages.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let mut extended = params();
    extended.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
    let mut custom = params();
    let extension = CustomExtension::from_oid_content(&[2, 5, 29, 30], vec![0x30, 0]);
    custom.custom_extensions = vec![extension];
    let mut twice = params();
    let names = [&[0x30, 7, 0x86, 5][..], b"spiff"].concat();
    let extension = CustomExtension::from_oid_content(&[2, 5, 29, 17], names);
    twice.custom_extensions = vec![extension];
    for params in [subject, usages, extended, custom, twice] {
        let error = verify(&params).unwrap_err();
        assert!(matches!(error, Error::RequestExtra(_)), "{error}");
    }
}

#[test]
fn a_forged_or_malformed_request_is_rejected() {
    let key = KeyRequest::generate().unwrap();
    let der = key.der_naming(&id("cart"), &[]).unwrap();
    for at in 0..der.len() {
        let mut changed = der.clone();
        changed[at] ^= 1;
        assert!(NamedRequest::verify(&changed, &id("cart"), &[]).is_err());
        assert!(NamedRequest::verify(&der[..at], &id("cart"), &[]).is_err());
    }
}

/// A signer, its roots, and a request for `cart`.
struct Fixture {
    authority: Authority,
    roots: TrustBundle,
    key: KeyRequest,
    request: NamedRequest,
    now: SystemTime,
}

impl Fixture {
    fn new() -> Self {
        let (authority, key) = (authority(), KeyRequest::generate().unwrap());
        let der = key.der_naming(&id("cart"), &[]).unwrap();
        Self {
            roots: authority.bundle().unwrap(),
            request: NamedRequest::verify(&der, &id("cart"), &[]).unwrap(),
            now: SystemTime::now(),
            authority,
            key,
        }
    }

    fn signed(&self, leaf: &LeafRequest, now: SystemTime) -> String {
        let der = self.key.der().unwrap();
        self.authority
            .sign(&der, leaf, now)
            .unwrap()
            .certificate_pem
    }

    fn issued(&self, pem: &str) -> Result<maglor_identity::Issued, Error> {
        self.request.issued(pem.as_bytes(), &self.roots, self.now)
    }
}

#[test]
fn the_requested_certificate_is_accepted() {
    let fixture = Fixture::new();
    let pem = fixture.signed(&LeafRequest::new(id("cart")), fixture.now);
    let issued = fixture.issued(&pem).unwrap();
    assert_eq!(issued.private_key_pem, None);
    assert!(issued.expires <= fixture.now + MAX_TTL);
    let chain = issued.chain.iter().map(|one| one.to_vec());
    assert_eq!(fixture.key.certified(chain).unwrap().id(), &id("cart"));
    // A signer whose clock is a minute ahead, in a certificate that is not backdated for more than five.
    let later = fixture.now + 6 * MINUTE;
    let pem = fixture.signed(&LeafRequest::new(id("cart")), later);
    let pem_of_text = format!("Certificate:\n  Data: …\n{pem}");
    let error = fixture.issued(&pem_of_text).unwrap_err();
    assert!(matches!(error, Error::IssuedLifetime { .. }), "{error}");
    let short = LeafRequest {
        ttl: DAY / 2,
        ..LeafRequest::new(id("cart"))
    };
    fixture.issued(&fixture.signed(&short, later)).unwrap();
}

#[test]
fn another_certificate_is_rejected() {
    let fixture = Fixture::new();
    let now = fixture.now;
    let cart = || LeafRequest::new(id("cart"));
    let is_names = |error: &Error| matches!(error, Error::IssuedNames { .. });
    let error = fixture.issued(&fixture.signed(&LeafRequest::new(id("web")), now));
    assert!(is_names(&error.unwrap_err()));
    let more = LeafRequest {
        dns_names: vec!["a.test".to_owned()],
        ..cart()
    };
    let error = fixture.issued(&fixture.signed(&more, now)).unwrap_err();
    assert!(is_names(&error), "{error}");
    let address = LeafRequest {
        addresses: vec!["10.0.0.1".parse().unwrap()],
        ..cart()
    };
    let error = fixture.issued(&fixture.signed(&address, now)).unwrap_err();
    assert!(is_names(&error), "{error}");

    let other_key = fixture.authority.issue(&cart(), now).unwrap();
    let error = fixture.issued(&other_key.certificate_pem).unwrap_err();
    assert!(matches!(error, Error::IssuedKey), "{error}");

    let untrusted = |error: Error| {
        assert!(matches!(error, Error::IssuedUntrusted(_)), "{error}");
        error.to_string()
    };
    let foreign = Fixture {
        authority: authority(),
        ..fixture
    };
    let text = untrusted(foreign.issued(&foreign.signed(&cart(), now)).unwrap_err());
    assert!(text.contains("UnknownIssuer"), "{text}");
    let fixture = Fixture::new();
    let expired = fixture.signed(&cart(), now - 2 * DAY);
    untrusted(fixture.issued(&expired).unwrap_err());
    let future = fixture.signed(
        &LeafRequest {
            ttl: MINUTE,
            ..cart()
        },
        now + 20 * MINUTE,
    );
    untrusted(fixture.issued(&future).unwrap_err());
    assert!(matches!(fixture.issued(""), Err(Error::NoCertificate)));
}

/// A certificate by other means than an authority of the mesh, which issues no such ones.
fn leaf(usages: &[ExtendedKeyUsagePurpose], days: u32, is_ca: IsCa) -> Result<(), Error> {
    let root_key = KeyPair::generate().unwrap();
    let mut root = CertificateParams::default();
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    root.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let root_pem = root.self_signed(&root_key).unwrap().pem();
    let issuer = Issuer::new(root, root_key);
    let key = KeyPair::generate().unwrap();
    let mut params = params();
    let request = params.serialize_request(&key).unwrap();
    let request = NamedRequest::verify(request.der(), &id("cart"), &[]).unwrap();
    params.extended_key_usages = usages.to_vec();
    params.is_ca = is_ca;
    let now = SystemTime::now();
    params.not_before = now.into();
    params.not_after = (now + days * DAY).into();
    let pem = params.signed_by(&key, &issuer).unwrap().pem();
    let roots = TrustBundle::from_pem(root_pem.as_bytes()).unwrap();
    request.issued(pem.as_bytes(), &roots, now).map(drop)
}

#[test]
fn a_certificate_that_peers_would_reject_is_rejected() {
    use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
    let both = [ClientAuth, ServerAuth];
    leaf(&both, 1, IsCa::NoCa).unwrap();
    let error = leaf(&both, 90, IsCa::NoCa).unwrap_err();
    assert!(matches!(error, Error::IssuedLifetime { .. }), "{error}");
    assert!(
        error.to_string().contains("at most 1day is accepted"),
        "{error}"
    );
    for one in both {
        let error = leaf(&[one], 1, IsCa::NoCa).unwrap_err();
        assert!(matches!(error, Error::IssuedUntrusted(_)), "{error}");
    }
    let ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let error = leaf(&[], 1, ca).unwrap_err();
    assert!(matches!(error, Error::NotAnIdentity(_)), "{error}");
}
