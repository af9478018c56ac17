//! The rules of the redirection, and their text format.
//!
//! The kernel runs the nat hooks for the first packet of each connection only, so the number of rules does not affect
//! later packets. Within a chain the first matching rule determines the verdict.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{PortRange, REMOVAL, Settings};

/// Name of the table, whose family is `inet`.
pub(super) const TABLE: &str = "maglor";
/// Priority at which destinations are translated; `dstnat` in nftables.
pub(super) const PRIORITY: i32 = -100;
/// Destinations that stay with the application.
const LOOPBACK: [IpNet; 2] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128)),
];

/// The table's chains.
#[derive(Clone, Debug)]
pub(super) struct Ruleset {
    pub(super) chains: Vec<Chain>,
}

/// A chain at one of the kernel's hooks. Connections that match no rule are not changed.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    pub(super) name: &'static str,
    pub(super) hook: Hook,
    pub(super) rules: Vec<Rule>,
}

/// Hook of the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Hook {
    /// Connections opened on this host.
    Output,
    /// Incoming connections.
    Prerouting,
}

/// A rule: a verdict for connections that meet all conditions.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) matches: Vec<Match>,
    pub(super) verdict: Verdict,
    /// Comment that the kernel stores with the rule and `nft list ruleset` shows.
    pub(super) comment: &'static str,
}

/// A condition on a connection's first packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Match {
    /// The destination is in the network.
    Destination(IpNet),
    /// The destination is one of these TCP ports.
    DestinationPort(PortRange),
    /// The packet arrives over the loopback interface.
    FromLoopback,
    /// The sending socket belongs to the group.
    Gid(u32),
    /// The destination is not in the network, but of the same address family.
    NotDestination(IpNet),
    /// The source is in the network.
    Source(IpNet),
    /// The protocol is TCP.
    Tcp,
    /// The packet leaves over the loopback interface.
    ToLoopback,
    /// The sending socket belongs to the user.
    Uid(u32),
}

/// Verdict of a rule.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    /// Redirect to this port of the proxy.
    Redirect(u16),
    /// Do not change the connection.
    Return,
}

impl Ruleset {
    pub(super) fn new(settings: &Settings) -> Self {
        let owners: Vec<Match> = [
            settings.proxy_uid.map(Match::Uid),
            settings.proxy_gid.map(Match::Gid),
        ]
        .into_iter()
        .flatten()
        .collect();
        let chains = [
            Chain {
                name: "inbound",
                hook: Hook::Prerouting,
                rules: inbound(settings),
            },
            Chain {
                name: "outbound",
                hook: Hook::Output,
                rules: outbound(settings, &owners),
            },
        ];
        let used = chains.into_iter().filter(|chain| !chain.rules.is_empty());
        Self {
            chains: used.collect(),
        }
    }

    /// Returns the chain and comment of each rule, in order; they identify a ruleset.
    pub(super) fn comments(&self) -> Vec<(String, String)> {
        let each = self.chains.iter().flat_map(|chain| {
            let rules = chain.rules.iter();
            rules.map(|rule| (chain.name.to_owned(), rule.comment.to_owned()))
        });
        each.collect()
    }
}

fn inbound(settings: &Settings) -> Vec<Rule> {
    let Some(port) = settings.inbound_port else {
        return Vec::new();
    };
    let mut rules = vec![rule([Match::FromLoopback], Verdict::Return, "loopback")];
    let ports = settings.skip_inbound_ports.iter();
    rules.extend(ports.map(|&ports| skip_port([Match::DestinationPort(ports)])));
    let subnets = settings.skip_subnets.iter();
    rules.extend(subnets.map(|&net| skip_subnet(Match::Source(net))));
    rules.push(rule(
        [Match::Tcp],
        Verdict::Redirect(port),
        "to the inbound listener",
    ));
    rules
}

fn outbound(settings: &Settings, owners: &[Match]) -> Vec<Rule> {
    let mut rules = Vec::new();
    if let Some(port) = settings.inbound_port {
        rules.extend(to_itself(port, settings, owners));
    }
    let Some(port) = settings.outbound_port else {
        return rules;
    };
    let own = owners.iter();
    rules.extend(own.map(|&owner| rule([owner], Verdict::Return, "the proxy's own")));
    rules.push(rule([Match::ToLoopback], Verdict::Return, "loopback"));
    let ports = settings.skip_outbound_ports.iter();
    rules.extend(ports.map(|&ports| skip_port([Match::DestinationPort(ports)])));
    let subnets = settings.skip_subnets.iter();
    rules.extend(subnets.map(|&net| skip_subnet(Match::Destination(net))));
    rules.push(rule(
        [Match::Tcp],
        Verdict::Redirect(port),
        "to the outbound listener",
    ));
    rules
}

/// Returns rules for connections of the proxy to its own host, which it may choose as the server for its
/// application's request. Such a connection uses the host's address and mutual TLS like those to any other server, so
/// it has to reach the inbound listener like those from other hosts.
fn to_itself(port: u16, settings: &Settings, owners: &[Match]) -> Vec<Rule> {
    if owners.is_empty() {
        return Vec::new();
    }
    let ports = settings.skip_inbound_ports.iter();
    let mut rules: Vec<_> = ports
        .map(|&ports| skip_port([Match::ToLoopback, Match::DestinationPort(ports)]))
        .collect();
    for &owner in owners {
        rules.extend(LOOPBACK.map(|own| {
            rule(
                [
                    owner,
                    Match::ToLoopback,
                    Match::NotDestination(own),
                    Match::Tcp,
                ],
                Verdict::Redirect(port),
                "to this host by way of the proxy",
            )
        }));
    }
    rules
}

