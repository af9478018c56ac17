//! The kept hostile suite against the proxy alone: each case of the tables of `maglor_testkit::hostile` has its
//! expected outcome. `cargo xtask hostile` runs the same cases beside other proxies; see docs/hostile.md.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use maglor_testkit::TIMEOUT;
use maglor_testkit::hostile::{self, Case, Http1, Http2, Recorder, Response};
use support::Web;

/// Runs cases, and names all that fail.
#[track_caller]
fn all(cases: &[Case], mut run: impl FnMut(&Case) -> Result<(), String>) {
    let failed: Vec<_> = cases.iter().filter_map(|case| run(case).err()).collect();
    let count = failed.len();
    assert!(failed.is_empty(), "{count} cases:\n{}", failed.join("\n"));
}

#[test]
fn requests_in_http1() {
    let cases = hostile::http1_requests();
    assert!(cases.len() > 250, "{}", cases.len());
    let origin = Recorder::start();
    let proxy = Web::to([origin.address()]).start();
    all(&cases, |case| {
        let address = proxy.listener("web");
        let seen = Http1::run(case, address, &origin, hostile::patience(case));
        hostile::check_http1(case, &seen)
    });
}

#[test]
fn responses_in_http1() {
    let cases = hostile::http1_responses();
    assert!(cases.len() > 150, "{}", cases.len());
    let origin = Recorder::start();
    let proxy = Web::to([origin.address()]).start();
    all(&cases, |case| {
        let seen = Response::run(case, proxy.listener("web"), &origin, TIMEOUT);
        hostile::check_response(case, &seen)
    });
}

#[test]
fn frames_of_http2() {
    let cases = hostile::http2();
    assert!(cases.len() > 150, "{}", cases.len());
    let origin = Recorder::start();
    let proxy = Web::to([origin.address()]).start();
    all(&cases, |case| {
        let seen = Http2::run(case, proxy.listener("web"), &origin, TIMEOUT);
        hostile::check_http2(case, &seen)
    });
}
