//! The step that is due, and whether what the status says meanwhile is so.

use maglor_controller::proxy_service::{Observed, Progress, Step, next};

/// The next step for what is seen. Where requests go through proxies, only what sends them elsewhere may say so.
pub(crate) fn due(seen: &Observed) -> Option<Step> {
    let next = next(seen);
    let proxied = seen.selected().is_some_and(|selected| selected.proxied);
    let stays = proxied && !matches!(next.step, Some(Step::Restore(_)));
    if let Progress::Failing(rollout) | Progress::Starting(rollout) = &next.progress {
        assert!(!stays || rollout.available == 0, "{next:?}");
    }
    next.step
}
