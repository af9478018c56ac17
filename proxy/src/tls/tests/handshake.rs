use rustls::{AlertDescription, CertificateError};

use super::*;

fn first_certificate(files: &CertificateFiles) -> CertificateDer<'static> {
    use rustls::pki_types::pem::PemObject as _;
    CertificateDer::from_pem_file(&files.certificate).unwrap()
}

#[tokio::test]
async fn the_certificate_is_chosen_by_sni() {
    let ca = Ca::new();
    // The default certificate is valid for all names, so that only the selection is tested.
    let names = ["default.test", "a.test", "c.b.a.test", "other.test"];
    let default = ca.issue(&names);
    let wildcard = ca.issue(&["*.a.test"]);
    let exact = ca.issue(&["x.a.test", "Y.A.test"]);
    let server = server(&downstream(&[&default, &wildcard, &exact]));
    let client = client(&upstream(&ca), &[]);
    let cases = [
        ("default.test", &default),
        ("x.a.test", &exact),
        ("y.a.test", &exact),
        ("X.a.test", &exact),
        ("b.a.test", &wildcard),
        // A wildcard matches a single label.
        ("c.b.a.test", &default),
        ("a.test", &default),
        ("other.test", &default),
    ];
    for (name, expected) in cases {
        let seen = round_trip(&server, &client, name).await.unwrap();
        assert_eq!(seen.certificate, first_certificate(expected), "{name}");
    }
}

#[tokio::test]
async fn without_sni_the_first_certificate_is_shown() {
    let ca = Ca::new();
    let first = ca.issue(&["a.test", "127.0.0.1"]);
    let second = ca.issue(&["b.test"]);
    let server = server(&downstream(&[&first, &second]));
    let seen = round_trip(&server, &client(&upstream(&ca), &[]), "127.0.0.1")
        .await
        .unwrap();
    assert_eq!(seen.certificate, first_certificate(&first));
}

#[tokio::test]
async fn of_two_certificates_for_a_name_one_is_shown_that_the_client_can_verify() {
    let ca = Ca::new();
    let ed25519 = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let ed25519 = ca.issue_with(&["a.test"], &ed25519, |_| {});
    let ecdsa = ca.issue(&["a.test"]);
    let server = server(&downstream(&[&ed25519, &ecdsa]));
    let both = client(&upstream(&ca), &[]);
    let seen = round_trip(&server, &both, "a.test").await.unwrap();
    assert_eq!(seen.certificate, first_certificate(&ed25519));

    let mut provider = CryptoProvider::clone(provider());
    let algorithms = &mut provider.signature_verification_algorithms;
    let scheme = rustls::SignatureScheme::ECDSA_NISTP256_SHA256;
    let at = algorithms
        .mapping
        .iter()
        .position(|(s, _)| *s == scheme)
        .unwrap();
    algorithms.mapping = &algorithms.mapping[at..=at];
    let roots = Roots::new().file(&ca.path()).unwrap();
    let ecdsa_only = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let seen = round_trip(&server, &Arc::new(ecdsa_only), "a.test")
        .await
        .unwrap();
    assert_eq!(seen.certificate, first_certificate(&ecdsa));
}

#[tokio::test]
async fn alpn_is_the_servers_preference_among_what_the_client_offers() {
    let ca = Ca::new();
    let mut tls = downstream(&[&ca.issue(&["a.test"])]);
    tls.alpn = vec!["h2".into(), "http/1.1".into()];
    let server = server(&tls);
    let cases = [
        (&[&b"http/1.1"[..], b"h2"][..], Some(&b"h2"[..])),
        (&[b"http/1.1"], Some(b"http/1.1")),
        (&[b"h3", b"http/1.1"], Some(b"http/1.1")),
        (&[], None),
    ];
    for (offered, expected) in cases {
        let client = client(&upstream(&ca), offered);
        let seen = round_trip(&server, &client, "a.test").await.unwrap();
        assert_eq!(seen.alpn.as_deref(), expected);
    }
    let other = client(&upstream(&ca), &[b"h3"]);
    assert_eq!(
        refusal(&tls, &other, "a.test").await,
        rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)
    );
}

