//! The kept hostile suite against the webhook of a controller on a real API server, by way of its port
//! (docs/hostile.md). External metrics, which only an API server may request:
//! `crates/testkit/cluster/tests/proxy_service.rs`.
//!
//! Ignored without `cargo xtask e2e`: the first time it builds Kubernetes. It needs root, and reports when it skips.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use maglor_testkit::RawHttp1;
use maglor_testkit::hostile::{self, Case, Port};
use rustls::ClientConfig;

use crate::support::on_cluster::{NAME, OnCluster, admitted};

/// Maximum growth of the controller's memory during the test, in bytes.
const MEMORY: u64 = 64 << 20;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour: cargo xtask e2e"]
async fn reviews_for_the_webhook() {
    let Some(on_cluster) = OnCluster::start("hostile").await else {
        return;
    };
    let (controller, webhook, config) = (
        &on_cluster.controller,
        on_cluster.webhook,
        &on_cluster.config,
    );
    let cases = hostile::webhook();
    assert!(cases.len() > 100, "{}", cases.len());
    let before = controller.memory();
    let mut failed = Vec::new();
    for case in cases {
        let name = case.name.clone();
        failed.extend(review(webhook, config, case).await);
        assert!(admitted(webhook, config).await, "a pod after {name}");
    }
    let count = failed.len();
    assert!(failed.is_empty(), "{count} cases:\n{}", failed.join("\n"));
    let log = controller.log();
    assert!(!log.contains("panicked"), "{log}");
    let after = controller.memory();
    println!("{} MB, {} MB before", after >> 20, before >> 20);
    assert!(after.saturating_sub(before) < MEMORY, "{} MB", after >> 20);
    on_cluster.stop();
}

/// Sends a case; the error in the response.
async fn review(port: u16, config: &Arc<ClientConfig>, case: Case) -> Option<String> {
    let config = Arc::clone(config);
    let sent = tokio::task::spawn_blocking(move || {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let client = RawHttp1::connect_tls(address, NAME, config).into_connection();
        let seen = Port::send(&hostile::api::review(&case), &case.expected, client);
        hostile::check_port(&case, &seen).err()
    });
    sent.await.unwrap()
}
