//! Rules in the kernel's representation: a list of expressions that operate on registers
//! (`linux/netfilter/nf_tables.h`), as `nft` sends them for the text of a rule.

use std::net::IpAddr;

use ipnet::IpNet;

use super::PortRange;
use super::attributes::Attributes;
use super::ruleset::{Match, Rule, Verdict};

/// The register of the verdict, and the register for all other values.
const VERDICT_REGISTER: u32 = 0;
const REGISTER: u32 = 1;

/// Index of the loopback interface, the same in every network namespace (`LOOPBACK_IFINDEX`).
const LOOPBACK: u32 = 1;

// `enum nft_list_attributes`, `enum nft_expr_attributes`, `enum nft_data_attributes`.
const LIST_ELEMENT: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;

/// `enum nft_payload_bases`.
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
/// Offset of the destination port in TCP's header (RFC 9293, section 3.1).
const DESTINATION_PORT: u32 = 2;

/// Address families: `NFPROTO_IPV4`, `NFPROTO_IPV6`.
const IPV4: u8 = 2;
const IPV6: u8 = 10;
/// Number of TCP in an IP header.
const TCP: u8 = 6;

/// Key that `meta` loads: `enum nft_meta_keys`.
#[derive(Clone, Copy)]
enum Meta {
    Iif = 4,
    L4Protocol = 16,
    NetfilterProtocol = 15,
    Oif = 5,
    SocketGid = 11,
    SocketUid = 10,
}

/// `enum nft_cmp_ops`.
#[derive(Clone, Copy)]
enum Compare {
    Equal = 0,
    NotEqual = 1,
}

/// The end of a packet's path whose address is compared.
#[derive(Clone, Copy)]
enum End {
    Destination,
    Source,
}

/// Writes the expressions of a rule.
pub(super) fn rule(to: &mut Attributes, rule: &Rule) {
    for condition in &rule.matches {
        matching(to, *condition);
    }
    match rule.verdict {
        Verdict::Redirect(port) => redirect(to, port),
        Verdict::Return => expression(to, "immediate", |data| {
            data.number(1, VERDICT_REGISTER);
            data.nested(2, |data| {
                data.nested(DATA_VERDICT, |verdict| {
                    verdict.number(VERDICT_CODE, libc::NFT_RETURN.cast_unsigned());
                });
            });
        }),
    }
}

fn matching(to: &mut Attributes, condition: Match) {
    // Interfaces and owners are in host byte order, fields of a packet in network byte order.
    let own = |to: &mut Attributes, key, value: u32| {
        meta(to, key);
        compare(to, Compare::Equal, &value.to_ne_bytes());
    };
    match condition {
        Match::Destination(net) => address(to, End::Destination, net, Compare::Equal),
        Match::DestinationPort(ports) => {
            tcp(to);
            port(to, ports);
        }
        Match::FromLoopback => own(to, Meta::Iif, LOOPBACK),
        Match::Gid(gid) => own(to, Meta::SocketGid, gid),
        Match::NotDestination(net) => address(to, End::Destination, net, Compare::NotEqual),
        Match::Source(net) => address(to, End::Source, net, Compare::Equal),
        Match::Tcp => tcp(to),
        Match::ToLoopback => own(to, Meta::Oif, LOOPBACK),
        Match::Uid(uid) => own(to, Meta::SocketUid, uid),
    }
}

fn tcp(to: &mut Attributes) {
    meta(to, Meta::L4Protocol);
    compare(to, Compare::Equal, &[TCP]);
}

fn port(to: &mut Attributes, ports: PortRange) {
    payload(to, TRANSPORT_HEADER, DESTINATION_PORT, 2);
    let (first, last) = (ports.first.to_be_bytes(), ports.last.to_be_bytes());
    if first == last {
        return compare(to, Compare::Equal, &first);
    }
    expression(to, "range", |data| {
        data.number(1, REGISTER);
        data.number(2, 0);
        data.nested(3, |from| from.bytes(DATA_VALUE, &first));
        data.nested(4, |until| until.bytes(DATA_VALUE, &last));
    });
}

fn address(to: &mut Attributes, end: End, net: IpNet, operation: Compare) {
    let (family, offset, octets) = match (net.network(), end) {
        (IpAddr::V4(ip), End::Source) => (IPV4, 12, ip.octets().to_vec()),
        (IpAddr::V4(ip), End::Destination) => (IPV4, 16, ip.octets().to_vec()),
        (IpAddr::V6(ip), End::Source) => (IPV6, 8, ip.octets().to_vec()),
        (IpAddr::V6(ip), End::Destination) => (IPV6, 24, ip.octets().to_vec()),
    };
    meta(to, Meta::NetfilterProtocol);
    compare(to, Compare::Equal, &[family]);
    let length = u32::from(net.max_prefix_len() / 8);
    payload(to, NETWORK_HEADER, offset, length);
    if net.prefix_len() < net.max_prefix_len() {
        let mask = match net.netmask() {
            IpAddr::V4(mask) => mask.octets().to_vec(),
            IpAddr::V6(mask) => mask.octets().to_vec(),
        };
        expression(to, "bitwise", |data| {
            data.number(1, REGISTER);
            data.number(2, REGISTER);
            data.number(3, length);
            data.nested(4, |value| value.bytes(DATA_VALUE, &mask));
            data.nested(5, |value| value.bytes(DATA_VALUE, &vec![0; mask.len()]));
        });
    }
    compare(to, operation, &octets);
}

fn meta(to: &mut Attributes, key: Meta) {
    expression(to, "meta", |data| {
        data.number(2, key as u32);
        data.number(1, REGISTER);
    });
}

fn payload(to: &mut Attributes, header: u32, offset: u32, length: u32) {
    expression(to, "payload", |data| {
        data.number(1, REGISTER);
        data.number(2, header);
        data.number(3, offset);
        data.number(4, length);
    });
}

fn compare(to: &mut Attributes, operation: Compare, value: &[u8]) {
    expression(to, "cmp", |data| {
        data.number(1, REGISTER);
        data.number(2, operation as u32);
        data.nested(3, |data| data.bytes(DATA_VALUE, value));
    });
}

fn redirect(to: &mut Attributes, port: u16) {
    expression(to, "immediate", |data| {
        data.number(1, REGISTER);
        data.nested(2, |data| data.bytes(DATA_VALUE, &port.to_be_bytes()));
    });
    expression(to, "redir", |data| data.number(1, REGISTER));
}

fn expression(to: &mut Attributes, name: &str, data: impl FnOnce(&mut Attributes)) {
    to.nested(LIST_ELEMENT, |element| {
        element.text(EXPRESSION_NAME, name);
        element.nested(EXPRESSION_DATA, data);
    });
}
