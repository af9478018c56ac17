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
