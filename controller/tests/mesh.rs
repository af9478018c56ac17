//! The controller and proxies together, over sockets, without Kubernetes: changes of the folder
//! is what sidecars do.

use std::collections::BTreeSet;

use maglor_testkit::{RawHttp1, TIMEOUT, eventually};

use crate::support::mesh::{Mesh, Pod};

/// `cart` with this many replicas, and a caller.
fn shop(replicas: usize) -> Option<(Mesh, Vec<Pod>, Pod)> {
    let mesh = Mesh::start()?;
    mesh.service("cart", "10.96.0.10");
    let cart = |i: usize| {
        let pod = mesh.pod(&format!("cart-{i}"), "cart");
        mesh.endpoint("cart", &pod.name, pod.inbound(), "");
        pod
    };
    let carts: Vec<_> = (0..replicas).map(cart).collect();
    let web = mesh.pod("web-0", "web");
    web.reaches("cart");
    Some((mesh, carts, web))
}

fn answered(pod: &Pod) -> f64 {
    pod.sidecar.metric(
        "maglor_http_requests_total",
        &["listener=\"inbound\"", "status=\"2xx\""],
    )
}

#[test]
fn a_service_is_called_by_name_and_all_replicas_answer() {
    let Some((_mesh, carts, web)) = shop(3) else {
        return;
    };
    let answer = |name: &str| {
        let (status, by) = web.get(name, "/");
        assert_eq!(status, 200, "{name}");
        by
    };
    let by: BTreeSet<_> = (0..60).map(|_| answer("cart.shop")).collect();
    assert_eq!(by.len(), carts.len(), "{by:?}");
    assert_eq!(
        web.get("unknown", "/").0,
        503,
        "unknown, without an original destination"
    );
    // By mutual TLS: the cart's proxy knows the caller's identity.
    let peers = carts
        .iter()
        .map(|pod| pod.sidecar.metric("maglor_mesh_handshakes_total", &[]));
    assert!(peers.sum::<f64>() >= 3.0);
}

#[test]
fn a_policy_holds_for_the_next_request() {
    let Some((mesh, _carts, web)) = shop(2) else {
        return;
    };
    for _ in 0..3 {
        mesh.policy(
            "AuthorizationPolicy",
            "closed",
            "{selector: {matchLabels: {app: cart}}, rules: [{action: deny, to: [{paths: [/secret]}]}]}",
        );
        eventually(TIMEOUT, "it is closed", || {
            (0..8).all(|_| web.get("cart", "/secret").0 == 403)
        });
        assert_eq!(web.get("cart", "/").0, 200);
        mesh.remove("closed");
        eventually(TIMEOUT, "it is open", || {
            (0..8).all(|_| web.get("cart", "/secret").0 == 200)
        });
    }
    // By caller.
    mesh.policy(
        "AuthorizationPolicy",
        "known",
        "{selector: {matchLabels: {app: cart}}, rules: \
         [{from: [{identities: [spiffe://mesh.test/ns/shop/sa/admin]}]}]}",
    );
    eventually(TIMEOUT, "only the other one may", || {
        web.get("cart", "/").0 == 403
    });
    let admin = mesh.pod("admin-0", "admin");
    admin.reaches("cart");
}

#[test]
fn replicas_come_drain_and_go_without_a_loss() {
    let Some((mesh, mut carts, web)) = shop(2) else {
        return;
    };
    let load = web.load("cart", 4);
    load.wait_for(100);
    for round in 2..4 {
        let new = mesh.pod(&format!("cart-{round}"), "cart");
        mesh.endpoint("cart", &new.name, new.inbound(), "");
        eventually(TIMEOUT, "the new one is used", || answered(&new) > 0.0);
        carts.push(new);
        let old = carts.remove(0);
        mesh.endpoint(
            "cart",
            &old.name,
            old.inbound(),
            "ready: false, serving: true, terminating: true",
        );
        let mut before = -1.0;
        eventually(TIMEOUT, "the old one is not used any more", || {
            load.wait_for(100);
            let now = answered(&old);
            std::mem::replace(&mut before, now) == now
        });
        mesh.without_endpoint("cart", &old.name);
        assert!(old.sidecar.terminate().success());
    }
    println!("{} requests, none failed", load.stop());
}

