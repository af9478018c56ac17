//! The input of the micro benchmarks.
#![allow(dead_code, reason = "each benchmark takes what it needs")]

use std::fmt::Write as _;

/// A typical request of a browser.
pub(crate) const REQUEST: &[u8] = b"GET /carts/17/items?sort=price HTTP/1.1\r\n\
Host: h0.example.com\r\n\
User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
Accept-Language: en-US,en;q=0.5\r\n\
Accept-Encoding: gzip, deflate, br\r\n\
Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\
Connection: keep-alive\r\n\
\r\n";

/// So many virtual hosts of four routes each; the request takes the third of the first.
pub(crate) fn config(hosts: usize) -> String {
    let mut yaml = String::from(
        "listeners: [{name: web, address: '127.0.0.1:0', http: {routes: main}}]\n\
         clusters: [{name: backend, endpoints: ['127.0.0.1:9']}]\n\
         route_tables:\n- name: main\n  virtual_hosts:\n",
    );
    for host in 0..hosts {
        let _ = write!(
            yaml,
            "  - name: h{host}\n    domains: [h{host}.example.com, '*.h{host}.example.com']\n    \
             routes:\n    - {{match: {{path: /exact}}, cluster: backend}}\n    \
             - {{match: {{path: {{prefix: /users}}, methods: [POST]}}, cluster: backend}}\n    \
             - {{match: {{path: {{prefix: /carts}}}}, cluster: backend}}\n    \
             - {{cluster: backend}}\n"
        );
    }
    yaml
}

/// So many routes: as hosts with a route each, or as prefixes of one host.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Many {
    Hosts,
    Prefixes,
}

/// A configuration of `count` routes, and the request that takes the last one.
pub(crate) fn many(shape: Many, count: usize) -> (String, Vec<u8>) {
    let mut yaml = String::from(
        "listeners: [{name: web, address: '127.0.0.1:0', http: {routes: main}}]\n\
         clusters: [{name: backend, endpoints: ['127.0.0.1:9']}]\n\
         route_tables:\n- name: main\n  virtual_hosts:\n",
    );
    if let Many::Prefixes = shape {
        yaml.push_str("  - name: all\n    domains: ['*']\n    routes:\n");
    }
    for n in 0..count {
        let _ = match shape {
            Many::Hosts => writeln!(
                yaml,
                "  - {{name: h{n}, domains: [h{n}.example.com], routes: [{{cluster: backend}}]}}"
            ),
            Many::Prefixes => writeln!(
                yaml,
                "    - {{match: {{path: {{prefix: /team/s{n}}}}}, cluster: backend}}"
            ),
        };
    }
    let last = count - 1;
    let (host, path) = match shape {
        Many::Hosts => (format!("h{last}.example.com"), "/".to_owned()),
        Many::Prefixes => ("example.com".to_owned(), format!("/team/s{last}/items")),
    };
    let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\naccept: */*\r\n\r\n");
    (yaml, head.into_bytes())
}
