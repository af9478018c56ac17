//! Encoding and decoding a resource preserves its meaning.
//!
//! Generated blocks of the vocabulary, those that a file would be refused for left out; compared is
//! what validation makes of them. `SEED=` repeats a run.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use maglor_balance::Rng;
use maglor_config::{raw, resource};
use maglor_xds::proto::envoy::config::cluster::v3 as wire;
use maglor_xds::proto::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use maglor_xds::{Health, Inbound, Listener, ServedEndpoint, decode, encode};
use prost::Message as _;

const ROUNDS: usize = 400;

/// Draws texts of YAML.
struct Draw(Rng);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0.below(u32::try_from(n).unwrap()) as usize
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    /// Each field with one of its values, or without.
    fn some(&mut self, fields: &[(&str, &[&str])]) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, values) in fields {
            if self.below(3) == 0 {
                lines.push(format!("{name}: {}", self.one(values)));
            }
        }
        lines
    }

    fn block(&mut self, always: &str, fields: &[(&str, &[&str])]) -> String {
        let mut lines = self.some(fields);
        if !always.is_empty() {
            lines.insert(0, always.to_owned());
        }
        format!("{{{}}}", lines.join(", "))
    }
}

const CLUSTER: &[(&str, &[&str])] = &[
    (
        "policy",
        &[
            "random",
            "round-robin",
            "lor(choices=1)",
            "lor(choices=3)",
            "'lor(choices=all)'",
            "peak-ewma",
            "maglev(table_size=251)",
            "'maglev(table_size=251,hash_balance_factor=150)'",
            "ring-hash(min=64)",
            "'a-lsq(choices=2,overhead=10)'",
            "bounce(tries=3)",
            "'ledger(group=40,fallback=bounce)'",
            "probe(choices=2)",
        ],
    ),
    ("protocol", &["http1", "http2", "auto", "downstream"]),
    (
        "tls",
        &[
            "mesh",
            "{mesh: {identities: ['spiffe://a.example/ns/x/sa/y']}}",
            "{server_name: a.example}",
        ],
    ),
    ("connect_timeout", &["250ms", "1s500ms", "5s"]),
    ("idle_timeout", &["10s", "1h"]),
    ("max_requests_per_connection", &["1", "1000"]),
    ("max_idle_connections", &["0", "7"]),
    ("max_concurrent_streams", &["1", "250"]),
    ("panic_threshold", &["0", "33", "100"]),
    ("overprovisioning_factor", &["1.5", "2"]),
    ("locality_weights", &["{eu/a: 3, eu/b: 1}"]),
    (
        "slow_start",
        &["{window: 10s}", "{aggression: 1.5, min_weight_percent: 20}"],
    ),
    ("dns_refresh", &["{min: 2s}"]),
    ("dns_addresses", &["first"]),
    (
        "health_check",
        &[
            "/healthz",
            "{http: {path: /h, host: a.example, expected_statuses: ['200', '300-310']}, interval: 7s, timeout: 2s}",
            "{tcp: {send: ping, receive: pong}}",
            "{tcp: {}, port: 81, interval_jitter_percent: 20}",
            "{http: /x, unhealthy_threshold: 1, healthy_threshold: 9, unhealthy_interval: 1s}",
        ],
    ),
    (
        "outlier_ejection",
        &[
            "{enabled: false}",
            "{}",
            "{consecutive_5xx: 3, interval: 1s}",
            "{consecutive_local_origin_failure: 3, max_ejection_percent: 50, enforcing_consecutive_gateway_failure: 100}",
            "{consecutive_gateway_failure: 0, max_ejection_percent: 10, always_eject_one_host: true}",
            "{enforcing_success_rate: 0, failure_percentage_threshold: 50, max_ejection_time: 10m, probe_interval: 1s}",
            "{status_difference_threshold: 50, enforcing_status_difference: 10}",
        ],
    ),
    (
        "limits",
        &[
            "{max_requests: 10}",
            "{max_connections: 1, max_pending_requests: 0, queue_timeout: 2s, endpoint: {max_connections: 3}}",
            "{max_retries: 2, endpoint: {max_requests: 5}}",
        ],
    ),
    (
        "retry_budget",
        &["{percent: 12.5}", "{min_concurrency: 7, interval: 20s}"],
    ),
    (
        "circuit_breaker",
        &["{}", "{consecutive_failures: 9, max_open_time: 1m}"],
    ),
    ("concurrency_limit", &["{}", "{max_limit: 50}"]),
    ("delay", &["5ms", "{fixed: 1ms, jitter: 2ms}"]),
    (
        "endpoints",
        &[
            "['10.0.0.1:80']",
            "[{address: '10.0.0.1:80', weight: 3, priority: 1}, {address: '[fd00::1]:81', locality: eu/a/n1}]",
            "['a.example:80', {address: 'b.example:81', weight: 2}]",
            "['unix:/run/a.sock', {address: 'unix:@b', weight: 2}]",
            "['unix:///run/a.sock', '10.0.0.1:80']",
        ],
    ),
];

