//! Istio's task "Request Timeouts", and the retries of a VirtualService.

use std::time::{Duration, Instant};

use crate::findings::interval;
use crate::page::Reviews;
use crate::run::{Run, rolled_out, settle};

const TASK: &str = "request-timeouts";
const RETRIES: &str = "concepts: retries";

/// Pages for a share.
const MANY: usize = 80;
/// The time between pages. At this rate the budget of retries, which Istio does not have, allows all of them: at least
/// three a second.
const PERIOD: Duration = Duration::from_millis(500);

/// The rule of a Service: its only version, and more fields.
fn rule(service: &str, subset: &str, more: &str) -> String {
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: {service}, namespace: default}}, \
         spec: {{hosts: [{service}], http: [{{route: [{{destination: {{host: {service}, subset: {subset}}}}}]{more}}}]}}}}"
    )
}

/// The page calls the reviews twice, so half a second becomes one.
pub(crate) fn a_timeout_is_shorter_than_the_delay(run: &mut Run) {
    let delay = ", fault: {delay: {percentage: {value: 100}, fixedDelay: 2s}}";
    run.kubectl().apply(&rule("reviews", "v2", "")).unwrap();
    run.kubectl().apply(&rule("ratings", "v1", delay)).unwrap();
    settle("the delay is in force", || {
        let page = run.browser().page();
        page.shows(Reviews::BlackStars) && page.time.as_secs_f64() >= 2.0
    });
    let page = run.browser().page();
    let step = (
        "reviews v2, delay of ratings 2 s",
        "stars are displayed, after a delay of 2 s",
    );
    run.shows_after(TASK, step, &page, (Reviews::BlackStars, 2.0, 3.0));

    run.kubectl()
        .apply(&rule("reviews", "v2", ", timeout: 0.5s"))
        .unwrap();
    settle("the timeout is in force", || {
        run.browser().page().reviews == Reviews::Unavailable
    });
    let page = run.browser().page();
    let step = (
        "the same, and `timeout: 0.5s` of reviews",
        "about 1 s, reviews are unavailable",
    );
    run.shows_after(TASK, step, &page, (Reviews::Unavailable, 1.0, 1.8));
}

/// With the version of the ratings that fails half of its requests with 503.
pub(crate) fn failed_requests_are_retried(run: &mut Run) {
    run.kubectl().apply(&rule("reviews", "v2", "")).unwrap();
    let without = ", retries: {attempts: 0}";
    run.kubectl()
        .apply(&rule("ratings", "v1", without))
        .unwrap();
    run.kubectl()
        .run(&[
            "set",
            "env",
            "deployment/ratings-v1",
            "SERVICE_VERSION=v-faulty",
        ])
        .unwrap();
    rolled_out(run.kubectl());
    settle("ratings fail", || {
        run.browser().page().shows(Reviews::WithoutRatings)
    });
    let failed = pages_without_ratings(run, MANY);
    let step = (
        "ratings `v-faulty`, `retries: {attempts: 0}`",
        "half of the requests for ratings fail",
    );
    share(run, step, failed, 0.5);

    let with = ", retries: {attempts: 3, perTryTimeout: 2s, retryOn: 5xx}";
    run.kubectl().apply(&rule("ratings", "v1", with)).unwrap();
    settle("requests are retried", || {
        pages_without_ratings(run, 8) == 0
    });
    let failed = pages_without_ratings(run, MANY);
    let step = (
        "`retries: {attempts: 3, perTryTimeout: 2s, retryOn: 5xx}`",
        "a request fails if 4 attempts fail, 6 %",
    );
    share(run, step, failed, 0.0625);

    let by_default = ", retries: {attempts: 3, perTryTimeout: 2s}";
    run.kubectl()
        .apply(&rule("ratings", "v1", by_default))
        .unwrap();
    settle("requests are not retried", || {
        pages_without_ratings(run, 8) >= 3
    });
    let failed = pages_without_ratings(run, MANY);
    let step = (
        "the same without `retryOn`",
        "503 is not one of the default conditions: half fail",
    );
    share(run, step, failed, 0.5);

    run.kubectl()
        .run(&["set", "env", "deployment/ratings-v1", "SERVICE_VERSION-"])
        .unwrap();
    rolled_out(run.kubectl());
    run.apply("networking/virtual-service-all-v1.yaml");
}

/// A step with the share of pages that lack ratings.
fn share(run: &mut Run, step: (&str, &str), failed: usize, expected: f64) {
    let (low, high) = interval(failed, MANY);
    let seen = format!(
        "{failed} of {MANY} pages without ratings, 99.9 % interval {:.1} to {:.1} %",
        low * 100.0,
        high * 100.0
    );
    run.findings
        .add(RETRIES, step, seen, (low..high).contains(&expected));
}

/// How many of some pages, one after another at a rate, lack ratings.
fn pages_without_ratings(run: &Run, count: usize) -> usize {
    let (browser, begun) = (run.browser(), Instant::now());
    let page = |at: usize| {
        let due = begun + PERIOD * u32::try_from(at).unwrap();
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        browser.page()
    };
    let pages = (0..count).map(page);
    pages
        .filter(|page| page.reviews == Reviews::WithoutRatings)
        .count()
}
