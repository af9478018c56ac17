//! The hostile suite for external metrics (docs/hostile.md), through the API server, the only permitted client.

use maglor_testkit::cluster::Kubectl;
use maglor_testkit::hostile::{self, Case};

use crate::support::api_server::ApiServer;

/// Cases that the API server forwards; it answers all others itself.
const PASSED_ON: &str = "/apis/external.metrics.k8s.io/v1beta1";

/// Cases of which the API server makes good ones: it passes on a path with letters decoded (they are the same, RFC
/// 3986, 6.2.2.2), and of a query only the parts that it can decode.
const MENDED: [&str; 2] = ["path/metric encoded", "selector/half an escape"];

/// Cases without their expected outcome.
pub(crate) fn failed(kubectl: &Kubectl) -> Vec<String> {
    let cases = hostile::external_metrics();
    assert!(cases.len() > 50, "{}", cases.len());
    let asked = cases.iter().filter_map(|case| {
        let target = String::from_utf8(case.bytes()).unwrap();
        let rest = target.strip_prefix(PASSED_ON)?;
        let passed_on = rest.is_empty() || rest.starts_with(['/', '?']);
        passed_on.then_some((case, target))
    });
    let (mut count, mut failed) = (0, Vec::new());
    let server = ApiServer::of(kubectl);
    for (case, target) in asked {
        let status = status(&server, &target);
        count += 1;
        if !is_expected(case, status) {
            failed.push(format!(
                "{}: expected {}, got {status}",
                case.name, case.expected
            ));
        }
    }
    println!(
        "{count} of {} hostile questions passed on by the API server",
        cases.len()
    );
    failed
}

fn is_expected(case: &Case, status: u16) -> bool {
    let mended = MENDED.contains(&case.name.as_str());
    let expected = if mended {
        "answered"
    } else {
        case.expected.as_str()
    };
    match expected {
        "answered" => matches!(status, 200 | 503),
        statuses => statuses.split(' ').any(|one| one == status.to_string()),
    }
}

/// The status of a response; 0 without one.
fn status(server: &ApiServer, target: &str) -> u16 {
    let arguments = [
        "--max-time",
        "30",
        "--path-as-is",
        "-g",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
    ];
    server.curl(target, &arguments).trim().parse().unwrap()
}