const MATCH: &[(&str, &[&str])] = &[
    (
        "path",
        &[
            "/",
            "/api",
            "/api/",
            "{exact: /x}",
            "{regex: '/v[0-9]+/.*'}",
        ],
    ),
    ("methods", &["GET", "[GET, POST]", "PROPFIND"]),
    (
        "headers",
        &[
            "[{name: x-a, exact: b}]",
            "[{name: x-a, present: true}, {name: x-b, suffix: z, invert: true}]",
            "[{name: x-a, regex: 'a+'}]",
            "[{name: x-a, regex: 'a*', invert: true}, {name: x-b, contains: z, invert: true}]",
            "[{name: x-a, present: false}]",
        ],
    ),
    (
        "query",
        &[
            "[{name: q, exact: '1'}]",
            "[{name: q, present: true}]",
            "[{name: q, contains: a, invert: true}]",
        ],
    ),
    ("grpc", &["true", "false"]),
];

const FORWARD: &[(&str, &[&str])] = &[
    (
        "rewrite",
        &[
            "{path: /y}",
            "{regex: '/(a+)', substitution: '/x$1'}",
            "{regex: '/(?P<n>a)', substitution: '/${n}$$'}",
            "{host: a.example}",
            "{auto_host: true}",
        ],
    ),
    (
        "hash_policy",
        &[
            "[{source_address: true}]",
            "[{header: x-user, terminal: true}, {path: true}]",
            "[{cookie: session}, {query: q}]",
            "[{cookie: {name: s, ttl: 1h, path: /a}}]",
        ],
    ),
    ("timeout", &["0s", "1s", "2s500ms"]),
    (
        "retry",
        &[
            "5xx",
            "{attempts: 0}",
            "{attempts: 3, retry_on: [gateway-error, '503'], per_try_timeout: 300ms}",
            "{retry_on: retriable-headers, retriable_headers: [{name: x-r, present: true}], back_off: {base_interval: 10ms, max_interval: 1s}}",
            "{retry_on: retriable-headers, retriable_headers: [{name: x-r, exact: a, invert: true}, {name: x-s, regex: '.*', invert: true}]}",
            "{non_idempotent: true, max_retry_after: 1s}",
        ],
    ),
    ("hedge", &["50ms", "{delay: 20ms, attempts: 2}"]),
    ("request_buffer_limit", &["0", "1MiB"]),
    (
        "mirror",
        &["[shadow]", "[{cluster: shadow, percent: 12.5}]"],
    ),
    (
        "rate_limit",
        &["100/s", "{requests: 10, per: 1m, key: {header: x-user}}"],
    ),
    (
        "fault",
        &[
            "{delay: {fixed_delay: 1s, percent: 10}}",
            "{abort: {http_status: 503}}",
            "{abort: {grpc_status: 14, percent: 0.5}, headers: [{name: x-f, present: true}]}",
        ],
    ),
    (
        "request_headers",
        &[
            "{remove: x-a, set: {x-b: '1'}, add: {x-c: ['2', '3']}}",
            "{set: {x-b: '1', x-c: '2'}}",
            "{set: {x-b: ''}, add: {x-c: ['', '2']}}",
            "{set: {x-b: '100%'}, add: {x-c: ['%%', '%41', '%START_TIME%']}}",
        ],
    ),
    ("response_headers", &["{add: {x-d: '4'}}"]),
    ("name", &["named"]),
];

const ACTIONS: &[&str] = &[
    "redirect: {status: 308, host: b.example, port: 8443, scheme: https, path: /z}",
    "redirect: {strip_query: true, path: /z}",
    "direct_response: {status: 200}",
    "direct_response: {status: 418, body: 'short and stout', headers: {x-t: '1'}}",
];

fn route(draw: &mut Draw) -> String {
    let conditions = draw.block("", MATCH);
    let conditions = match draw.below(3) {
        0 => String::new(),
        _ => format!("match: {conditions}, "),
    };
    match draw.below(5) {
        0 => format!("{{{conditions}{}}}", draw.one(ACTIONS)),
        1 => {
            let weighted = draw.one(&[
                "clusters: [{name: a, weight: 3}, {name: b}]",
                "clusters: [{name: a, weight: 3}, {status: 500}]",
                "clusters: [{name: a, request_headers: {set: {x-s: '1'}, remove: [x-t]}, response_headers: {add: {x-u: ['1', '2']}}}]",
            ]);
            let sticky = draw.one(&["", ", sticky: {cookie: keep}", ", sticky: {header: x-s}"]);
            let always = format!("{conditions}{weighted}{sticky}");
            draw.block(&always, FORWARD)
        }
        _ => draw.block(&format!("{conditions}cluster: a"), FORWARD),
    }
}

