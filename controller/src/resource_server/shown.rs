//! The table as the dashboard reads it.

use std::sync::Arc;

use maglor_balance::Time;
use maglor_xds::Kind;
use maglor_xds::server::Receipt;

use super::Table;
use crate::discovery_pages;

impl Table {
    /// Returns the most recent changes, newest first, and the present time of the server.
    pub(crate) fn changes(&self) -> (Vec<Receipt>, Time) {
        self.server
            .cache(|cache, now| (discovery_pages::receipts(cache, false), now))
    }

    /// Returns the number of the last change.
    pub(crate) fn last_change(&self) -> u64 {
        self.server.cache(|cache, _| {
            let last = cache.receipts().iter().next_back();
            last.map_or(0, |receipt| receipt.change.0)
        })
    }

    /// Returns the names of the resources of a kind that are published for all clients.
    pub(crate) fn names(&self, kind: Kind) -> Vec<Arc<str>> {
        let names = self.server.cache(|cache, _| {
            let names = cache.names(kind).map(Arc::clone);
            names.collect::<Vec<_>>()
        });
        let shared = names.into_iter().filter(|name| !name.contains('#'));
        shared.collect()
    }
}
