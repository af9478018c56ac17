use maglor_config::{raw, resource};
use maglor_xds::proto::envoy::config::core::v3 as core;
use maglor_xds::proto::envoy::config::route::v3 as route;
use maglor_xds::proto::envoy::r#type::matcher::v3::{
    RegexMatcher, StringMatcher, string_matcher::MatchPattern,
};
use maglor_xds::{Message, decode, encode};

use super::{at, expect, flag, text, with};

fn header(pattern: MatchPattern, invert: bool, empty: bool) -> route::HeaderMatcher {
    let text = StringMatcher {
        ignore_case: false,
        match_pattern: Some(pattern),
    };
    route::HeaderMatcher {
        name: "x".to_owned(),
        header_match_specifier: Some(route::header_matcher::HeaderMatchSpecifier::StringMatch(
            text,
        )),
        invert_match: invert,
        treat_missing_header_as_empty: empty,
    }
}

pub(crate) fn table(headers: Vec<route::HeaderMatcher>) -> route::RouteConfiguration {
    let forward = route::RouteAction {
        cluster_specifier: Some(route::route_action::ClusterSpecifier::Cluster(
            "a".to_owned(),
        )),
        ..route::RouteAction::default()
    };
    route::RouteConfiguration {
        name: "t".to_owned(),
        virtual_hosts: vec![route::VirtualHost {
            domains: vec!["*".to_owned()],
            routes: vec![route::Route {
                r#match: Some(route::RouteMatch {
                    headers,
                    path_specifier: Some(route::route_match::PathSpecifier::Prefix("/".to_owned())),
                    ..route::RouteMatch::default()
                }),
                action: Some(route::route::Action::Route(forward)),
                ..route::Route::default()
            }],
            ..route::VirtualHost::default()
        }],
        ..route::RouteConfiguration::default()
    }
}

#[test]
fn an_absent_header_satisfies_the_same_conditions_as_in_envoy() {
    let exact = |text: &str| MatchPattern::Exact(text.to_owned());
    let regex = |regex: &str| {
        let regex = regex.to_owned();
        MatchPattern::SafeRegex(RegexMatcher { regex })
    };
    let empty = &["match.headers[0].treat_missing_header_as_empty"][..];
    let cases = [
        (exact("a"), false, false, &[][..]),
        (exact("a"), false, true, &[]),
        (exact("a"), true, false, &[]),
        (exact("a"), true, true, &[]),
        (exact(""), false, false, &[]),
        (exact(""), false, true, empty),
        (exact(""), true, false, &[]),
        (exact(""), true, true, empty),
        (MatchPattern::Prefix(String::new()), false, true, empty),
        (MatchPattern::Suffix("a".to_owned()), true, true, &[]),
        (regex("a+|b"), true, true, &[]),
        (regex("a*"), true, true, empty),
        (regex("|a"), false, true, empty),
    ];
    for (pattern, invert, treat, parts) in cases {
        let case = format!("{pattern:?}, inverted: {invert}, absent as empty: {treat}");
        let message = table(vec![header(pattern, invert, treat)]);
        expect(decode::routes("t", &message.encode_to_vec()), parts, &case);
    }
    let mut present = header(exact(""), true, false);
    let is_present = route::header_matcher::HeaderMatchSpecifier::PresentMatch(true);
    present.header_match_specifier = Some(is_present);
    let decoded =
        |one: &route::HeaderMatcher| decode::routes("t", &table(vec![one.clone()]).encode_to_vec());
    expect(decoded(&present), &[], "absent");
    present.treat_missing_header_as_empty = true;
    expect(decoded(&present), empty, "absent as empty");
}

/// In Envoy, an absent header satisfies no condition on its value.
#[test]
fn an_inverted_condition_needs_the_header() {
    let inverted = |treat| header(MatchPattern::Exact("a".to_owned()), true, treat);
    let conditions = |matcher| {
        let table = table(vec![matcher]).encode_to_vec();
        let mut table = decode::routes("t", &table).unwrap();
        let route = table.virtual_hosts.remove(0).routes.remove(0);
        let headers = route.r#match.unwrap().headers;
        let each = headers
            .iter()
            .map(|one| (one.present, one.exact.clone(), one.invert));
        each.collect::<Vec<_>>()
    };
    let value = (None, Some("a".to_owned()), Some(true));
    assert_eq!(conditions(inverted(true)), std::slice::from_ref(&value));
    assert_eq!(
        conditions(inverted(false)),
        [(Some(true), None, None), value]
    );
}

/// What a stock Envoy gets of inverted conditions.
#[test]
fn inverted_conditions_are_encoded_for_envoy() {
    let encoded = |condition: &str| {
        let text = format!(
            "{{name: t, virtual_hosts: [{{domains: ['*'], routes: [{{cluster: a, match: {{headers: [{condition}]}}}}]}}]}}"
        );
        let raw: raw::RouteTable = resource::read(&text, "x").unwrap();
        let wire = encode::routes(&raw).unwrap();
        let got = decode::routes("t", &wire.body).unwrap();
        let validated = |raw| format!("{:?}", resource::routes(raw).unwrap());
        assert_eq!(validated(&got), validated(&raw), "{condition}");
        let mut table = route::RouteConfiguration::decode(&*wire.body).unwrap();
        let route = table.virtual_hosts.remove(0).routes.remove(0);
        let matcher = route.r#match.unwrap().headers.remove(0);
        let native = route.metadata.is_none();
        (
            native,
            matcher.invert_match,
            matcher.treat_missing_header_as_empty,
        )
    };
    for (condition, expected) in [
        ("{name: x, exact: a, invert: true}", (true, true, true)),
        ("{name: x, regex: 'a+', invert: true}", (true, true, true)),
        ("{name: x, exact: a}", (true, false, false)),
        (
            "{name: x, present: true, invert: true}",
            (true, true, false),
        ),
        ("{name: x, present: false}", (true, false, false)),
        // In Envoy, an absent header cannot satisfy it.
        (
            "{name: x, regex: 'a*', invert: true}",
            (false, false, false),
        ),
    ] {
        assert_eq!(encoded(condition), expected, "{condition}");
    }
}