fn skip_port(matches: impl Into<Vec<Match>>) -> Rule {
    rule(matches, Verdict::Return, "skipped port")
}

fn skip_subnet(subnet: Match) -> Rule {
    rule([subnet], Verdict::Return, "skipped subnet")
}

fn rule(matches: impl Into<Vec<Match>>, verdict: Verdict, comment: &'static str) -> Rule {
    Rule {
        matches: matches.into(),
        verdict,
        comment,
    }
}

impl fmt::Display for Ruleset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{REMOVAL}table inet {TABLE} {{")?;
        for (i, chain) in self.chains.iter().enumerate() {
            let gap = if i == 0 { "" } else { "\n" };
            writeln!(f, "{gap}\n\tchain {} {{", chain.name)?;
            writeln!(f, "\t\t{}", chain.hook)?;
            for rule in &chain.rules {
                writeln!(f, "\t\t{rule}")?;
            }
            write!(f, "\t}}")?;
        }
        writeln!(f, "\n}}")
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `dstnat` is a name for -100 in only one of the two hooks.
        let (hook, priority) = match self {
            Self::Output => ("output", "-100"),
            Self::Prerouting => ("prerouting", "dstnat"),
        };
        write!(
            f,
            "type nat hook {hook} priority {priority}; policy accept;"
        )
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for condition in &self.matches {
            write!(f, "{condition} ")?;
        }
        match self.verdict {
            Verdict::Redirect(port) => write!(f, "redirect to :{port}")?,
            Verdict::Return => f.write_str("return")?,
        }
        write!(f, " comment \"{}\"", self.comment)
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Destination(net) => write!(f, "{} daddr {}", family(net), shown(net)),
            Self::DestinationPort(ports) => write!(f, "tcp dport {ports}"),
            Self::FromLoopback => f.write_str("iif \"lo\""),
            Self::Gid(gid) => write!(f, "meta skgid {gid}"),
            Self::NotDestination(net) => write!(f, "{} daddr != {}", family(net), shown(net)),
            Self::Source(net) => write!(f, "{} saddr {}", family(net), shown(net)),
            Self::Tcp => f.write_str("meta l4proto tcp"),
            Self::ToLoopback => f.write_str("oif \"lo\""),
            Self::Uid(uid) => write!(f, "meta skuid {uid}"),
        }
    }
}

fn family(net: &IpNet) -> &'static str {
    match net {
        IpNet::V4(_) => "ip",
        IpNet::V6(_) => "ip6",
    }
}

/// Formats a single address without its prefix length, as nftables lists it.
fn shown(net: &IpNet) -> String {
    match net.prefix_len() == net.max_prefix_len() {
        true => net.addr().to_string(),
        false => net.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rules_in_their_order() {
        let settings = Settings {
            inbound_port: Some(15006),
            outbound_port: Some(15001),
            proxy_uid: Some(2102),
            proxy_gid: Some(2103),
            skip_inbound_ports: vec!["22".parse().unwrap()],
            skip_outbound_ports: vec!["8000-8010".parse().unwrap()],
            skip_subnets: vec![
                "10.9.0.0/16".parse().unwrap(),
                "fd00::1/128".parse().unwrap(),
            ],
        };
        let expected = r#"table inet maglor
delete table inet maglor
table inet maglor {
	chain inbound {
		type nat hook prerouting priority dstnat; policy accept;
		iif "lo" return comment "loopback"
		tcp dport 22 return comment "skipped port"
		ip saddr 10.9.0.0/16 return comment "skipped subnet"
		ip6 saddr fd00::1 return comment "skipped subnet"
		meta l4proto tcp redirect to :15006 comment "to the inbound listener"
	}

	chain outbound {
		type nat hook output priority -100; policy accept;
		oif "lo" tcp dport 22 return comment "skipped port"
		meta skuid 2102 oif "lo" ip daddr != 127.0.0.0/8 meta l4proto tcp redirect to :15006 comment "to this host by way of the proxy"
		meta skuid 2102 oif "lo" ip6 daddr != ::1 meta l4proto tcp redirect to :15006 comment "to this host by way of the proxy"
		meta skgid 2103 oif "lo" ip daddr != 127.0.0.0/8 meta l4proto tcp redirect to :15006 comment "to this host by way of the proxy"
		meta skgid 2103 oif "lo" ip6 daddr != ::1 meta l4proto tcp redirect to :15006 comment "to this host by way of the proxy"
		meta skuid 2102 return comment "the proxy's own"
		meta skgid 2103 return comment "the proxy's own"
		oif "lo" return comment "loopback"
		tcp dport 8000-8010 return comment "skipped port"
		ip daddr 10.9.0.0/16 return comment "skipped subnet"
		ip6 daddr fd00::1 return comment "skipped subnet"
		meta l4proto tcp redirect to :15001 comment "to the outbound listener"
	}
}
"#;
        assert_eq!(Ruleset::new(&settings).to_string(), expected);
    }

    #[test]
    fn one_direction_alone() {
        let only = |inbound, outbound| {
            let settings = Settings {
                inbound_port: inbound,
                outbound_port: outbound,
                proxy_uid: outbound.map(|_| 2102),
                ..Settings::default()
            };
            Ruleset::new(&settings)
        };
        let chains = |set: &Ruleset| set.chains.iter().map(|c| c.name).collect::<Vec<_>>();
        assert_eq!(chains(&only(Some(1), None)), ["inbound"]);
        assert_eq!(chains(&only(None, Some(1))), ["outbound"]);
        assert_eq!(only(None, Some(1)).chains[0].rules.len(), 3);
    }
}