#[test]
fn strict_shuts_out_who_is_no_member() {
    let Some((mesh, carts, web)) = shop(1) else {
        return;
    };
    let plain = || {
        let socket = std::net::TcpStream::connect(carts[0].inbound()).unwrap();
        let mut client = RawHttp1::try_over(socket)?;
        client
            .connection()
            .send("GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            .ok()?;
        Some(client.try_response("GET").ok()?.status)
    };
    eventually(TIMEOUT, "permissive", || plain() == Some(200));
    let load = web.load("cart", 2);
    load.wait_for(50);
    mesh.mtls("strict");
    eventually(TIMEOUT, "strict", || plain().is_none());
    load.wait_for(50);
    mesh.mtls("permissive");
    eventually(TIMEOUT, "permissive again", || plain() == Some(200));
    load.wait_for(50);
    load.stop();
}

/// Servers keep a ledger of the true queues, which the control plane has configured on both sides.
#[test]
fn a_ledger_is_kept_by_what_the_control_plane_says() {
    let Some((mesh, carts, web)) = shop(3) else {
        return;
    };
    mesh.policy(
        "TrafficPolicy",
        "balance",
        "{targetRefs: [{kind: Service, name: cart}], cluster: {policy: 'ledger(group=40,fallback=bounce)'}}",
    );
    let referrals = || {
        let of = |pod: &Pod| pod.sidecar.metric("maglor_exchange_referrals_total", &[]);
        carts.iter().map(of).collect::<Vec<_>>()
    };
    let load = web.load("cart", 4);
    eventually(TIMEOUT, "a ledger is asked", || {
        referrals().iter().sum::<f64>() > 100.0
    });
    // Earlier responses were subject to another policy.
    let before: Vec<_> = carts.iter().map(answered).collect();
    load.wait_for(300);
    load.stop();
    let referrals = referrals();
    let hosts = referrals.iter().filter(|count| **count > 0.0).count();
    assert_eq!(hosts, 1, "one of the servers keeps it: {referrals:?}");
    // The others report to it, or it would send everything to one of them.
    let shares = carts.iter().map(answered);
    let shares: Vec<_> = shares.zip(before).map(|(now, then)| now - then).collect();
    let sum: f64 = shares.iter().sum();
    assert!(shares.iter().all(|share| *share > 0.15 * sum), "{shares:?}");
}

#[test]
fn a_controller_may_end_and_come_back_while_requests_run() {
    let Some((mut mesh, _carts, web)) = shop(2) else {
        return;
    };
    let load = web.load("cart", 4);
    load.wait_for(100);
    for round in 0..3 {
        mesh.kill_controller();
        eventually(TIMEOUT, "it is missed", || {
            web.sidecar.metric("maglor_xds_connected", &[]) == 0.0
        });
        load.wait_for(200);
        // A change occurs without a control plane.
        mesh.policy(
            "AuthorizationPolicy",
            "round",
            &format!(
                "{{selector: {{matchLabels: {{app: cart}}}}, rules: [{{action: deny, to: [{{paths: [/round-{round}]}}]}}]}}"
            ),
        );
        load.wait_for(100);
        assert_eq!(web.get("cart", &format!("/round-{round}")).0, 200);
        mesh.start_controller();
        eventually(TIMEOUT, "all are back", || mesh.sessions() == 3);
        eventually(TIMEOUT, "they catch up", || {
            (0..8).all(|_| web.get("cart", &format!("/round-{round}")).0 == 403)
        });
        load.wait_for(100);
    }
    println!("{} requests, none failed", load.stop());
}

/// The address of a terminated pod is reused by another workload before any proxy is updated.
#[test]
fn an_address_of_another_pod_gets_no_requests() {
    let Some((mesh, mut carts, web)) = shop(2) else {
        return;
    };
    mesh.service("bank", "10.96.0.11");
    // Otherwise the address would not be retried for half a minute.
    mesh.policy(
        "TrafficPolicy",
        "eject",
        "{targetRefs: [{kind: Service, name: cart}], cluster: {outlier_ejection: {enabled: false}}}",
    );
    let load = web.load("cart", 4);
    load.wait_for(100);
    let gone = carts.remove(0);
    let address = gone.inbound();
    assert!(gone.sidecar.terminate().success());
    // The state of the control plane is stale: the endpoint of the cart is the bank's.
    let bank = mesh.pod_at("bank-0", "bank", address.port());
    let refused = || {
        let labels = [
            "cluster=\"cart.shop.svc.cluster.local:80\"",
            "reason=\"wrong-identity\"",
        ];
        web.sidecar
            .metric("maglor_upstream_mesh_refused_total", &labels)
    };
    eventually(
        TIMEOUT,
        "it is connected to, and found to be another one",
        || refused() >= 3.0,
    );
    load.wait_for(200);
    assert_eq!(
        bank.application.requests(),
        0,
        "the bank has heard of nothing"
    );
    // The update is published: the two Services have swapped the address.
    mesh.without_endpoint("cart", &gone.name);
    mesh.endpoint("bank", &bank.name, address, "");
    web.reaches("bank");
    let heard = bank.application.requests();
    load.wait_for(200);
    println!(
        "{} requests, none failed, {} refused by identity",
        load.stop(),
        refused()
    );
    assert_eq!(bank.application.requests(), heard, "nothing of the cart's");
    let all = bank.application.recorded();
    assert!(
        all.iter()
            .all(|request| request.header("host") == Some("bank"))
    );
}
