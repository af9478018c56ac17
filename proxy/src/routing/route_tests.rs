use super::*;
use crate::protocol::fields::Key;

fn hosts(domains: &[&str]) -> Table {
    let mut table = Table {
        delegates: Vec::new(),
        exact: HashMap::new(),
        suffix: HashMap::new(),
        prefix: HashMap::new(),
        any: None,
        hosts: Vec::new(),
        authorization: None,
        rate_limit: None,
    };
    for (index, domain) in domains.iter().enumerate() {
        match (domain.strip_prefix('*'), domain.strip_suffix('*')) {
            (Some(""), _) => table.any = Some(index),
            (Some(suffix), _) => drop(table.suffix.insert(suffix.to_owned(), index)),
            (_, Some(prefix)) => drop(table.prefix.insert(prefix.to_owned(), index)),
            _ => drop(table.exact.insert((*domain).to_owned(), index)),
        }
        let host = Host {
            request_headers: None,
            response_headers: None,
            routes: Vec::new(),
            index: None,
        };
        table.hosts.push(host);
    }
    table
}

#[track_caller]
fn check(domains: &[&str], name: &str, expected: Option<&str>) {
    let table = hosts(domains);
    let found = table.host(name.as_bytes()).map(|host| {
        let at = table
            .hosts
            .iter()
            .position(|other| std::ptr::eq(other, host))
            .unwrap();
        domains[at]
    });
    assert_eq!(found, expected, "{name} in {domains:?}");
}

#[test]
fn hosts_match_exact_then_suffix_then_prefix_then_any() {
    let all = [
        "a.example.com",
        "*.example.com",
        "*.com",
        "a.*",
        "a.example.*",
        "*",
    ];
    check(&all, "a.example.com", Some("a.example.com"));
    check(&all, "A.Example.COM", Some("a.example.com"));
    check(&all, "a.example.com:8080", Some("a.example.com"));
    check(&all, "a.example.com.", Some("a.example.com"));
    check(&all, "b.example.com", Some("*.example.com"));
    check(&all, "x.b.example.com", Some("*.example.com"));
    check(&all, "example.com", Some("*.com"));
    check(&all, "a.example.org", Some("a.example.*"));
    check(&all, "a.other.org", Some("a.*"));
    check(&all, "c.org", Some("*"));
    check(&all, "", Some("*"));
    check(&all[..5], "c.org", None);
}

#[test]
fn a_wildcard_stands_for_at_least_one_label() {
    check(&["*.example.com"], "example.com", None);
    check(&["*.example.com"], ".example.com", None);
    check(&["example.*"], "example.", None);
    check(&["example.*"], "example", None);
    check(&["example.*"], "example.com", Some("example.*"));
    check(&["example.*"], "myexample.com", None);
}

#[test]
fn ports_and_ipv6_addresses_are_distinguished() {
    assert_eq!(without_port("a:80"), "a");
    assert_eq!(without_port("[::1]:80"), "[::1]");
    assert_eq!(without_port("[::1]"), "[::1]");
    assert_eq!(without_port("a:b"), "a:b");
    check(&["a:8080", "a"], "a:8080", Some("a:8080"));
    check(&["a:8080", "a"], "a:9090", Some("a"));
    check(&["a:8080"], "a", None);
}

#[test]
fn prefixes_match_whole_segments() {
    let prefix = |p: &str| PathMatch::Prefix(p.into());
    assert!(path_matches(&prefix("/api"), b"/api"));
    assert!(path_matches(&prefix("/api"), b"/api/x"));
    assert!(!path_matches(&prefix("/api"), b"/apix"));
    assert!(path_matches(&prefix("/api/"), b"/api/x"));
    assert!(!path_matches(&prefix("/api/"), b"/api"));
    assert!(path_matches(&prefix("/"), b"/anything"));
}

#[test]
fn query_values_are_decoded_and_the_first_counts() {
    assert_eq!(query_value("a=1&b=x%20y&b=z", "b").unwrap(), "x y");
    assert_eq!(query_value("flag&a=1", "flag").unwrap(), "");
    assert_eq!(query_value("q=a+b", "q").unwrap(), "a b");
    assert!(query_value("a=1", "c").is_none());
}

#[test]
fn repeated_headers_are_compared_joined() {
    let mut fields = Fields::default();
    fields.push(Key::new(b"x"), b"1");
    fields.push(Key::new(b"X"), b"2");
    let condition = |value, invert| HeaderMatch {
        name: "x".parse().unwrap(),
        value,
        invert,
    };
    assert!(header_matches(
        &condition(StringMatch::Exact("1,2".into()), false),
        &fields
    ));
    assert!(header_matches(
        &condition(StringMatch::Present, false),
        &fields
    ));
    assert!(!header_matches(
        &condition(StringMatch::Present, true),
        &fields
    ));
    assert!(header_matches(
        &condition(StringMatch::Present, true),
        &Fields::default()
    ));
}
