//! Istio's tasks "Request Routing" and "Traffic Shifting".

use crate::findings::interval;
use crate::page::Reviews;
use crate::run::{Run, settle};

const ROUTING: &str = "request-routing";
const SHIFTING: &str = "traffic-shifting";

/// Pages for which all must be the same.
const ALL: usize = 20;
/// Pages for a share.
const MANY: usize = 400;

/// Without a rule, requests go to all versions.
pub(crate) fn versions_take_turns(run: &mut Run) {
    let pages = run.browser().pages(60);
    let count = |reviews| pages.iter().filter(|page| page.shows(reviews)).count();
    let seen =
        [Reviews::NoStars, Reviews::BlackStars, Reviews::RedStars].map(|one| (one, count(one)));
    let whole = seen.iter().map(|(_, count)| count).sum::<usize>() == pages.len();
    let text: Vec<_> = seen
        .iter()
        .map(|(what, count)| format!("{count} × {what}"))
        .collect();
    let step = ("no rule", "requests go to all versions in turns");
    let holds = whole && seen.iter().all(|(_, count)| *count > 0);
    run.findings.add(ROUTING, step, text.join(", "), holds);
}

pub(crate) fn all_requests_go_to_one_version(run: &mut Run) {
    run.apply("networking/virtual-service-all-v1.yaml");
    settled_on(run, "requests go to v1", Reviews::NoStars);
    let pages = run.browser().pages(ALL);
    let step = (
        "`virtual-service-all-v1.yaml`",
        "no stars, however often the page is loaded",
    );
    run.all_show(ROUTING, step, &pages, Reviews::NoStars);
}

pub(crate) fn a_user_goes_to_another_version(run: &mut Run) {
    run.apply("networking/virtual-service-reviews-test-v2.yaml");
    let jason = run.browser_of("jason");
    settle("jason goes to v2", || {
        jason.page().shows(Reviews::BlackStars)
    });
    let pages = [
        jason.pages(ALL),
        run.browser_of("izzy").pages(ALL),
        run.browser().pages(ALL),
    ];
    let file = "`virtual-service-reviews-test-v2.yaml`";
    let step = (
        format!("{file}, user `jason`"),
        "stars appear next to each review",
    );
    run.all_show(ROUTING, (&step.0, step.1), &pages[0], Reviews::BlackStars);
    let step = (format!("{file}, another user"), "the stars are gone");
    run.all_show(ROUTING, (&step.0, step.1), &pages[1], Reviews::NoStars);
    let step = (format!("{file}, no user"), "no stars");
    run.all_show(ROUTING, (&step.0, step.1), &pages[2], Reviews::NoStars);
}

/// Half of the requests to another version, a tenth of them, then all.
pub(crate) fn requests_are_split(run: &mut Run) {
    run.apply("networking/virtual-service-all-v1.yaml");
    settled_on(run, "requests go to v1", Reviews::NoStars);
    let step = (
        "`virtual-service-reviews-50-v3.yaml`",
        "red stars 50 % of the time, otherwise none",
    );
    share(run, step, Reviews::RedStars, 0.5);
    let step = (
        "`virtual-service-reviews-90-10.yaml`",
        "10 % to v2: black stars, otherwise none",
    );
    share(run, step, Reviews::BlackStars, 0.1);
    run.apply("networking/virtual-service-reviews-v3.yaml");
    settled_on(run, "requests go to v3", Reviews::RedStars);
    let pages = run.browser().pages(ALL);
    let step = ("`virtual-service-reviews-v3.yaml`", "always red stars");
    run.all_show(SHIFTING, step, &pages, Reviews::RedStars);
}

/// Waits until a few pages in a row show the same.
fn settled_on(run: &Run, what: &str, reviews: Reviews) {
    settle(what, || {
        let pages = run.browser().pages(5);
        pages.iter().all(|page| page.shows(reviews))
    });
}

/// A step in which a share of pages shows stars, and the others none.
fn share(run: &mut Run, step: (&str, &str), stars: Reviews, expected: f64) {
    let file = step.0.trim_matches('`');
    run.apply(&format!("networking/{file}"));
    settle("the other version is seen", || {
        run.browser().page().shows(stars)
    });
    let pages = run.browser().pages(MANY);
    let count = |reviews| pages.iter().filter(|page| page.shows(reviews)).count();
    let (with, without) = (count(stars), count(Reviews::NoStars));
    let (low, high) = interval(with, MANY);
    let seen = format!(
        "{with} × {stars}, {without} × no stars of {MANY}: {:.1} %, 99.9 % interval {:.1} to {:.1} %",
        with as f64 / MANY as f64 * 100.0,
        low * 100.0,
        high * 100.0
    );
    let holds = with + without == MANY && (low..high).contains(&expected);
    run.findings.add(SHIFTING, step, seen, holds);
}
