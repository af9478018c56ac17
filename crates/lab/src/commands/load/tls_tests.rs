//! Runs over TLS.

use maglor_testkit::Upstream;
use maglor_testkit::certs::Authority;

use super::load;
use super::tests::options;
use crate::commands::format::Format;

/// Runs one user for a second; returns the number of successes, and the table.
fn run(words: &[&str]) -> (u64, String) {
    let few = ["--users", "1", "--duration-s", "1"];
    let all = options(&[words, &few].concat());
    let results = load(&all).expect("results");
    (results.succeeded(), results.text(Format::Table))
}

/// The failures of a run without a success.
fn failure(words: &[&str]) -> String {
    let (succeeded, table) = run(words);
    assert_eq!(succeeded, 0, "{table}");
    table
}

#[test]
fn servers_and_clients_are_verified() {
    let authority = Authority::new();
    let server = authority.issue(&["localhost"]);
    let config = authority.server_config(&server, &["h2", "http/1.1"], false);
    let upstream = Upstream::builder("a").tls(config).start();
    let named = format!("https://localhost:{}/", upstream.address().port());
    let numbered = format!("https://{}/", upstream.address());
    let ca = authority.file().display().to_string();

    for protocol in ["http1", "http2"] {
        let trusting = [&*named, "--ca", &ca, "--protocol", protocol];
        assert!(run(&trusting).0 > 10, "{protocol}");
    }
    assert!(run(&[&numbered, "--insecure"]).0 > 10);
    // The certificate has another name, and the authority is none of the system's.
    assert!(failure(&[&numbered, "--ca", &ca]).contains("TLS handshake: invalid peer certificate"));
    assert!(failure(&[&named]).contains("TLS handshake: invalid peer certificate"));

    let plain = authority.server_config(&server, &["http/1.1"], true);
    let upstream = Upstream::builder("a").tls(plain).start();
    let named = format!("https://localhost:{}/", upstream.address().port());
    let client = authority.issue(&["me"]);
    let (certificate, key) = (
        client.cert_file.display().to_string(),
        client.key_file.display().to_string(),
    );
    let own = [
        &*named,
        "--ca",
        &ca,
        "--certificate",
        &certificate,
        "--key",
        &key,
    ];
    assert!(run(&own).0 > 10);
    assert_eq!(run(&own[..3]).0, 0, "no certificate was presented");
    let http2 = [&own[..], &["--protocol", "http2"]].concat();
    assert!(failure(&http2).contains("TLS handshake"));
}

#[test]
fn a_key_without_its_certificate_is_refused() {
    let words = [
        "https://127.0.0.1:1/",
        "--certificate",
        "/no/such",
        "--key",
        "/no/such",
    ];
    let error = load(&options(&words)).expect_err("no file");
    assert!(
        error.to_string().contains("--certificate /no/such"),
        "{error}"
    );
    let authority = Authority::new();
    let (one, other) = (authority.issue(&["one"]), authority.issue(&["other"]));
    let path = |path: &std::path::Path| path.display().to_string();
    let (certificate, key) = (path(&one.cert_file), path(&other.key_file));
    let words = [
        "https://127.0.0.1:1/",
        "--insecure",
        "--certificate",
        &certificate,
        "--key",
        &key,
    ];
    let error = load(&options(&words)).expect_err("a foreign key");
    assert!(error.to_string().contains("certificate and key"), "{error}");
}
