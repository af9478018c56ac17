//! The network between machines.
//!
//! ```text
//! control ── bridge ──┬── veth ── node-1 ── bridge `pods` ── pods
//!                     └── veth ── node-2 ── …
//! ```
//!
//! No machine has a default route, and the host has no route to any of them: a packet to an address
//! that no longer exists is dropped. With a delay, packets between nodes leave by [`crate::cluster::delay`]
//! instead of the bridge.

use std::fmt::Write as _;

use crate::cluster::addresses::{self, CONTROL, SERVICES};
use crate::cluster::delay::TUN;
use crate::cluster::error::ClusterError;
use crate::cluster::machine::Machine;

/// Attaches the control plane's end of every veth pair.
pub(crate) fn wire_control(control: &Machine) -> Result<(), ClusterError> {
    control.ip(&format!(
        "link add name machines type bridge\n\
         address add {CONTROL}/24 dev machines\n\
         link set machines up\n"
    ))
}

/// Connects a node to the control plane's machine.
pub(crate) fn wire_node(control: &Machine, node: &Machine, index: u8) -> Result<(), ClusterError> {
    let address = addresses::node(index);
    control.ip(&format!(
        "link add name {name} type veth peer name eth0 netns {init}\n\
         link set {name} master machines up\n",
        name = node.name(),
        init = node.init(),
    ))?;
    // Service addresses are translated before they reach an interface, but a route has to exist first.
    node.ip(&format!(
        "address add {address}/24 dev eth0\n\
         link set eth0 up\n\
         route add {SERVICES} dev eth0\n"
    ))?;
    control.ip(&format!(
        "route add {} via {address}\n",
        addresses::pods(index)
    ))
}

/// Adds routes to the pods of other nodes, over the bridge or the node's delay line.
pub(crate) fn route_to_others(
    node: &Machine,
    index: u8,
    nodes: u8,
    delayed: bool,
) -> Result<(), ClusterError> {
    let own = addresses::node(index);
    let mut lines = String::new();
    for other in (1..=nodes).filter(|other| *other != index) {
        let (address, pods) = (addresses::node(other), addresses::pods(other));
        // Writing to a string cannot fail.
        let _ = if delayed {
            writeln!(
                lines,
                "route add {address} dev {TUN} src {own}\nroute add {pods} dev {TUN} src {own}"
            )
        } else {
            writeln!(lines, "route add {pods} via {address}")
        };
    }
    node.ip(&lines)
}
