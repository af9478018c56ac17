//! The application's probes through the admin port, for a kubelet without mutual TLS.

use std::net::TcpListener;

use maglor_testkit::{RawHttp1, Upstream};

use crate::support;

#[test]
fn the_application_is_asked_over_loopback() {
    let application = Upstream::start("well");
    let port = application.address().port();
    // An address whose listener is closed.
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let proxy = support::start(&format!(
        "admin:\n  address: 127.0.0.1:0\n  probes:\n    web/liveness: http:{port}/live?deep=1\n    web/startup: tcp:{port}\n\
         \x20   web/readiness: http:{gone}/\n    old/startup: tcp:{gone}\n\
         listeners:\n- {{name: web, address: 127.0.0.1:0, tcp: {{cluster: a}}}}\n\
         clusters:\n- {{name: a, endpoints: [{}]}}\n",
        application.address()
    ));
    let mut admin = RawHttp1::connect(proxy.admin());
    let answer = admin.get("/probe/web/liveness");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(admin.get("/probe/web/startup").status, 200);
    for name in ["web/readiness", "old/startup"] {
        let answer = admin.get(&format!("/probe/{name}"));
        assert_eq!(answer.status, 503);
        assert!(answer.text().contains("refused"), "{}", answer.text());
    }
    assert_eq!(admin.get("/probe/web/other").status, 404);
    assert_eq!(application.requests(), 1);
    let seen = format!("{:?}", application.last());
    assert!(seen.contains("/live?deep=1"), "{seen}");
}
