//! Istio's task "Mutual TLS Migration": clients outside the mesh are served until the mesh is locked down.

use std::net::Ipv4Addr;

use crate::page::curl;
use crate::run::{Run, addresses, settle};

const TASK: &str = "mtls-migration";

const STRICT: &str = "
apiVersion: security.istio.io/v1beta1
kind: PeerAuthentication
metadata: {name: default, namespace: istio-system}
spec: {mtls: {mode: STRICT}}
";

/// The application's services, each of which has the path `/health`.
const SERVICES: [&str; 4] = ["productpage", "details", "ratings", "reviews"];

pub(crate) fn is_locked_down(run: &mut Run) {
    let before = plain_text(run);
    let accepted = before.iter().filter(|status| **status == Some(200)).count();
    let step = (
        "no policy, requests in plain text from outside the mesh",
        "`PERMISSIVE`: 200",
    );
    let seen = format!("{accepted} of {} pods respond with 200", before.len());
    run.findings.add(TASK, step, seen, accepted == before.len());

    run.apply("networking/destination-rule-all-mtls.yaml");
    run.kubectl().apply(STRICT).unwrap();
    settle("no pod accepts plain text", || {
        plain_text(run).iter().all(Option::is_none)
    });
    let after = plain_text(run);
    let closed = after.iter().filter(|status| status.is_none()).count();
    let step = (
        "`PeerAuthentication` `default` in `istio-system`, `STRICT`",
        "requests from outside the mesh fail: `000`",
    );
    let seen = format!(
        "{closed} of {} pods close the connection without a response",
        after.len()
    );
    run.findings.add(TASK, step, seen, closed == after.len());

    let pages = run.browser().pages(60);
    let good = pages.iter().filter(|page| page.is_whole()).count();
    let step = (
        "the same, and `destination-rule-all-mtls.yaml`, requests of the mesh",
        "200",
    );
    let seen = format!("{good} of {} pages with details and reviews", pages.len());
    run.findings.add(TASK, step, seen, good == pages.len());
}

/// The statuses of requests in plain text from outside the mesh, to all pods of the application; `None` without a
/// response.
fn plain_text(run: &Run) -> Vec<Option<u16>> {
    let selector = |service| format!("app={service}");
    let pods = SERVICES.map(|service| addresses(run.kubectl(), &selector(service)));
    pods.iter().flatten().map(|pod| status(run, *pod)).collect()
}

fn status(run: &Run, pod: Ipv4Addr) -> Option<u16> {
    let mut command = run.installed.cluster.network_command("curl").unwrap();
    curl(command.arg(format!("http://{pod}:9080/health"))).1
}