#[tokio::test]
async fn client_certificates_required_optional_missing_and_of_another_ca() {
    let (ca, other_ca) = (Ca::new(), Ca::new());
    let mut required = downstream(&[&ca.issue(&["a.test"])]);
    required.client_ca = Some(ca.path());
    required.require_client_certificate = true;
    let optional = DownstreamTls {
        require_client_certificate: false,
        ..required.clone()
    };

    let anonymous = client(&upstream(&ca), &[]);
    let with = |issuer: &Ca| {
        let certificate = Some(issuer.issue(&["client.test"]));
        client(
            &UpstreamTls {
                certificate,
                ..upstream(&ca)
            },
            &[],
        )
    };
    let (known, unknown) = (with(&ca), with(&other_ca));

    for tls in [&required, &optional] {
        let seen = round_trip(&server(tls), &known, "a.test").await.unwrap();
        assert!(seen.client_certificate);
        assert_eq!(
            refusal(tls, &unknown, "a.test").await,
            rustls::Error::AlertReceived(AlertDescription::UnknownCA)
        );
    }
    let seen = round_trip(&server(&optional), &anonymous, "a.test")
        .await
        .unwrap();
    assert!(!seen.client_certificate);
    assert_eq!(
        refusal(&required, &anonymous, "a.test").await,
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired)
    );
}

#[tokio::test]
async fn the_server_is_verified_unless_configured_otherwise() {
    let (ca, other_ca) = (Ca::new(), Ca::new());
    let tls = downstream(&[&ca.issue(&["a.test"])]);
    let error = refusal(&tls, &client(&upstream(&other_ca), &[]), "a.test").await;
    assert_eq!(error, CertificateError::UnknownIssuer.into());
    let error = refusal(&tls, &client(&upstream(&ca), &[]), "b.test").await;
    assert!(
        matches!(
            error,
            rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. })
        ),
        "{error}"
    );
    let insecure = UpstreamTls {
        insecure_skip_verify: true,
        ..upstream(&other_ca)
    };
    round_trip(&server(&tls), &client(&insecure, &[]), "b.test")
        .await
        .unwrap();
}

#[tokio::test]
async fn versions() {
    let ca = Ca::new();
    let both = downstream(&[&ca.issue(&["a.test"])]);
    let only_13 = DownstreamTls {
        min_version: MinimumTlsVersion::Tls13,
        ..both.clone()
    };
    let mut client_12 = ClientConfig::builder_with_provider(provider().clone())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(Roots::new().file(&ca.path()).unwrap())
        .with_no_client_auth();
    client_12.resumption = rustls::client::Resumption::disabled();
    let client_12 = Arc::new(client_12);

    let client = client(&upstream(&ca), &[]);
    let seen = round_trip(&server(&both), &client, "a.test").await.unwrap();
    assert_eq!(seen.version, ProtocolVersion::TLSv1_3);
    let seen = round_trip(&server(&both), &client_12, "a.test")
        .await
        .unwrap();
    assert_eq!(seen.version, ProtocolVersion::TLSv1_2);
    assert_eq!(
        refusal(&only_13, &client_12, "a.test").await,
        rustls::Error::AlertReceived(AlertDescription::ProtocolVersion)
    );
}

#[tokio::test]
async fn sessions_are_resumed_until_the_configuration_changes() {
    let ca = Ca::new();
    let mut tls = downstream(&[&ca.issue(&["a.test"])]);
    tls.client_ca = Some(ca.path());
    tls.require_client_certificate = true;
    let server = server(&tls);
    let certificate = Some(ca.issue(&["client.test"]));
    let client = client(
        &UpstreamTls {
            certificate,
            ..upstream(&ca)
        },
        &[],
    );
    let mut kinds = Vec::new();
    for _ in 0..3 {
        let seen = round_trip(&server, &client, "a.test").await.unwrap();
        assert!(seen.client_certificate, "also in a resumed session");
        kinds.push(seen.kind);
    }
    use HandshakeKind::{Full, Resumed};
    assert_eq!(kinds, [Full, Resumed, Resumed]);
    let rebuilt = self::server(&tls);
    assert_eq!(
        round_trip(&rebuilt, &client, "a.test").await.unwrap().kind,
        Full
    );
}

#[tokio::test]
async fn a_client_that_does_not_speak_tls_is_refused() {
    let ca = Ca::new();
    let config = server(&downstream(&[&ca.issue(&["a.test"])]));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let (tcp, _) = listener.accept().await.unwrap();
    let error = accept(tcp, BytesMut::new(), config).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}
