//! What a mesh consists of, apart from its application.

use crate::peer::Peer;

/// The shape of a mesh.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    /// The service that clients call.
    pub(super) entry: String,
    /// The number of proxies that clients go through; 0: clients call instances directly.
    pub(super) entrances: u32,
    /// The policy of sidecars and entrances.
    pub(super) policy: String,
    /// Whether calls go through the sidecar of the caller.
    pub(super) outbound: bool,
    /// Whether calls go through the sidecar of the called instance.
    pub(super) inbound: bool,
    /// Whether inbound sidecars report their queues to balancers; a policy may need it.
    pub(super) collaborates: bool,
    /// An additional proxy before the instances of hosts.
    pub(super) proxy_service: Option<Central>,
    /// The number of processes for the instances: a process has a limit of open files.
    pub(super) processes: u32,
}

/// Proxies before the instances of hosts.
#[derive(Debug, Clone)]
pub(super) struct Central {
    /// Their number before each host; callers take them in turn.
    pub(super) count: u32,
    /// Their policy.
    pub(super) policy: String,
    /// The only hosts with such a proxy, if set.
    pub(super) only: Option<Vec<String>>,
    /// The proxy program, if it differs from the other proxies'.
    pub(super) by: Option<Peer>,
}

impl Central {
    /// Returns one before each host.
    pub(super) fn everywhere(policy: &str) -> Self {
        Self {
            count: 1,
            policy: policy.into(),
            only: None,
            by: None,
        }
    }

    /// Returns whether there is one before this host.
    pub(super) fn is_before(&self, host: &str) -> bool {
        self.only
            .as_ref()
            .is_none_or(|only| only.iter().any(|one| one == host))
    }
}
