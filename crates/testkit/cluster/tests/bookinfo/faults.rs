//! Istio's task "Fault Injection". Version 2 of the reviews waits 10 s for ratings, but the page only twice 3 s for
//! reviews: the defect that the task shows. Version 3 waits 2.5 s.

use crate::page::Reviews;
use crate::run::{Run, settle};

const TASK: &str = "fault-injection";
const DELAY: &str = "networking/virtual-service-ratings-test-delay.yaml";

pub(crate) fn a_delay_shows_the_defect(run: &mut Run) {
    run.apply("networking/virtual-service-all-v1.yaml");
    run.apply("networking/virtual-service-reviews-test-v2.yaml");
    let jason = run.browser_of("jason");
    settle("jason goes to v2", || {
        jason.page().shows(Reviews::BlackStars)
    });
    run.apply(DELAY);
    settle("the delay is in force", || {
        !jason.page().shows(Reviews::BlackStars)
    });
    let (page, others) = (jason.page(), run.browser().pages(20));
    let step = (
        "`virtual-service-ratings-test-delay.yaml`, user `jason`",
        "\"Error fetching product reviews\" after about 6 s",
    );
    run.shows_after(TASK, step, &page, (Reviews::Unavailable, 6.0, 7.0));
    let step = ("the same, other users", "no delay");
    run.all_show(TASK, step, &others, Reviews::NoStars);
}

/// The same file with a delay of 2 s, as the task suggests.
pub(crate) fn the_fixed_version_tolerates_a_delay(run: &mut Run) {
    run.apply("networking/virtual-service-reviews-v3.yaml");
    let text = run.application.text(DELAY);
    assert!(text.contains("fixedDelay: 7s"));
    run.kubectl()
        .apply(&text.replace("fixedDelay: 7s", "fixedDelay: 2s"))
        .unwrap();
    let jason = run.browser_of("jason");
    settle("jason goes to v3", || jason.page().shows(Reviews::RedStars));
    settle("the delay is shorter", || {
        jason.page().time.as_secs_f64() > 1.9
    });
    let page = jason.page();
    let step = (
        "`virtual-service-reviews-v3.yaml`, delay 2 s, user `jason`",
        "no error, although there is a delay",
    );
    run.shows_after(TASK, step, &page, (Reviews::RedStars, 2.0, 3.0));
}

pub(crate) fn an_abort_reaches_one_user(run: &mut Run) {
    run.apply("networking/virtual-service-reviews-test-v2.yaml");
    run.apply("networking/virtual-service-ratings-test-abort.yaml");
    let jason = run.browser_of("jason");
    settle("the abort is in force", || {
        jason.page().shows(Reviews::WithoutRatings) && run.browser().page().shows(Reviews::NoStars)
    });
    let (pages, others) = (jason.pages(20), run.browser().pages(20));
    let step = (
        "`virtual-service-ratings-test-abort.yaml`, user `jason`",
        "\"Ratings service is currently unavailable\" immediately",
    );
    run.all_show(TASK, step, &pages, Reviews::WithoutRatings);
    let step = ("the same, other users", "no error");
    run.all_show(TASK, step, &others, Reviews::NoStars);
}

/// A file of the sample that no task uses.
pub(crate) fn details_fail(run: &mut Run) {
    run.apply("networking/fault-injection-details-v1.yaml");
    settle("the details are gone", || !run.browser().page().details);
    let (page, product) = (run.browser().page(), run.browser().get("api/v1/products/0"));
    let error = page.body.contains("Error fetching product details");
    let holds = error && product.status == Some(555) && page.reviews == Reviews::NoStars;
    let step = (
        "`fault-injection-details-v1.yaml`",
        "the sample: details fail with status 555",
    );
    let seen = format!("{page}; details: {product}");
    run.findings.add(TASK, step, seen, holds);
    run.apply("networking/virtual-service-all-v1.yaml");
    run.apply("networking/destination-rule-all-mtls.yaml");
    settle("the details are back", || run.browser().page().details);
}
