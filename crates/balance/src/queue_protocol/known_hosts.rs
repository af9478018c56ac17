//! What a balancer knows of the hosts of ledgers or boards that it queries.

use std::sync::Arc;

use super::{AnswerTimeout, Groups, Name, Trust};
use crate::View;

/// What a balancer knows of the hosts of groups. It outlives the view.
#[derive(Debug, Default)]
pub struct KnownHosts {
    /// The timeout of queries to hosts.
    pub timeout: Arc<AnswerTimeout>,
    /// The timeout of queries by the policy's fallback.
    pub probe: Arc<AnswerTimeout>,
    /// The trust in the host of each group, with the name of the host.
    trust: Box<[(Name, Arc<Trust>)]>,
}

impl KnownHosts {
    /// Creates the state for a view; the state of hosts that are in `previous` is kept.
    #[must_use]
    pub fn new(view: &View, groups: &Groups, previous: Option<&Self>) -> Self {
        let trust = (0..groups.len() as u32).filter_map(|group| {
            let host = view.endpoint(groups.host(group)?)?;
            let name = Name::of(&host.key);
            let known = previous.and_then(|previous| previous.of(name));
            Some((name, known.unwrap_or_default()))
        });
        Self {
            trust: trust.collect(),
            timeout: previous.map_or_else(Arc::default, |one| Arc::clone(&one.timeout)),
            probe: previous.map_or_else(Arc::default, |one| Arc::clone(&one.probe)),
        }
    }

    /// Returns the trust in the host of a group.
    #[must_use]
    pub fn trust(&self, group: u32) -> Option<&Trust> {
        let (_, trust) = self.trust.get(group as usize)?;
        Some(trust)
    }

    fn of(&self, host: Name) -> Option<Arc<Trust>> {
        let known = self.trust.iter().find(|(name, _)| *name == host);
        known.map(|(_, trust)| Arc::clone(trust))
    }
}
