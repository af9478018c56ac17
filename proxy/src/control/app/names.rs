//! Endpoints that are DNS names, and the tasks that resolve them.

use std::sync::Arc;

use maglor_config as config;

use super::{App, ApplyError};
use crate::upstream::Resolver;

impl App {
    /// Reads the system's resolver configuration, the first time that there are names to resolve.
    ///
    /// # Errors
    /// If the resolver configuration cannot be read.
    pub(super) fn need_resolver(&mut self) -> Result<(), ApplyError> {
        if self.resolver.is_none() {
            let resolver = Resolver::new().map_err(|e| ApplyError::Resolver(e.to_string()))?;
            self.resolver = Some(resolver);
        }
        Ok(())
    }

    /// Restarts the resolution of the names of all clusters.
    pub(super) fn resolve(&mut self) {
        self.resolving.drain(..).for_each(|task| task.abort());
        let Some(resolver) = &self.resolver else {
            return;
        };
        let clusters = self.clusters.iter();
        for cluster in clusters.filter(|cluster| has_names(&cluster.described())) {
            let follow = resolver
                .clone()
                .follow(Arc::clone(cluster), Arc::clone(&self.shared));
            self.resolving
                .push(tokio::task::spawn_local(follow).abort_handle());
        }
    }
}

/// Returns whether some endpoints are DNS names.
pub(super) fn has_names(endpoints: &[config::Endpoint]) -> bool {
    let is_name = |endpoint: &config::Endpoint| {
        matches!(endpoint.address, config::EndpointAddress::Dns { .. })
    };
    endpoints.iter().any(is_name)
}
