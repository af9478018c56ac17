//! Fault injection: kills and restarts programs, and isolates nodes.

use crate::cluster::delay::TUN;
use crate::cluster::error::{ClusterError, feed};
use crate::cluster::lifecycle::Cluster;
use crate::cluster::machine::Machine;
use crate::cluster::process::Process;

/// The nftables table that isolates a node. The node's own pods still reach each other.
const TABLE: &str = "inet cut";

impl Cluster {
    /// Kills a program, as a crash would: `etcd`, `kube-apiserver`, `kube-controller-manager`, `kube-scheduler` or
    /// `kwok` of `control`; `containerd`, `kubelet` or `kube-proxy` of a node.
    ///
    /// # Errors
    ///
    /// There is no such machine or program.
    pub fn kill(&mut self, machine: &str, program: &str) -> Result<(), ClusterError> {
        self.process(machine, program)?.kill();
        Ok(())
    }

    /// Restarts a program with its former arguments; kills it first if it is running.
    ///
    /// # Errors
    ///
    /// There is no such machine or program, or the program cannot be started.
    pub fn restart(&mut self, machine: &str, program: &str) -> Result<(), ClusterError> {
        self.process(machine, program)?.restart()
    }

    /// Drops every packet between a node and the other machines, until [`Cluster::mend`] is called.
    ///
    /// # Errors
    ///
    /// There is no such node.
    pub fn cut(&self, node: &str) -> Result<(), ClusterError> {
        let node = self.node(node)?;
        let ways = format!("{{ \"eth0\", \"{TUN}\" }}");
        nft(
            node,
            &format!(
                "table {TABLE} {{\n\
                 chain in {{ type filter hook prerouting priority -400; iifname {ways} drop; }}\n\
                 chain out {{ type filter hook postrouting priority 400; oifname {ways} drop; }}\n\
                 }}\n"
            ),
        )
    }

    /// Ends the isolation of a node by [`Cluster::cut`].
    ///
    /// # Errors
    ///
    /// There is no such node, or it is not isolated.
    pub fn mend(&self, node: &str) -> Result<(), ClusterError> {
        nft(self.node(node)?, &format!("delete table {TABLE}\n"))
    }

    fn node(&self, name: &str) -> Result<&Machine, ClusterError> {
        let mut nodes = self.nodes().iter();
        let node = nodes.find(|node| node.name() == name);
        node.ok_or_else(|| unknown("node", name))
    }

    fn process(&mut self, machine: &str, program: &str) -> Result<&mut Process, ClusterError> {
        let name = Process::name(program, machine);
        let mut processes = self.processes().iter_mut();
        let process = processes.find(|process| process.is(&name));
        process.ok_or_else(|| unknown("program", &name))
    }
}

fn unknown(field: &'static str, name: &str) -> ClusterError {
    ClusterError::Invalid {
        field,
        reason: format!("{name} not found"),
    }
}

fn nft(machine: &Machine, lines: &str) -> Result<(), ClusterError> {
    feed(machine.network_command("nft").args(["-f", "-"]), lines).map(drop)
}
