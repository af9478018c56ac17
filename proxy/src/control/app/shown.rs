//! State that the admin pages show to operators.

use std::sync::Arc;

use maglor_config::Address;

use super::App;
use crate::routing::listener::Listener;

impl App {
    /// Returns the current configuration as YAML.
    pub(crate) fn yaml(&self) -> &str {
        &self.yaml
    }

    /// Returns the name and bound address of each listener.
    pub(crate) fn addresses(&self) -> Vec<(Arc<str>, Address)> {
        let mut all: Vec<_> = self
            .listening
            .values()
            .map(|listening| {
                (
                    Arc::clone(&listening.state.borrow().config.name),
                    listening.bound.clone(),
                )
            })
            .collect();
        all.sort();
        all
    }

    /// Returns the current listeners and their bound addresses, by name.
    pub(crate) fn listeners(&self) -> Vec<(Arc<Listener>, Address)> {
        let all = self.listening.values();
        let mut all: Vec<_> = all
            .map(|listening| {
                (
                    Arc::clone(&listening.state.borrow()),
                    listening.bound.clone(),
                )
            })
            .collect();
        all.sort_by(|(a, _), (b, _)| a.config.name.cmp(&b.config.name));
        all
    }
}
