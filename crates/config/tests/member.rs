//! The configuration of `maglor-proxy sidecar`, and overrides of a control plane.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use maglor_config::member::{Credentials, Member};
use maglor_config::sidecar::Sidecar;
use maglor_config::tls::MeshMode;
use maglor_config::workload::{Inbound, Workloads, overlay};
use maglor_config::{Loaded, Termination, authorization, raw, resource};
use proptest::prelude::*;

fn sidecar() -> Sidecar {
    Sidecar {
        member: Member {
            control_plane: "maglor-controller.maglor.svc:15010".to_owned(),
            trust_domain: "cluster.local".to_owned(),
            cluster_domain: "edge.example".to_owned(),
            credentials: Credentials::Files {
                certificate: "a.pem".into(),
                private_key: "a.key".into(),
                trust_bundle: "ca.pem".into(),
            },
            cache_dir: None,
            plain_text: false,
            namespace: "shop".to_owned(),
            name: "cart-1".to_owned(),
            addresses: vec!["10.1.2.3".parse().unwrap()],
            bind: None,
            admin_port: 15020,
            workers: 1,
            memory_budget: Some(16 << 20),
            drain_timeout: None,
        },
        inbound_port: 15006,
        outbound_port: 15001,
        application: None,
        outbound_grace: None,
        probes: BTreeMap::new(),
    }
}

fn load(sidecar: &Sidecar) -> Loaded {
    let loaded = sidecar.load().unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(loaded.warnings, []);
    let again = maglor_config::parse(&loaded.yaml, "printed").unwrap();
    assert_eq!(
        format!("{:?}", loaded.config),
        format!("{:?}", again.config)
    );
    loaded
}

#[test]
fn a_sidecar_trusts_no_client_until_it_is_configured() {
    let loaded = load(&sidecar());
    let [inbound, outbound] = &loaded.config.listeners[..] else {
        panic!("two listeners");
    };
    assert_eq!(inbound.workload.as_deref(), Some("shop/cart-1"));
    let default = inbound.authorization.as_ref().map(|rules| rules.default);
    assert_eq!(default, Some(authorization::Effect::Deny));
    for chain in &inbound.filter_chains {
        let Some(Termination::Mesh(mesh)) = &chain.tls else {
            panic!("no mutual TLS");
        };
        assert_eq!(mesh.mode, MeshMode::Strict);
    }
    assert!(inbound.original_destination && outbound.original_destination);
    assert_eq!(inbound.address.to_string(), "0.0.0.0:15006");
    let yaml = &loaded.yaml;
    assert!(
        yaml.contains("maglor-controller.maglor.svc.edge.example:15010"),
        "{yaml}"
    );
    assert!(
        yaml.contains("spiffe://cluster.local/ns/maglor/sa/maglor-controller"),
        "{yaml}"
    );
}

#[test]
fn it_listens_on_the_families_of_its_pod() {
    for (addresses, expected) in [
        (vec![], "[::]:15001"),
        (vec!["10.1.2.3"], "0.0.0.0:15001"),
        (vec!["10.1.2.3", "fd00::3"], "[::]:15001"),
        (vec!["fd00::3"], "[::]:15001"),
    ] {
        let mut sidecar = sidecar();
        sidecar.member.addresses = addresses.iter().map(|ip| ip.parse().unwrap()).collect();
        assert_eq!(
            load(&sidecar).config.listeners[1].address.to_string(),
            expected
        );
    }
}

#[test]
fn errors_name_the_flag() {
    type Change = fn(&mut Sidecar);
    let cases: [(Change, &str); 9] = [
        (
            |s| s.member.control_plane = "nowhere".into(),
            "--control-plane nowhere",
        ),
        (
            |s| s.member.trust_domain = "A B".into(),
            "--trust-domain A B",
        ),
        (
            |s| s.member.cluster_domain = "a b".into(),
            "--cluster-domain a b",
        ),
        (|s| s.member.namespace = "a/b".into(), "--pod-namespace a/b"),
        (|s| s.member.name = "Ä".into(), "--pod-name Ä"),
        (|s| s.member.workers = 0, "--workers 0"),
        (
            |s| s.outbound_port = s.inbound_port,
            "--outbound-port 15006",
        ),
        (
            |s| s.outbound_grace = "25h".parse().ok(),
            "--outbound-grace",
        ),
        (
            |s| s.probes = BTreeMap::from([("a/liveness".into(), "8080".into())]),
            "--probe a/liveness=8080",
        ),
    ];
    for (change, flag) in cases {
        let mut sidecar = sidecar();
        change(&mut sidecar);
        let errors = sidecar.load().unwrap_err().to_string();
        assert!(errors.contains(flag), "{flag}: {errors}");
    }
}

fn inbound(words: &str) -> Inbound {
    resource::read(words, "test").unwrap()
}

fn workloads(words: &str) -> Workloads {
    BTreeMap::from([("shop/cart-1".into(), Arc::new(inbound(words)))])
}

#[test]
fn what_the_control_plane_says_replaces_what_the_file_says() {
    let file = load(&sidecar()).yaml;
    let said = "{tls: permissive, ports: {8080: {protocol: http, load_reports: \
                {cluster: 'cart.shop.svc.cluster.local:80', endpoint: '10.1.2.3:8080'}}}}";
    let config = overlay(&file, &workloads(said)).unwrap().config;
    let listener = &config.listeners[0];
    assert!(listener.authorization.is_none());
    let names: Vec<_> = listener
        .filter_chains
        .iter()
        .map(|chain| &*chain.name)
        .collect();
    assert_eq!(names, ["8080", "others"]);
    for chain in &listener.filter_chains {
        assert!(
            matches!(&chain.tls, Some(Termination::Mesh(mesh)) if mesh.mode == MeshMode::Permissive)
        );
    }
    let maglor_config::Filter::Http(http) = &listener.filter_chains[0].filter else {
        panic!("no HTTP");
    };
    // Of a cluster that only the control plane defines.
    let peers = http
        .load_reports
        .as_ref()
        .and_then(|reports| reports.peers.as_ref());
    assert_eq!(
        peers.map(|peers| &*peers.cluster),
        Some("cart.shop.svc.cluster.local:80")
    );
    // Nothing known, or of another workload: the file.
    assert_eq!(overlay(&file, &Workloads::new()).unwrap().yaml, file);
}

