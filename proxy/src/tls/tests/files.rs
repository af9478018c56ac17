use super::*;

fn error_of(tls: &DownstreamTls) -> String {
    server_config(tls, &mut Roots::new())
        .unwrap_err()
        .to_string()
}

#[track_caller]
fn assert_names(message: &str, path: &Path, reason: &str) {
    let path = path.display().to_string();
    assert!(
        message.contains(&path) && message.contains(reason),
        "{message}"
    );
}

#[test]
fn errors_name_the_file_and_the_reason() {
    let ca = Ca::new();
    let good = ca.issue(&["a.test"]);
    let other = ca.issue(&["b.test"]);
    let missing = ca.dir.path().join("missing.pem");
    let empty = ca.file("empty.pem", "");
    let garbage = ca.file(
        "garbage.pem",
        "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
    );
    let not_der = ca.file(
        "der.pem",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    let bad_key = ca.file(
        "bad.key",
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    );

    let certificate = |certificate: &Path| {
        let files = CertificateFiles {
            certificate: certificate.to_owned(),
            ..good.clone()
        };
        error_of(&downstream(&[&files]))
    };
    assert_names(&certificate(&missing), &missing, "No such file");
    assert_names(&certificate(&empty), &empty, "no certificate");
    assert_names(
        &certificate(&good.private_key),
        &good.private_key,
        "no certificate",
    );
    assert_names(&certificate(&garbage), &garbage, "not PEM");
    assert_names(
        &certificate(&not_der),
        &not_der,
        "certificate 1 is malformed",
    );
    assert_names(
        &certificate(&other.certificate),
        &other.certificate,
        "does not belong",
    );
    assert_names(
        &certificate(&other.certificate),
        &good.private_key,
        "does not belong",
    );

    let key = |private_key: &Path| {
        let files = CertificateFiles {
            private_key: private_key.to_owned(),
            ..good.clone()
        };
        error_of(&downstream(&[&files]))
    };
    assert_names(&key(&missing), &missing, "No such file");
    assert_names(&key(&empty), &empty, "no private key");
    assert_names(&key(&good.certificate), &good.certificate, "no private key");
    assert_names(&key(&bad_key), &bad_key, "private key not usable");

    let roots = |path: &Path| {
        let tls = DownstreamTls {
            client_ca: Some(path.to_owned()),
            ..downstream(&[&good])
        };
        error_of(&tls)
    };
    assert_names(&roots(&missing), &missing, "No such file");
    assert_names(&roots(&empty), &empty, "no certificate");
    assert_names(&roots(&not_der), &not_der, "not usable as a root");
}

#[test]
fn upstream_errors_name_the_file() {
    let ca = Ca::new();
    let missing = ca.dir.path().join("missing.pem");
    let tls = UpstreamTls {
        ca: Some(missing.clone()),
        ..upstream(&ca)
    };
    let error = client_config(&tls, &[], &mut Roots::new()).unwrap_err();
    assert_names(&error.to_string(), &missing, "No such file");
    let certificate = Some(CertificateFiles {
        certificate: ca.path(),
        private_key: missing.clone(),
    });
    let tls = UpstreamTls {
        certificate,
        ..upstream(&ca)
    };
    let error = client_config(&tls, &[], &mut Roots::new()).unwrap_err();
    assert_names(&error.to_string(), &missing, "No such file");
}

#[test]
fn roots_are_read_once_and_shared() {
    let ca = Ca::new();
    let mut roots = Roots::new();
    let first = roots.file(&ca.path()).unwrap();
    fs::remove_file(ca.path()).unwrap();
    assert!(Arc::ptr_eq(&first, &roots.file(&ca.path()).unwrap()));
    assert_eq!(first.len(), 1);
    // Either this machine has roots, or the error lists the paths that were searched.
    match roots.system() {
        Ok(system) => assert!(Arc::ptr_eq(&system, &roots.system().unwrap())),
        Err(error) => assert!(
            error
                .to_string()
                .contains("/etc/ssl/certs/ca-certificates.crt")
        ),
    }
}

#[test]
fn the_fingerprint_changes_with_any_file() {
    let ca = Ca::new();
    let files = ca.issue(&["a.test"]);
    let tls = DownstreamTls {
        client_ca: Some(ca.path()),
        ..downstream(&[&files])
    };
    let client = UpstreamTls {
        certificate: Some(files.clone()),
        ..upstream(&ca)
    };
    for path in [&files.certificate, &files.private_key, &ca.path()] {
        let before = (downstream_files(&tls), upstream_files(&client));
        let again = (downstream_files(&tls), upstream_files(&client));
        assert_eq!(before, again);
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1))
            .unwrap();
        assert_ne!(before.0, downstream_files(&tls), "{}", path.display());
        assert_ne!(before.1, upstream_files(&client), "{}", path.display());
    }
    let before = downstream_files(&tls);
    fs::remove_file(&files.private_key).unwrap();
    assert_ne!(before, downstream_files(&tls));
}

#[test]
fn the_fingerprint_follows_symlinks() {
    let ca = Ca::new();
    let dir = ca.dir.path();
    for generation in ["1", "2"] {
        fs::create_dir(dir.join(generation)).unwrap();
        let path = dir.join(generation).join("tls.pem");
        fs::write(&path, "same length").unwrap();
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(UNIX_EPOCH)
            .unwrap();
    }
    let point_to = |generation| {
        let _ = fs::remove_file(dir.join("data"));
        std::os::unix::fs::symlink(generation, dir.join("data")).unwrap();
    };
    let tls = UpstreamTls {
        ca: Some(dir.join("data/tls.pem")),
        ..upstream(&ca)
    };
    point_to("1");
    let first = upstream_files(&tls);
    point_to("2");
    assert_ne!(first, upstream_files(&tls));
}

#[test]
fn an_expired_certificate_is_still_served() {
    let ca = Ca::new();
    let key = KeyPair::generate().unwrap();
    let expired = ca.issue_with(&["a.test"], &key, |params| {
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    });
    server(&downstream(&[&expired]));
}

#[test]
fn a_connection_is_small_once_it_is_open() {
    assert!(size_of::<Io>() <= 48, "{}", size_of::<Io>());
}
