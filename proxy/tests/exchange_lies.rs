//! Endpoints that say of their queues what cannot be.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use maglor_testkit::{Answer, Upstream};
use support::{Web, get};

#[test]
fn a_refusal_that_nobody_asked_for_is_an_answer() {
    for policy in ["bounce(tries=3)", "ledger(group=40)", "a-lsq", "probe"] {
        let applications = ["a", "b", "c"].map(|name| {
            Upstream::builder(name)
                .answer(|_| Some(Answer::text("done").header("x-maglor-queue", "refused=5")))
                .start()
        });
        let outbound = Web::to(applications.iter().map(Upstream::address))
            .cluster(&format!("policy: '{policy}'"))
            .start();
        let response = get(&outbound, "/");
        assert_eq!(
            (response.status, &*response.text()),
            (200, "done"),
            "{policy}"
        );
        assert_eq!(response.header("x-maglor-queue"), None, "{policy}");
        // Others ask for a channel.
        let requests = applications.iter().flat_map(Upstream::recorded);
        let sent = requests.filter(|request| request.uri.path() == "/").count();
        assert_eq!(sent, 1, "{policy}");
    }
}
