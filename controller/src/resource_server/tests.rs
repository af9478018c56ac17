//! Tests of which reports are accepted.

use std::time::Duration;

use maglor_identity::TrustDomain;
use maglor_xds::load::ClusterLoad;

use super::*;
use crate::graph::Settings;
use crate::index::topology::Topology;

/// Returns the access rules for `web-0` with the account `web` and `cart-0` with the account `cart`.
fn access() -> (Access, Arc<Graphs>) {
    let mut topology = Topology::default();
    for (pod, account) in [("web-0", "web"), ("cart-0", "cart")] {
        let pod = Key::new("shop", pod);
        topology.accounts.insert(pod.clone(), account.to_owned());
        topology.pods.insert(pod, format!("shop/{account}"));
    }
    let graphs = Arc::new(Graphs::new(Settings::default()));
    graphs.set_topology(topology);
    let known = OnceLock::from(Arc::clone(&graphs));
    let access = Access {
        strict: true,
        certifier: None,
        consumers: Consumers::default(),
        accounts: Accounts::default(),
        graphs: Arc::new(known),
        pushes: Arc::default(),
    };
    (access, graphs)
}

fn report(access: &Access, account: &str, node: &str) -> Result<(), Status> {
    let domain: TrustDomain = "cluster.local".parse().unwrap();
    let peer = Peer {
        address: SocketAddr::from(([127, 0, 0, 1], 1)),
        identity: Some(SpiffeId::workload(&domain, "shop", account).unwrap()),
    };
    let node = Node {
        id: node.to_owned(),
        ..Node::default()
    };
    let load = ClusterLoad {
        name: "db.shop.svc.cluster.local:80".into(),
        succeeded: 100,
        timed: 100,
        ..ClusterLoad::default()
    };
    let report = LoadReport {
        interval: Duration::from_secs(10),
        clusters: vec![load],
        memory: None,
    };
    access.load(&peer, &node, &report)
}

#[test]
fn a_report_is_accepted_only_for_the_own_pod() {
    let (access, graphs) = access();
    assert!(
        report(&access, "web", "shop/cart-0").is_err(),
        "another account's pod"
    );
    assert!(
        report(&access, "web", "other/web-0").is_err(),
        "another namespace"
    );
    // There is no such pod; a client could invent any number of them.
    assert!(report(&access, "web", "shop/ghost").is_ok());
    assert!(graphs.snapshot().edges.is_empty() && graphs.proxies().is_empty());
    report(&access, "web", "shop/web-0").unwrap();
    let snapshot = graphs.snapshot();
    let [edge] = &snapshot.edges[..] else {
        panic!("{snapshot:?}");
    };
    assert_eq!((&*edge.from, &*edge.to), ("shop/web", "shop/db"));
}
