//! Any bytes are a certificate or not, name one workload or none, and are signed or refused: what
//! a peer presents as its leaf, and certificate signing requests of workloads.

#![no_main]

use std::sync::LazyLock;
use std::time::{Duration, UNIX_EPOCH};

use libfuzzer_sys::fuzz_target;
use maglor_identity::{Authority, LeafRequest, SpiffeId, x509};

static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| {
    let domain = "mesh.test".parse().expect("a trust domain");
    let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    Authority::create(&domain, now).expect("random bytes")
});

fuzz_target!(|der: &[u8]| {
    if let Some(certificate) = x509::parse(der) {
        for uri in &certificate.uris {
            if let Ok(id) = uri.parse::<SpiffeId>() {
                assert_eq!(id.as_str(), uri);
            }
        }
        let _ = (certificate.begins(), certificate.expires());
    }
    let id = "spiffe://mesh.test/ns/a/sa/b".parse().expect("an id");
    let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let _ = AUTHORITY.sign(der, &LeafRequest::new(id), now);
});
