use std::collections::BTreeMap;

use prost::encoding::{encode_key, encode_varint};
use prost_types::{DescriptorProto, field_descriptor_proto::Label};

use super::*;

/// The tables of whole messages.
const ALL: [(&str, &Message); 7] = [
    ("envoy.config.cluster.v3.Cluster", &CLUSTER),
    (
        "envoy.config.endpoint.v3.ClusterLoadAssignment",
        &ASSIGNMENT,
    ),
    (
        "envoy.config.route.v3.RouteConfiguration",
        &ROUTE_CONFIGURATION,
    ),
    ("envoy.config.listener.v3.Listener", &LISTENER),
    (
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        &HTTP_CONNECTION_MANAGER,
    ),
    (
        "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        &TCP_PROXY,
    ),
    (
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        &HTTP_OPTIONS,
    ),
];

fn number(field: u32, value: u64) -> Vec<u8> {
    let mut body = Vec::new();
    encode_key(field, WireType::Varint, &mut body);
    encode_varint(value, &mut body);
    body
}

fn bytes(field: u32, value: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    encode_key(field, WireType::LengthDelimited, &mut body);
    encode_varint(value.len() as u64, &mut body);
    body.extend(value);
    body
}

fn fault_of(message: &Message, body: &[u8]) -> Option<String> {
    refuse(message, body).err().map(|fault| fault.field)
}

/// Each rejected field of a message and of those in it: its path, and a message that contains only this field.
fn each(message: &Message, found: &mut dyn FnMut(&str, &[u8], When)) {
    for (field, name, when) in message.rejected {
        let body = match when {
            When::Present | When::NotText(_) => bytes(*field, b"x"),
            When::NotDefault | When::Not(_) => number(*field, 77),
        };
        found(name, &body, *when);
    }
    for (field, name, inner) in message.nested {
        let name = name.replace("[]", "[0]");
        each(inner, &mut |path, body, when| {
            found(&format!("{name}.{path}"), &bytes(*field, body), when);
        });
    }
}

#[test]
fn each_field_is_rejected_by_its_path() {
    let mut count = 0;
    for (_, message) in ALL {
        each(message, &mut |path, body, _| {
            assert_eq!(fault_of(message, body).as_deref(), Some(path));
            count += 1;
        });
    }
    assert!(count > 200, "{count}");
}

#[test]
fn values_without_effect_are_accepted() {
    let cases: [(&Message, Vec<u8>); 7] = [
        // `dns_lookup_family: V4_ONLY`
        (&CLUSTER, number(17, 1)),
        // `lb_subset_config: {}`
        (&CLUSTER, bytes(22, &[])),
        // `use_remote_address: false`, explicitly
        (&HTTP_CONNECTION_MANAGER, bytes(14, &[])),
        (&HTTP_CONNECTION_MANAGER, number(33, 0)),
        (&HTTP_CONNECTION_MANAGER, bytes(23, &bytes(1, b"websocket"))),
        // Unknown, as from a later version.
        (&TCP_PROXY, bytes(9999, b"x")),
        // Malformed: the decoder of the message rejects it.
        (&TCP_PROXY, vec![0xff]),
    ];
    for (message, body) in cases {
        assert_eq!(fault_of(message, &body), None, "{body:?}");
    }
}

#[test]
fn the_index_of_a_repeated_field_is_part_of_the_path() {
    let good = bytes(3, &bytes(14, b"named"));
    let bad = bytes(3, &bytes(17, b""));
    let host = [bytes(1, b"first"), good.clone(), good, bad].concat();
    let body = [bytes(2, b""), bytes(2, &host)].concat();
    let path = "virtual_hosts[1].routes[2].filter_action";
    assert_eq!(fault_of(&ROUTE_CONFIGURATION, &body).as_deref(), Some(path));
}

/// A rejected field is not in our subset of the types: its decoder would decide. A nested message is, with the same
/// number and name.
#[test]
fn the_tables_complement_the_subset_of_the_types() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/proto");
    let files = ALL.map(|(name, _)| name.rsplit_once('.').unwrap().0);
    let mut messages = BTreeMap::new();
    for package in files {
        let folder = format!("{root}/{}", package.replace('.', "/"));
        let paths = std::fs::read_dir(folder).unwrap();
        let paths = paths.map(|entry| entry.unwrap().path());
        let described = protox::compile(paths, [root]).unwrap();
        for file in described.file {
            let package = file.package().to_owned();
            for message in file.message_type {
                index(&package, message, &mut messages);
            }
        }
    }
    for (name, message) in ALL {
        compare(name, message, &messages);
    }
}

fn index(scope: &str, message: DescriptorProto, all: &mut BTreeMap<String, DescriptorProto>) {
    let name = format!("{scope}.{}", message.name());
    for inner in &message.nested_type {
        index(&name, inner.clone(), all);
    }
    all.insert(name, message);
}

fn compare(name: &str, message: &Message, all: &BTreeMap<String, DescriptorProto>) {
    // Of a message that is rejected as a whole, or of which only the table knows the fields, there is no type.
    let Some(described) = all.get(name) else {
        return;
    };
    let known = |number: u32| {
        let mut fields = described.field.iter();
        fields.find(|field| field.number() == i32::try_from(number).unwrap())
    };
    for (number, field, _) in message.rejected {
        assert!(known(*number).is_none(), "{name}.{field} is in the types");
    }
    for (number, field, inner) in message.nested {
        let Some(found) = known(*number) else {
            continue;
        };
        assert_eq!(field.trim_end_matches("[]"), found.name(), "{name}");
        let repeated = found.label() == Label::Repeated;
        assert_eq!(field.ends_with("[]"), repeated, "{name}.{field}");
        compare(found.type_name().trim_start_matches('.'), inner, all);
    }
}
