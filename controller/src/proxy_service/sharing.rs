//! The ports on which shared proxies listen: each acknowledges its configuration to the controller replica that it is
//! connected to.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::replicas::Replicas;
use crate::serve::{SharedProxy, Table};

/// Who can be asked.
pub(super) struct Sharing {
    replicas: Replicas,
    table: Table,
}

impl Sharing {
    pub(super) fn new(replicas: Replicas, table: Table) -> Self {
        Self { replicas, table }
    }

    /// Ports by `NAMESPACE/POD`, as far as replicas answer: a proxy of which nothing is heard is waited for.
    pub(super) async fn listening(&self) -> BTreeMap<String, BTreeSet<u16>> {
        let others = self.replicas.ask::<Vec<SharedProxy>>("/shared").await;
        let others = others.map(|others| others.all).unwrap_or_default();
        let all = others
            .into_iter()
            .flatten()
            .chain(self.table.shared_proxies());
        all.map(|one| (one.proxy, one.ports)).collect()
    }
}