#[test]
fn what_becomes_of_unknown_connections_is_said_for_the_outbound_listener() {
    let file = load(&sidecar()).yaml;
    let refuse = workloads("{tls: strict, unknown: refuse}");
    let reported = overlay(&file, &refuse).unwrap();
    assert!(
        reported.yaml.contains("unknown: refuse"),
        "{}",
        reported.yaml
    );
    let before = load(&sidecar()).config.clusters.len();
    assert_eq!(
        reported.config.clusters.len(),
        before - 1,
        "no client is accepted"
    );
    // Settings of the file stay.
    let file = file.replace("  outbound:\n", "  outbound:\n    unknown: pass\n");
    let kept = overlay(&file, &refuse).unwrap();
    assert!(kept.yaml.contains("unknown: pass"), "{}", kept.yaml);
}

#[test]
fn without_an_identity_permissive_is_plain_text_and_strict_is_impossible() {
    let mut sidecar = sidecar();
    sidecar.member.credentials = Credentials::None;
    sidecar.member.plain_text = true;
    let file = load(&sidecar).yaml;
    let config = overlay(&file, &workloads("{tls: permissive}"))
        .unwrap()
        .config;
    assert!(
        config.listeners[0]
            .filter_chains
            .iter()
            .all(|chain| chain.tls.is_none())
    );
    assert!(
        inbound("{tls: permissive}")
            .check("shop/cart-1", false)
            .is_ok()
    );
    let errors = inbound("{tls: strict}")
        .check("shop/cart-1", false)
        .unwrap_err();
    assert!(errors.to_string().contains("identity"), "{errors}");
    assert!(inbound("{tls: strict}").check("shop/cart-1", true).is_ok());
}

#[test]
fn what_is_wrong_with_it_is_named() {
    for (words, field) in [
        ("{ports: {x: http}}", "inbound.ports.x"),
        (
            "{ports: {80: {protocol: tcp, load_reports: {}}}}",
            "load_reports",
        ),
        (
            "{authorization: {rules: [{name: a}, {name: a}]}}",
            "authorization.rules[1].name",
        ),
    ] {
        let errors = inbound(words).check("shop/cart-1", true).unwrap_err();
        let text = errors.to_string();
        assert!(
            text.contains("inbound `shop/cart-1`") && text.contains(field),
            "{text}"
        );
    }
}

/// Valid and invalid settings of a control plane.
fn any_inbound() -> impl Strategy<Value = Inbound> {
    let tls = prop_oneof![
        Just(None),
        Just(Some(raw::MeshMode::Permissive)),
        Just(Some(raw::MeshMode::Strict)),
    ];
    let protocol = prop_oneof![
        Just("auto"),
        Just("http"),
        Just("http2"),
        Just("tcp"),
        Just("tls"),
    ];
    let reports = prop_oneof![
        Just(""),
        Just(", load_reports: {}"),
        Just(", load_reports: {cluster: 'a:80', endpoint: '10.0.0.1:80'}"),
        Just(", load_reports: {cluster: 'a:80'}"),
    ];
    let port = (
        prop_oneof![
            Just("80"),
            Just("8080"),
            Just("0"),
            Just("99999"),
            Just("x")
        ],
        protocol,
        reports,
    )
        .prop_map(|(port, protocol, reports)| {
            format!("'{port}': {{protocol: {protocol}{reports}}}")
        });
    let ports = proptest::option::of(proptest::collection::vec(port, 0..3));
    let rule = prop_oneof![
        Just("{name: a, action: deny, to: [{paths: [/x]}]}"),
        Just("{name: b, from: [{identities: ['spiffe://m/ns/a/*']}]}"),
        Just("{name: c, from: [{namespaces: [shop], addresses: [10.0.0.0/8]}]}"),
        Just("{action: audit, to: [{ports: [80, 99999]}]}"),
    ];
    let rules = proptest::option::of(proptest::collection::vec(rule, 0..3));
    (tls, ports, rules).prop_map(|(tls, ports, rules)| {
        let mut words = String::from("{");
        if let Some(ports) = ports {
            words += &format!("ports: {{{}}}, ", ports.join(", "));
        }
        if let Some(rules) = rules {
            words += &format!("authorization: {{rules: [{}]}}", rules.join(", "));
        }
        words.push('}');
        // Text with duplicate keys is not ours.
        let said = resource::read::<Inbound>(&words, "test").unwrap_or_default();
        Inbound { tls, ..said }
    })
}

proptest! {
    /// Acknowledged settings can be applied, and applicable ones are not rejected.
    #[test]
    fn what_is_checked_apart_fits_the_file(said in any_inbound(), identity in any::<bool>()) {
        let mut sidecar = sidecar();
        if !identity {
            sidecar.member.credentials = Credentials::None;
            sidecar.member.plain_text = true;
        }
        let file = load(&sidecar).yaml;
        let apart = said.check("shop/cart-1", identity);
        let known = BTreeMap::from([("shop/cart-1".into(), Arc::new(said))]);
        let whole = overlay(&file, &known);
        prop_assert_eq!(apart.is_ok(), whole.is_ok(), "{:?} {:?}", apart.err(), whole.err());
    }
}
