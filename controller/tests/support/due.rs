//! The next step, and whether the status is correct before it.

use maglor_controller::proxy_service::{Observed, Progress, Step, next};

/// The next step for an observation. If requests go through proxies, only a step that redirects them may report it.
pub(crate) fn due(seen: &Observed) -> Option<Step> {
    let next = next(seen);
    let proxied = seen.selected().is_some_and(|selected| selected.proxied);
    let stays = proxied && !matches!(next.step, Some(Step::Restore(_)));
    if let Progress::Failing(rollout) | Progress::Starting(rollout) = &next.progress {
        assert!(!stays || rollout.available == 0, "{next:?}");
    }
    next.step
}
