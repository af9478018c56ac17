//! Istio's task "HTTP Traffic" of authorization: everything is denied, then granted one workload after another.

use crate::page::{Page, Reviews};
use crate::run::{Run, settle};

const TASK: &str = "authz-http";

const NOTHING: &str = "{apiVersion: security.istio.io/v1beta1, kind: AuthorizationPolicy, \
    metadata: {name: allow-nothing, namespace: default}, spec: {}}";

/// Istio's own gateway is in another namespace, where these policies do not apply; that of the Gateway API is in this one.
const GATEWAY: &str = "{apiVersion: security.istio.io/v1beta1, kind: AuthorizationPolicy, \
    metadata: {name: gateway-viewer, namespace: default}, \
    spec: {selector: {matchLabels: {gateway.networking.k8s.io/gateway-name: bookinfo-gateway}}, rules: [{}]}}";

/// GET requests to an application are allowed, for all or for one service account.
fn viewer(app: &str, account: Option<&str>) -> String {
    let principal = |account| {
        format!("from: [{{source: {{principals: [cluster.local/ns/default/sa/{account}]}}}}], ")
    };
    let from = account.map(principal).unwrap_or_default();
    format!(
        "{{apiVersion: security.istio.io/v1beta1, kind: AuthorizationPolicy, \
         metadata: {{name: {app}-viewer, namespace: default}}, \
         spec: {{selector: {{matchLabels: {{app: {app}}}}}, action: ALLOW, \
         rules: [{{{from}to: [{{operation: {{methods: [GET]}}}}]}}]}}}}"
    )
}

pub(crate) fn access_is_granted_step_by_step(run: &mut Run) {
    run.apply("networking/virtual-service-reviews-v3.yaml");
    settle("requests go to v3", || {
        run.browser().page().shows(Reviews::RedStars)
    });
    apply(
        run,
        NOTHING,
        ("`allow-nothing`", "403, \"RBAC: access denied\""),
        |page| page.status == Some(403) && page.body.contains("RBAC: access denied"),
    );
    run.kubectl().apply(GATEWAY).unwrap();
    let step = (
        "`productpage-viewer`",
        "\"Error fetching product details\" and \"… reviews\"",
    );
    apply(run, &viewer("productpage", None), step, |page| {
        page.body.contains("Error fetching product details") && page.reviews == Reviews::Unavailable
    });
    let page = Some("bookinfo-productpage");
    let step = ("`details-viewer`", "details, no reviews yet");
    apply(run, &viewer("details", page), step, |page| {
        page.shows(Reviews::Unavailable)
    });
    let step = (
        "`reviews-viewer`",
        "\"Ratings service currently unavailable\"",
    );
    apply(run, &viewer("reviews", page), step, |page| {
        page.shows(Reviews::WithoutRatings)
    });
    let step = ("`ratings-viewer`", "ratings in the section of reviews");
    apply(
        run,
        &viewer("ratings", Some("bookinfo-reviews")),
        step,
        |page| page.shows(Reviews::RedStars),
    );

    let ask = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}"];
    let status = run.inside(&[&ask[..], &["details:9080/details/0"]].concat());
    let step = (
        "the same, details requested by the ratings",
        "only the product page may: 403",
    );
    run.findings.add(TASK, step, &status, status == "403");
    let form = ["-X", "POST", "-d", "username=a", "productpage:9080/login"];
    let status = run.inside(&[&ask[..], &form].concat());
    let step = ("the same, POST to the product page", "only GET: 403");
    run.findings.add(TASK, step, &status, status == "403");

    let delete = [
        "delete",
        "authorizationpolicies.security.istio.io",
        "--all",
        "-n",
        "default",
    ];
    run.kubectl().run(&delete).unwrap();
    let open = [
        "curl",
        "-s",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        "details:9080/details/0",
    ];
    settle("all may call the details again", || {
        run.inside(&open) == "200"
    });
    let step = ("the policies are deleted", "all requests are allowed");
    let page = run.browser().page();
    run.findings
        .add(TASK, step, page.to_string(), page.shows(Reviews::RedStars));
}

/// A step: a policy is applied, until the page shows its effect, and then ten times.
fn apply(run: &mut Run, policy: &str, step: (&str, &str), expected: impl Fn(&Page) -> bool) {
    run.kubectl().apply(policy).unwrap();
    settle(step.0, || expected(&run.browser().page()));
    let pages = run.browser().pages(10);
    let count = pages.iter().filter(|page| expected(page)).count();
    let seen = format!("{count} of {}: {}", pages.len(), pages[0]);
    run.findings.add(TASK, step, seen, count == pages.len());
}
