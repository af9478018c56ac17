//! Sticky clients: they stay at the cluster of a route that they got first.

use std::collections::BTreeSet;

use maglor_testkit::Upstream;

use crate::support::{connect, start};

#[test]
fn sticky_clients_stay_where_they_were() {
    let (a, b) = (Upstream::start("a"), Upstream::start("b"));
    let proxy = start(&format!(
        "admin: {{address: '127.0.0.1:0'}}\nlisteners:\n- name: web\n  address: 127.0.0.1:0\n  \
         http: {{virtual_hosts: [{{domains: ['*'], routes: [{{clusters: [{{name: a, weight: 1}}, \
         {{name: b, weight: 1}}], sticky: {{header: x-user}}}}]}}]}}\nclusters:\n\
         - {{name: a, endpoints: ['{}']}}\n- {{name: b, endpoints: ['{}']}}\n",
        a.address(),
        b.address()
    ));
    let ask = |user: u32| {
        let request = format!("GET / HTTP/1.1\r\nhost: a\r\nx-user: {user}\r\n\r\n");
        connect(&proxy).request(request).text().to_owned()
    };
    let first: Vec<_> = (0..40).map(ask).collect();
    assert_eq!(first, (0..40).map(ask).collect::<Vec<_>>());
    let to_a = first.iter().filter(|name| *name == "a").count();
    assert!((8..=32).contains(&to_a), "{to_a}");
}

/// For each form: a client without the cookie gets one, and stays at its cluster with it.
#[test]
fn clients_without_a_sticky_cookie_get_one() {
    let (a, b) = (Upstream::start("a"), Upstream::start("b"));
    for (form, attributes) in [
        ("canary", "Path=/"),
        ("{name: canary}", "Path=/"),
        (
            "{name: canary, ttl: 1h, path: /shop}",
            "Path=/shop; Max-Age=3600",
        ),
    ] {
        let proxy = start(&format!(
            "admin: {{address: '127.0.0.1:0'}}\nlisteners:\n- name: web\n  address: 127.0.0.1:0\n  \
             http: {{virtual_hosts: [{{domains: ['*'], routes: [{{clusters: [{{name: a}}, {{name: b}}], \
             sticky: {{cookie: {form}}}}}]}}]}}\nclusters:\n\
             - {{name: a, endpoints: ['{}']}}\n- {{name: b, endpoints: ['{}']}}\n",
            a.address(),
            b.address()
        ));
        let ask = |cookie: &str| {
            let request = format!("GET / HTTP/1.1\r\nhost: a\r\n{cookie}\r\n");
            connect(&proxy).request(request)
        };
        let mut seen = BTreeSet::new();
        for _ in 0..20 {
            let first = ask("");
            let input = first.header("set-cookie").unwrap().to_owned();
            assert!(
                input.starts_with("canary=") && input.contains(attributes),
                "{input}"
            );
            let pair = input.split(';').next().unwrap();
            for _ in 0..5 {
                let again = ask(&format!("cookie: x=y; {pair}\r\n"));
                assert_eq!(again.text(), first.text());
                assert_eq!(again.header("set-cookie"), None);
            }
            seen.insert(first.text().to_owned());
        }
        assert_eq!(seen.len(), 2, "{form}: all clients are at one cluster");
    }
}
