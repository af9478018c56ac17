//! `maglor why` against proxies at their addresses.

use maglor_testkit::{Answer, Proxy, ProxyBuilder, RawHttp1, TIMEOUT, Upstream, eventually};
use serde_json::Value;

use crate::support::{maglor, program, stdout};

/// A proxy in front of one endpoint.
fn proxy(endpoint: std::net::SocketAddr, route: &str) -> Proxy {
    let yaml = format!(
        "admin: {{address: '127.0.0.1:0'}}\nlisteners:\n- {{name: web, address: '127.0.0.1:0', http: {{virtual_hosts: \
         [{{domains: ['*'], routes: [{{cluster: backend{route}}}]}}]}}}}\n\
         clusters:\n- {{name: backend, endpoints: ['{endpoint}']}}\n"
    );
    ProxyBuilder::new(program("maglor-proxy"))
        .config(&yaml)
        .start()
}

fn ask(proxy: &Proxy, id: &str) -> u16 {
    let mut client = RawHttp1::connect(proxy.listener("web"));
    let request = format!("GET /cart?x=1 HTTP/1.1\r\nhost: shop\r\nx-request-id: {id}\r\n\r\n");
    client.request(request).status
}

#[test]
fn the_proxies_of_a_request_explain_it_in_one_answer() {
    let upstream = Upstream::start("a");
    upstream.set_answer(|_| Some(Answer::status(500)));
    let server = proxy(upstream.address(), "");
    let client = proxy(server.listener("web"), "");
    assert_eq!(ask(&client, "r-1"), 500);
    let (outer, inner) = (
        format!("web-0={}", client.admin()),
        format!("cart-0={}", server.admin()),
    );
    let both = ["--proxy", &outer, "--proxy", &inner];
    let why = |arguments: &[&'static str]| [&["why"], arguments, &both].concat();
    eventually(TIMEOUT, "both have kept it", || {
        let output = maglor(&why(&["r-1", "-o", "json"]));
        let found = serde_json::from_slice::<Value>(&output.stdout);
        found.is_ok_and(|found| {
            found["stories"]
                .as_array()
                .is_some_and(|all| all.len() == 2)
        })
    });
    let text = stdout(&why(&["r-1"]));
    let first = text.lines().next().unwrap();
    let endpoint = upstream.address().to_string();
    assert!(first.contains("; there, "), "{text}");
    assert!(
        first.contains(&format!("{endpoint} itself answered with status 500")),
        "{text}"
    );
    assert!(text.contains("web-0: GET shop/cart?x=1 → 500, "), "{text}");
    assert!(text.contains("cart-0: GET shop/cart?x=1 → 500, "), "{text}");

    let list = stdout(&why(&["--recent"]));
    assert_eq!(list.matches("r-1").count(), 2, "{list}");
    let none = stdout(&why(&["--recent", "--flag", "UF"]));
    assert_eq!(none, "");
    let csv = stdout(&why(&[
        "--recent",
        "--cluster",
        "backend",
        "--limit",
        "1",
        "-o",
        "csv",
    ]));
    assert!(
        csv.starts_with("time,proxy,id,request,request.status,flag,"),
        "{csv}"
    );
    assert_eq!(csv.lines().count(), 2, "{csv}");

    let missing = maglor(&why(&["r-2"]));
    assert_eq!(missing.status.code(), Some(1));
    let error = String::from_utf8(missing.stderr).unwrap();
    assert!(
        error.contains("no proxy has kept a request `r-2`"),
        "{error}"
    );
    assert!(error.contains("maglor why --recent"), "{error}");
}

#[test]
fn a_proxy_that_does_not_respond_does_not_hide_the_others() {
    let upstream = Upstream::start("a");
    let limited = proxy(upstream.address(), ", rate_limit: {requests: 1, per: 1h}");
    assert_eq!(ask(&limited, "first"), 200);
    assert_eq!(ask(&limited, "second"), 429);
    let admin = limited.admin().to_string();
    let gone = proxy(upstream.address(), "");
    let dead = gone.admin().to_string();
    drop(gone);
    let arguments = ["why", "second", "--proxy", &dead, "--proxy", &admin];
    eventually(TIMEOUT, "it is explained", || {
        maglor(&arguments).status.success()
    });
    let output = maglor(&arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("rate limited: the limit of route "),
        "{text}"
    );
    assert!(String::from_utf8(output.stderr).unwrap().contains(&dead));
    assert_eq!(maglor(&arguments[..4]).status.code(), Some(1));
}

#[test]
fn an_identifier_or_the_list_is_required_and_filters_are_of_the_list() {
    for wrong in [
        &["why"][..],
        &["why", "r-1", "--recent"],
        &["why", "r-1", "--flag", "UF"],
    ] {
        assert_eq!(maglor(wrong).status.code(), Some(2), "{wrong:?}");
    }
}
