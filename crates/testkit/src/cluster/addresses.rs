//! Address assignment. Two clusters may use the same addresses: they are in separate networks.
//!
//! | what | where |
//! | --- | --- |
//! | control plane | 10.231.0.1 |
//! | node *i* (from 1) | 10.231.0.(10+*i*) |
//! | pods of node *i* | 10.232.*i*.0/24 |
//! | simulated pods | 10.233.0.0/16 |
//! | Services | 10.96.0.0/16, the API server .0.1, DNS .0.10 |

use std::net::Ipv4Addr;

/// The maximum number of nodes that run containers.
pub(crate) const MOST_NODES: u8 = 16;
/// The address of the control plane's machine.
pub(crate) const CONTROL: Ipv4Addr = Ipv4Addr::new(10, 231, 0, 1);
/// The address range of the pods of all nodes.
pub(crate) const PODS: &str = "10.232.0.0/16";
/// The address range of simulated pods, at which there are no servers.
pub(crate) const SIMULATED_PODS: &str = "10.233.0.0/16";
/// The address range of Services.
pub(crate) const SERVICES: &str = "10.96.0.0/16";
/// The address of the Service `kubernetes`.
pub(crate) const API_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// The address of the Service `kube-dns`.
pub(crate) const DNS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);

/// Returns the address of a node; nodes are counted from 1.
pub(crate) fn node(index: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 231, 0, 10 + index)
}

/// Returns the address range of the pods of a node.
pub(crate) fn pods(index: u8) -> String {
    format!("10.232.{index}.0/24")
}

/// Returns the node that has an address, or whose pods have it; `None` if there is none.
pub(crate) fn owner(address: Ipv4Addr) -> Option<u8> {
    match address.octets() {
        [10, 231, 0, host] => host.checked_sub(10).filter(|index| *index > 0),
        [10, 232, index, _] => Some(index),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_owns_itself_and_its_pods() {
        for index in 1..=MOST_NODES {
            assert_eq!(owner(node(index)), Some(index));
            assert_eq!(owner(Ipv4Addr::new(10, 232, index, 7)), Some(index));
        }
        assert_eq!(owner(CONTROL), None);
        assert_eq!(owner(DNS), None);
        assert_eq!(owner(Ipv4Addr::LOCALHOST), None);
    }
}
