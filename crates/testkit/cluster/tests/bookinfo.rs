//! Bookinfo, the sample application of Istio, in a mesh of Maglor: its services in Python, Ruby, JavaScript and Java,
//! configured by Istio's own resources. Each step of Istio's tasks about routing, faults, timeouts, mutual TLS and
//! authorization is followed, and what its documentation describes is compared with what the page shows.
//!
//! Neither the application nor its resources are part of this repository. `cargo xtask bookinfo --app FOLDER --images
//! FOLDER` runs this test; docs/cluster.md describes both folders. Without them it reports that it skips. It needs
//! root, and builds Kubernetes the first time.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "bookinfo/application.rs"]
mod application;
#[path = "bookinfo/authorization.rs"]
mod authorization;
#[path = "bookinfo/faults.rs"]
mod faults;
#[path = "bookinfo/findings.rs"]
mod findings;
#[path = "support/installed.rs"]
#[allow(dead_code, reason = "other tests use all of it")]
mod installed;
#[path = "bookinfo/mutual_tls.rs"]
mod mutual_tls;
#[path = "bookinfo/page.rs"]
mod page;
#[path = "bookinfo/resilience.rs"]
mod resilience;
#[path = "bookinfo/routing.rs"]
mod routing;
#[path = "bookinfo/run.rs"]
mod run;

use application::Application;
use installed::Installed;
use run::Run;

#[test]
#[ignore = "needs the application and its images: cargo xtask bookinfo"]
fn bookinfo_works_as_the_documentation_of_istio_says() {
    let Some(application) = Application::given() else {
        return;
    };
    let Some(installed) = Installed::start("bookinfo", &["gateway.enabled=true"]) else {
        return;
    };
    let mut run = Run::start(installed, application);
    routing::versions_take_turns(&mut run);
    mutual_tls::is_locked_down(&mut run);
    routing::all_requests_go_to_one_version(&mut run);
    routing::a_user_goes_to_another_version(&mut run);
    faults::a_delay_shows_the_defect(&mut run);
    faults::the_fixed_version_tolerates_a_delay(&mut run);
    faults::an_abort_reaches_one_user(&mut run);
    faults::details_fail(&mut run);
    routing::requests_are_split(&mut run);
    resilience::a_timeout_is_shorter_than_the_delay(&mut run);
    resilience::failed_requests_are_retried(&mut run);
    authorization::access_is_granted_step_by_step(&mut run);
    run.resources_are_accepted();
    run.finish();
}