fn seed() -> u64 {
    let given = std::env::var("SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| u64::from(std::process::id()));
    println!("SEED={seed}");
    seed
}

#[test]
fn clusters_mean_the_same_after_the_way() {
    let mut draw = Draw(Rng::seed(seed()));
    let mut compared = 0;
    for _ in 0..ROUNDS {
        let text = draw.block("name: some.cluster:80", CLUSTER);
        let sent: raw::Cluster = resource::read(&text, "generated").unwrap();
        let Ok(meant) = resource::cluster(&sent, true) else {
            continue;
        };
        let wire = encode::cluster(&sent).unwrap();
        let got = decode::cluster(&wire.name, &wire.body)
            .unwrap_or_else(|error| panic!("{text}\n{error}"));
        let understood = resource::cluster(&got.raw, true).unwrap();
        assert_eq!(format!("{understood:?}"), format!("{meant:?}"), "{text}");
        assert_eq!(got.eds.is_some(), sent.endpoints.is_empty());
        compared += 1;
    }
    assert!(compared > ROUNDS / 2, "only {compared} were good");
}

#[test]
fn routes_mean_the_same_after_the_way() {
    let mut draw = Draw(Rng::seed(seed()));
    let mut compared = 0;
    for _ in 0..ROUNDS {
        let routes: Vec<_> = (0..=draw.below(3)).map(|_| route(&mut draw)).collect();
        let host = draw.block(
            &format!("domains: ['*'], routes: [{}]", routes.join(", ")),
            &[
                ("name", &["all"]),
                ("request_headers", &["{set: {x-v: '1'}}"]),
                ("response_headers", &["{remove: [server, x-w]}"]),
            ],
        );
        let text = format!(
            "{{name: t, virtual_hosts: [{host}, {{domains: [a.example, 'a.example:80', '*.b.example'], routes: [{{cluster: a}}]}}]}}"
        );
        let sent: raw::RouteTable = resource::read(&text, "generated").unwrap();
        let Ok(meant) = resource::routes(&sent) else {
            continue;
        };
        let wire = encode::routes(&sent).unwrap();
        let got = decode::routes("t", &wire.body).unwrap_or_else(|e| panic!("{text}\n{e}"));
        let understood = resource::routes(&got).unwrap_or_else(|e| panic!("{text}\n{e}"));
        assert_eq!(format!("{understood:?}"), format!("{meant:?}"), "{text}");
        compared += 1;
    }
    assert!(compared > ROUNDS / 4, "only {compared} were good");
}

#[test]
fn endpoints_mean_the_same_after_the_way() {
    let mut draw = Draw(Rng::seed(seed()));
    for _ in 0..ROUNDS {
        let endpoint = |i: usize, draw: &mut Draw| ServedEndpoint {
            described: raw::Endpoint {
                address: Some(match draw.below(4) {
                    0 => format!("unix:/run/{i}.sock"),
                    1 => format!("unix:@{i}"),
                    _ => format!("10.0.{}.{i}:{}", draw.below(200), 1 + draw.below(60_000)),
                }),
                weight: (draw.below(2) == 0).then(|| 1 + draw.0.below(100)),
                priority: (draw.below(2) == 0).then(|| 1 + draw.0.below(3)),
                locality: (draw.below(2) == 0)
                    .then(|| draw.one(&["eu", "eu/a", "eu/a/n1", "us"]).to_owned()),
            },
            health: [Health::Healthy, Health::Draining, Health::Unhealthy][draw.below(3)],
        };
        let count = draw.below(8);
        let sent: Vec<_> = (0..count).map(|i| endpoint(i, &mut draw)).collect();
        let wire = encode::endpoints("c", &sent).unwrap();
        let got = decode::endpoints("c", &wire.body).unwrap();
        let sorted = |all: &[ServedEndpoint]| {
            let mut all: Vec<_> = all.iter().map(|e| format!("{e:?}")).collect();
            all.sort();
            all
        };
        assert_eq!(sorted(&got), sorted(&sent));
        let usable = decode::usable_endpoints("c", &wire.body).unwrap();
        let healthy = sent.iter().filter(|e| e.health == Health::Healthy).count();
        assert_eq!(usable.len(), healthy);
    }
}

#[test]
fn listeners_mean_the_same_after_the_way() {
    let routes = "a.shop.svc.cluster.local:80".to_owned();
    let wire = encode::listener(
        "x",
        &Listener::Http {
            routes: routes.clone(),
            bytes: None,
        },
    )
    .unwrap();
    let got = decode::listener("x", &wire.body).unwrap();
    assert!(matches!(got, Listener::Http { routes: got, bytes: None } if got == routes));
    let both = Listener::Http {
        routes: "r".to_owned(),
        bytes: Some("db".to_owned()),
    };
    let wire = encode::listener("x", &both).unwrap();
    let got = decode::listener("x", &wire.body).unwrap();
    assert!(matches!(got, Listener::Http { bytes: Some(cluster), .. } if cluster == "db"));
    let text =
        "{tls: strict, ports: {80: http}, authorization: {rules: [{from: [{namespaces: shop}]}]}}";
    let inbound: Inbound = resource::read(text, "x").unwrap();
    let ahead = vec!["10.96.0.7:80".to_owned()];
    let wire = encode::inbound("shop/cart-1", &inbound, &ahead).unwrap();
    let (got, reported) = decode::inbound("shop/cart-1", &wire.body).unwrap();
    assert_eq!(format!("{got:?}"), format!("{inbound:?}"));
    assert_eq!(reported, ahead);
    let cluster = "db".to_owned();
    let wire = encode::listener("x", &Listener::Tcp { cluster }).unwrap();
    let got = decode::listener("x", &wire.body).unwrap();
    assert!(matches!(got, Listener::Tcp { cluster } if cluster == "db"));
    let text = "{name: t, virtual_hosts: [{domains: ['*'], routes: [{cluster: a}]}]}";
    let table: raw::RouteTable = resource::read(text, "x").unwrap();
    let wire = encode::listener("x", &Listener::Inline(Box::new(table))).unwrap();
    let got = decode::listener("x", &wire.body).unwrap();
    assert!(matches!(got, Listener::Inline(table) if table.virtual_hosts.len() == 1));
}

/// A resource that Envoy's fields can express needs no metadata: a stock client gets all of it.
#[test]
fn usual_settings_need_no_words_of_ours() {
    for text in [
        "{name: a}",
        "{name: a, policy: round-robin, connect_timeout: 1s, protocol: http2}",
        "{name: a, policy: maglev(table_size=251), limits: {max_requests: 10}}",
        "{name: a, endpoints: ['10.0.0.1:80', {address: '10.0.0.2:80', weight: 3}]}",
        "{name: a, outlier_ejection: {enabled: false}}",
        "{name: a, endpoints: ['a.example:80'], dns_addresses: first}",
        "{name: a, endpoints: ['unix:/run/a.sock', 'unix:@b']}",
    ] {
        let raw: raw::Cluster = resource::read(text, "x").unwrap();
        let wire = encode::cluster(&raw).unwrap();
        let own = wire.body.windows(10).any(|w| w == b"maglor.dev");
        assert!(!own, "{text}");
    }
    let text = "{name: t, virtual_hosts: [{domains: [a], routes: [{cluster: a}, {match: {path: /x, methods: [GET, PUT], headers: [{name: h, exact: v}]}, clusters: [{name: a, weight: 1}, {name: b, weight: 2}], timeout: 1s, retry: {attempts: 1, retry_on: 5xx}, rewrite: {prefix: /y}}]}]}";
    let raw: raw::RouteTable = resource::read(text, "x").unwrap();
    let wire = encode::routes(&raw).unwrap();
    assert!(!wire.body.windows(10).any(|w| w == b"maglor.dev"));
}

/// Envoy's `LOGICAL_DNS`: one name, of whose addresses the first is used.
#[test]
fn logical_dns_is_the_first_address_of_one_name() {
    let of = |endpoints: &str| {
        let text = format!("{{name: a, endpoints: [{endpoints}]}}");
        let raw: raw::Cluster = resource::read(&text, "x").unwrap();
        let wire = encode::cluster(&raw).unwrap();
        let mut message = wire::Cluster::decode(&*wire.body).unwrap();
        let logical = DiscoveryType::LogicalDns;
        message.cluster_discovery_type = Some(ClusterDiscoveryType::Type(logical.into()));
        decode::cluster("a", &message.encode_to_vec()).map(|got| got.raw)
    };
    let got = of("'a.example:80'").unwrap();
    assert_eq!(got.dns_addresses, Some(raw::DnsAddresses::First));
    assert_eq!(got.endpoints.len(), 1);
    // An address is resolved to itself.
    assert_eq!(of("'10.0.0.1:80'").unwrap().dns_addresses, None);
    assert_eq!(of("'unix:/run/a.sock'").unwrap().dns_addresses, None);
    let error = of("'a.example:80', 'b.example:80'")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("LOGICAL_DNS needs exactly one endpoint, found 2"),
        "{error}"
    );
}
