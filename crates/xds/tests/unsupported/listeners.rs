use maglor_xds::proto::envoy::config::listener::v3 as listener;
use maglor_xds::{Message, decode};
use prost_types::Any;

use super::routes::table;
use super::{at, expect, flag, text};

/// A listener whose API listener is a filter of this type.
fn api(type_name: &str, filter: Vec<u8>) -> Vec<u8> {
    let any = Any {
        type_url: format!("type.googleapis.com/envoy.extensions.filters.network.{type_name}"),
        value: filter,
    };
    let message = listener::Listener {
        name: "l".to_owned(),
        api_listener: Some(listener::ApiListener {
            api_listener: Some(any),
        }),
        ..listener::Listener::default()
    };
    message.encode_to_vec()
}

#[test]
fn listeners() {
    let inline = |more: Vec<u8>| {
        let routes = table(Vec::new()).encode_to_vec();
        let routes = at(&[4], &routes);
        let manager = [routes, more].concat();
        api("http_connection_manager.v3.HttpConnectionManager", manager)
    };
    let router = |config: Vec<u8>| {
        let url = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
        let any = [text(1, url), at(&[2], &config)].concat();
        let filter = [text(1, "envoy.filters.http.router"), at(&[4], &any)].concat();
        at(&[5], &filter)
    };
    let tcp = |more: Vec<u8>| api("tcp_proxy.v3.TcpProxy", [text(2, "db"), more].concat());
    let cases: &[(&str, Vec<u8>, &[&str])] = &[
        ("nothing", inline(Vec::new()), &[]),
        (
            "merged slashes",
            inline(flag(33)),
            &["listener `l`: http_connection_manager.merge_slashes"],
        ),
        ("an explicit false", inline(at(&[30], &[])), &[]),
        ("a router", inline(router(Vec::new())), &[]),
        ("a quiet router", inline(router(flag(4))), &[]),
        (
            "filters of a router",
            inline(router(at(&[8], &[]))),
            &["http_filters `envoy.filters.http.router`.upstream_http_filters"],
        ),
        (
            "a filter from elsewhere",
            inline(at(&[5, 5], &[])),
            &["http_filters[0].config_discovery"],
        ),
        (
            "inline routes",
            inline(at(&[4, 2, 3, 2, 35], &[])),
            &["route_config.virtual_hosts[0].routes[0].route.host_rewrite_path_regex"],
        ),
        ("WebSocket", inline(at(&[23], &text(1, "websocket"))), &[]),
        (
            "CONNECT",
            inline(at(&[23], &text(1, "CONNECT"))),
            &["upgrade_configs[0].upgrade_type"],
        ),
        ("access logs", inline(at(&[13], &[])), &[]),
        ("TCP", tcp(Vec::new()), &[]),
        (
            "a tunnel",
            tcp(at(&[12], &[])),
            &["tcp_proxy.tunneling_config"],
        ),
        (
            "an idle timeout",
            tcp(at(&[8], &[8, 1])),
            &["tcp_proxy.idle_timeout"],
        ),
        (
            "matched chains",
            [inline(Vec::new()), at(&[3, 1], &[8, 1])].concat(),
            &["filter_chains[0].filter_chain_match"],
        ),
    ];
    for (case, body, parts) in cases {
        expect(decode::listener("l", body), parts, case);
    }
}
