//! Validates TCP filters.

use super::Scope;
use super::rule::{self, DAY, HOUR, MILLISECOND};
use crate::report::At;
use crate::{TcpFilter, raw};

/// Validates a TCP filter; `discovers` is whether the control plane provides the cluster.
pub(super) fn filter(raw: &raw::Tcp, discovers: bool, at: &At<'_>, scope: &Scope<'_>) -> TcpFilter {
    match &raw.cluster {
        Some(name) => {
            scope.resolve_cluster(name, &at.field("cluster"));
        }
        None if discovers => {}
        None => at.missing("cluster", "write `cluster: NAME`"),
    }
    TcpFilter {
        cluster: raw.cluster.as_deref().unwrap_or_default().into(),
        idle_timeout: rule::time(
            raw.idle_timeout,
            &at.field("idle_timeout"),
            HOUR,
            MILLISECOND..=30 * DAY,
        ),
    }
}
