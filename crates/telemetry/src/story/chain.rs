//! The stories of several proxies about one request: the caller's sidecar, the server's, and those of further calls.

use super::Story;
use super::cause::explain;
use super::kind::Cause;

/// Sorts the stories of one request from the outermost proxy to the innermost, and explains the whole: where a proxy
/// waited for an endpoint, the proxy of that endpoint has the rest of the answer.
#[must_use]
pub fn explain_all(stories: &mut [Story]) -> Option<Cause> {
    // The outer of two proxies waits for the inner one.
    stories.sort_by(|a, b| {
        let total = |story: &Story| story.times.total_ms;
        total(b).total_cmp(&total(a))
    });
    let mut causes = stories.iter().map(explain);
    let mut cause = causes.next()?;
    for inner in causes {
        if !cause.kind.is_of_endpoint() {
            break;
        }
        cause = Cause {
            kind: inner.kind,
            sentence: format!("{}; there, {}", cause.sentence, inner.sentence),
        };
    }
    Some(cause)
}

#[cfg(test)]
mod tests {
    use super::super::{CauseKind, Request, Times};
    use super::*;

    fn story(flag: &str, status: u16, total_ms: f64) -> Story {
        Story {
            flag: flag.to_owned(),
            request: Some(Request {
                status,
                ..Request::default()
            }),
            times: Times {
                total_ms,
                ..Times::default()
            },
            ..Story::default()
        }
    }

    #[test]
    fn the_endpoints_proxy_says_what_its_caller_cannot_see() {
        let mut outer = story("-", 429, 3.0);
        outer.attempts = vec![super::super::Attempt {
            endpoint: "10.0.0.7:80".into(),
            status: Some(429),
            answered: true,
            outcome: "status".into(),
            ..Default::default()
        }];
        outer.times.first_byte_ms = Some(3.0);
        let inner = story("RL", 429, 1.0);
        let cause = explain_all(&mut [inner.clone(), outer]).unwrap();
        assert_eq!(cause.kind, CauseKind::RateLimited);
        assert!(cause.sentence.contains("; there, "), "{}", cause.sentence);
        // A proxy that did not wait for an endpoint needs no other story.
        let outer = story("UO", 503, 9.0);
        let cause = explain_all(&mut [inner, outer]).unwrap();
        assert!(!cause.sentence.contains("there"), "{}", cause.sentence);
    }

    #[test]
    fn without_stories_there_is_no_cause() {
        assert_eq!(explain_all(&mut []), None);
    }
}
