//! The cost of a handshake, both sides together, in memory: `cargo bench -p maglor-identity`.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "a benchmark fails by panicking, and criterion's macros have no documentation"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;
use std::sync::Arc;
use std::time::SystemTime;

use criterion::{Criterion, criterion_group, criterion_main};
use maglor_identity::LeafRequest;
use rustls::HandshakeKind;
use rustls::crypto::aws_lc_rs::kx_group;
use support::{Handshake, authority, careless_by, client, id, live, server};

fn handshakes(c: &mut Criterion) {
    let authority = authority();
    let (cart, web) = (live(&authority, "cart"), live(&authority, "web"));
    let server = server(&cart);
    let mut group = c.benchmark_group("handshake");

    let resuming = client(&web);
    Handshake::run(&resuming, &server);
    group.bench_function("resumed", |b| {
        b.iter(|| {
            let met = Handshake::run(&resuming, &server);
            assert_eq!(met.kind(), HandshakeKind::Resumed);
        });
    });
    group.bench_function("full", |b| {
        b.iter_with_setup(
            || client(&web),
            |client| {
                let met = Handshake::run(&client, &server);
                assert_eq!(met.kind(), HandshakeKind::Full);
            },
        );
    });
    // The same client twice, so that only the key exchange differs.
    let issued = authority.issue(&LeafRequest::new(id("web")), SystemTime::now());
    let issued = issued.unwrap();
    let pair = (issued.certificate_pem, issued.private_key_pem.unwrap());
    for (name, group_of) in [
        ("full-x25519-mlkem768", kx_group::X25519MLKEM768),
        ("full-x25519", kx_group::X25519),
    ] {
        let mut client = careless_by(Some(pair.clone()), vec![group_of]);
        client.resumption = rustls::client::Resumption::disabled();
        let client = Arc::new(client);
        group.bench_function(name, |b| {
            b.iter(|| black_box(Handshake::run(&client, &server).kind()));
        });
    }
    group.finish();
}

fn issuing(c: &mut Criterion) {
    let authority = authority();
    let request = LeafRequest::new(id("web"));
    c.bench_function("issue", |b| {
        b.iter(|| authority.issue(&request, SystemTime::now()).unwrap());
    });
}

criterion_group!(benches, handshakes, issuing);
criterion_main!(benches);
