//! Collects the ports on which shared proxies listen. Each proxy acknowledges its configuration to the controller
//! replica to which it is connected.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::replicas::Replicas;
use crate::resource_server::{SharedProxy, Table};

/// Access to this replica's table and to the other replicas.
pub(super) struct Sharing {
    replicas: Replicas,
    table: Table,
}

impl Sharing {
    pub(super) fn new(replicas: Replicas, table: Table) -> Self {
        Self { replicas, table }
    }

    /// Returns the ports by `NAMESPACE/POD`, for replicas that respond. The caller waits for proxies without a
    /// report.
    pub(super) async fn listening(&self) -> BTreeMap<String, BTreeSet<u16>> {
        let others = self.replicas.ask::<Vec<SharedProxy>>("/shared").await;
        let others = others.all.into_iter().flatten();
        let all = others.chain(self.table.shared_proxies());
        all.map(|one| (one.proxy, one.ports)).collect()
    }
}
