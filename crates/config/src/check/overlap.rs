//! Detects sockets with the same address. With `SO_REUSEPORT` the kernel reports no error, but distributes connections
//! among them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::rule::Unique;
use crate::report::{At, Step};
use crate::{Address, Admin, Listener};

const ANY_V4: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const ANY_V6: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Compares all listeners and the admin server.
pub(super) fn check(listeners: &[(usize, Listener)], admin: Option<&Admin>, at: &At<'_>) {
    let (mut sockets, mut paths) = (Sockets::default(), Unique::default());
    let list = at.field("listeners");
    for (i, listener) in listeners {
        let (at, owner) = (list.index(*i), format!("the listener `{}`", listener.name));
        let at = at.field("address");
        match &listener.address {
            Address::Ip(address) => sockets.add(*address, owner, &at),
            Address::Unix(path) => {
                paths.check(&path.to_string(), &at, "the Unix socket");
            }
        }
    }
    if let Some(admin) = admin {
        let at = at.field("admin");
        sockets.add(
            admin.address,
            "the admin server".into(),
            &at.field("address"),
        );
    }
}

/// The owner of a socket, and its position in the file.
struct Taken {
    ip: IpAddr,
    address: SocketAddr,
    owner: String,
    path: Vec<Step>,
}

#[derive(Default)]
struct Sockets {
    by_address: HashMap<(u16, IpAddr), usize>,
    /// The first IPv4 address of a port, and the first address of either family.
    first_v4: HashMap<u16, usize>,
    first: HashMap<u16, usize>,
    taken: Vec<Taken>,
}

impl Sockets {
    fn add(&mut self, address: SocketAddr, owner: String, at: &At<'_>) {
        let (port, ip) = (address.port(), address.ip().to_canonical());
        if port == 0 {
            return;
        }
        if let Some(rival) = self.rival(port, ip) {
            let (other, owner) = (rival.address, &rival.owner);
            at.error(format!("{address} overlaps {other} of {owner}"))
                .other(rival.path.clone(), "the other address is defined")
                .help("use different ports, or different IP addresses");
            return;
        }
        let (index, path) = (self.taken.len(), at.path());
        self.by_address.insert((port, ip), index);
        self.first.entry(port).or_insert(index);
        if ip.is_ipv4() {
            self.first_v4.entry(port).or_insert(index);
        }
        self.taken.push(Taken {
            ip,
            address,
            owner,
            path,
        });
    }

    /// Returns a socket with a conflicting address. `0.0.0.0` accepts connections to every IPv4 address, `[::]` to
    /// every address.
    fn rival(&self, port: u16, ip: IpAddr) -> Option<&Taken> {
        let same = |ip| self.by_address.get(&(port, ip));
        let index = same(ip)
            .or_else(|| same(ANY_V6))
            .or_else(|| if ip.is_ipv4() { same(ANY_V4) } else { None })
            .or_else(|| match ip {
                ANY_V6 => self.first.get(&port),
                ANY_V4 => self.first_v4.get(&port),
                _ => None,
            })?;
        let rival = self.taken.get(*index);
        debug_assert!(
            rival.is_none_or(|r| r.ip == ip || r.ip.is_unspecified() || ip.is_unspecified())
        );
        rival
    }
}