#[test]
fn routes() {
    let base = table(Vec::new());
    let of_route = |inner: &[u32]| [&[2, 3], inner].concat();
    let cases: &[(&str, Vec<u8>, &[&str])] = &[
        ("nothing", base.encode_to_vec(), &[]),
        (
            "TLS of the client",
            with(&base, &of_route(&[1, 11, 1]), &flag(1)),
            &["routes `t`: virtual_hosts[1].routes[0].match.tls_context"],
        ),
        (
            "cookies",
            with(&base, &of_route(&[1, 17]), &[]),
            &["match.cookies"],
        ),
        (
            "metadata",
            with(&base, &of_route(&[1, 13]), &[]),
            &["match.dynamic_metadata"],
        ),
        (
            "the host from the path",
            with(&base, &of_route(&[2, 35]), &[]),
            &["route.host_rewrite_path_regex"],
        ),
        (
            "high priority",
            with(&base, &of_route(&[2]), &flag(11)),
            &["route.priority"],
        ),
        (
            "internal redirects",
            with(&base, &of_route(&[2, 34]), &[]),
            &["route.internal_redirect_policy"],
        ),
        (
            "a share's host",
            with(&base, &of_route(&[2, 3, 1]), &text(11, "h")),
            &["weighted_clusters.clusters[0].host_rewrite_literal"],
        ),
        (
            "another predicate",
            with(&base, &of_route(&[2, 9, 5]), &text(1, "omit_canary")),
            &[
                "retry_policy.retry_host_predicate[0].name",
                "previous_hosts",
            ],
        ),
        (
            "a body from a file",
            with(&base, &of_route(&[7, 2]), &text(1, "f")),
            &["direct_response.body.filename"],
        ),
        (
            "bytes of a header",
            with(&base, &of_route(&[9, 1]), &text(3, "x")),
            &["request_headers_to_add[0].header.raw_value"],
        ),
        (
            "bytes of a host's header",
            with(&base, &[2, 10, 1], &text(3, "x")),
            &["virtual_hosts[1].response_headers_to_add[0].header.raw_value"],
        ),
        (
            "a matcher",
            with(&base, &[2, 21], &[]),
            &["virtual_hosts[1].matcher"],
        ),
        (
            "mirrors of all routes",
            with(&base, &[13], &[]),
            &["request_mirror_policies"],
        ),
        ("on-demand hosts", with(&base, &[9], &[]), &["vhds"]),
    ];
    for (case, body, parts) in cases {
        expect(decode::routes("t", body), parts, case);
    }
}

#[test]
fn tables_of_istio_are_accepted() {
    let base = table(Vec::new());
    for (case, body) in [
        ("attempt counts", with(&base, &[2], &flag(14))),
        ("no validation", with(&base, &[7], &[])),
        ("no ports of hosts", with(&base, &[], &flag(14))),
    ] {
        expect(decode::routes("t", &body), &[], case);
    }
}

#[test]
fn actions_of_istio_are_accepted() {
    let mut message = table(Vec::new());
    let routes = &mut message.virtual_hosts[0].routes;
    let base = routes.remove(0);
    let previous = "envoy.retry_host_predicates.previous_hosts";
    for (case, body) in [
        (
            "the default predicate",
            with(&base, &[2, 9, 5], &text(1, previous)),
        ),
        ("WebSocket", with(&base, &[2, 25], &text(1, "websocket"))),
        ("no limit of gRPC's timeout", with(&base, &[2, 36, 2], &[])),
        ("the original host", with(&base, &[2], &flag(38))),
        ("a name for tracing", with(&base, &[5], &text(1, "op"))),
    ] {
        let host = [text(2, "*"), at(&[3], &body)].concat();
        let table = [text(1, "t"), at(&[2], &host)].concat();
        expect(decode::routes("t", &table), &[], case);
    }
}

#[test]
fn an_empty_value_needs_a_flag() {
    let option = |keep| core::HeaderValueOption {
        header: Some(core::HeaderValue {
            key: "x".to_owned(),
            value: String::new(),
        }),
        keep_empty_value: keep,
        ..core::HeaderValueOption::default()
    };
    for keep in [false, true] {
        let mut message = table(Vec::new());
        message.virtual_hosts[0].request_headers_to_add = vec![option(keep)];
        let mut got = decode::routes("t", &message.encode_to_vec()).unwrap();
        let rules = got.virtual_hosts.remove(0).request_headers;
        assert_eq!(rules.is_some(), keep);
    }
    let text = "{name: t, virtual_hosts: [{domains: ['*'], request_headers: {set: {x: ''}}, routes: [{cluster: a}]}]}";
    let raw: raw::RouteTable = resource::read(text, "x").unwrap();
    let wire = encode::routes(&raw).unwrap();
    let sent = route::RouteConfiguration::decode(&*wire.body).unwrap();
    assert!(sent.virtual_hosts[0].request_headers_to_add[0].keep_empty_value);
    let got = decode::routes("t", &wire.body).unwrap();
    assert!(got.virtual_hosts[0].request_headers.is_some());
}
