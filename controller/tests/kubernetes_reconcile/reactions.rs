//! The time from a watch event to the controller's write, as another watch sees both.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::events::Event;
use super::fixture::Fixture;
use super::observed;

/// Maximum of the median reaction on a machine that is not overloaded: a poll every two seconds would exceed it. The
/// goal is 100 ms, which is measured rather than tested, since other programs share the machine.
const REACTION: Duration = Duration::from_secs(1);
/// Changes of each kind.
const CHANGES: u32 = 21;

/// A change by a user: the object and the fields that are merged into it.
type Change = (&'static str, &'static str, &'static str, Value);

struct Case {
    what: &'static str,
    change: fn(u32) -> Change,
    /// Whether an event is that of the change, and that of the reaction to it.
    events: [fn(&Event, u32) -> bool; 2],
}

fn port(event: &Event) -> &Value {
    &event.object["spec"]["ports"][0]
}

/// A Gateway's only listener on another port.
fn listening(port: u32) -> Value {
    json!({"spec": {"listeners": [{"name": "http", "port": port, "protocol": "HTTP"}]}})
}

/// Another grace period of a Deployment's pods.
fn grace(seconds: u32) -> Value {
    json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 300 + seconds}}}})
}

fn has_grace(event: &Event, seconds: u32) -> bool {
    event.object["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 300 + seconds
}

/// Whether the status of an object is about the version of a change.
fn is_answered(event: &Event, field: &str, value: u32) -> bool {
    event.object["spec"][field] == value
        && *observed(&event.object) == event.object["metadata"]["generation"]
}

const CASES: [Case; 8] = [
    Case {
        what: "ProxyService: replicas, to the Deployment",
        change: |n| {
            (
                "proxyservices",
                "shop",
                "web",
                json!({"spec": {"replicas": 1 + n % 2}}),
            )
        },
        events: [
            |event, n| {
                event.is("proxyservices", "web") && event.object["spec"]["replicas"] == 1 + n % 2
            },
            |event, n| {
                event.is("deployments", "web-proxy-service")
                    && event.object["spec"]["replicas"] == 1 + n % 2
            },
        ],
    },
    Case {
        what: "Service: port, to its target Service",
        change: |n| {
            let port =
                json!({"name": "http", "port": 80, "targetPort": 8080 + n, "protocol": "TCP"});
            (
                "services",
                "shop",
                "web",
                json!({"spec": {"ports": [port]}}),
            )
        },
        events: [
            |event, n| event.is("services", "web") && port(event)["targetPort"] == 8080 + n,
            |event, n| event.is("services", "web-target") && port(event)["targetPort"] == 8080 + n,
        ],
    },
    Case {
        what: "target Service: changed by another writer, reverted",
        change: |_| {
            (
                "services",
                "shop",
                "web-target",
                json!({"spec": {"selector": {"app": "other"}}}),
            )
        },
        events: [
            |event, _| {
                event.is("services", "web-target")
                    && event.object["spec"]["selector"]["app"] == "other"
            },
            |event, _| {
                event.is("services", "web-target")
                    && event.object["spec"]["selector"]["app"] == "web"
            },
        ],
    },
    Case {
        what: "Gateway: port, to its Service",
        change: |n| ("gateways", "edge", "web", listening(81 + n)),
        events: [
            |event, n| {
                event.is("gateways", "web")
                    && event.object["spec"]["listeners"][0]["port"] == 81 + n
            },
            |event, n| event.is("services", "web-maglor") && port(event)["port"] == 81 + n,
        ],
    },
    Case {
        what: "Gateway: port, to its status",
        change: |n| ("gateways", "edge", "web", listening(201 + n)),
        events: [
            |event, n| {
                event.is("gateways", "web")
                    && event.object["spec"]["listeners"][0]["port"] == 201 + n
            },
            |event, n| {
                event.is("gateways", "web")
                    && event.object["spec"]["listeners"][0]["port"] == 201 + n
                    && *observed(&event.object) == event.object["metadata"]["generation"]
            },
        ],
    },
    Case {
        what: "Deployment of a Gateway: changed, reverted",
        change: |n| ("deployments", "edge", "web-maglor", grace(n)),
        events: [
            |event, n| event.is("deployments", "web-maglor") && has_grace(event, n),
            |event, n| event.is("deployments", "web-maglor") && !has_grace(event, n),
        ],
    },
    Case {
        what: "PlacementPolicy: interval, to its status",
        change: |n| {
            (
                "placementpolicies",
                "",
                "all",
                json!({"spec": {"roundSeconds": 600 + n}}),
            )
        },
        events: [
            |event, n| {
                event.is("placementpolicies", "all")
                    && event.object["spec"]["roundSeconds"] == 600 + n
            },
            |event, n| {
                event.is("placementpolicies", "all") && is_answered(event, "roundSeconds", 600 + n)
            },
        ],
    },
    Case {
        what: "TuningPolicy: interval, to its status",
        change: |n| {
            (
                "tuningpolicies",
                "shop",
                "all",
                json!({"spec": {"roundSeconds": 600 + n}}),
            )
        },
        events: [
            |event, n| {
                event.is("tuningpolicies", "all") && event.object["spec"]["roundSeconds"] == 600 + n
            },
            |event, n| {
                event.is("tuningpolicies", "all") && is_answered(event, "roundSeconds", 600 + n)
            },
        ],
    },
];

/// The median time of a read of an object.
async fn round_trip(fixture: &Fixture) -> Duration {
    let mut taken = Vec::new();
    for _ in 0..CHANGES {
        let begun = Instant::now();
        fixture.get("services", "shop", "web").await.unwrap();
        taken.push(begun.elapsed());
    }
    taken.sort();
    taken[taken.len() / 2]
}

pub(super) async fn all_are_prompt(fixture: &mut Fixture) {
    let mut late = Vec::new();
    for case in &CASES {
        let mut taken = Vec::new();
        for number in 1..=CHANGES {
            fixture.events.quiet().await;
            let count = fixture.events.count();
            let (plural, namespace, name, fields) = (case.change)(number);
            fixture.patch(plural, namespace, name, fields).await;
            let [change, reaction] = case.events;
            let begun = fixture
                .events
                .since(count, case.what, |event| change(event, number))
                .await;
            let is_later =
                |event: &Event| event.revision() > begun.revision() && reaction(event, number);
            let done = fixture.events.since(count, case.what, is_later).await;
            taken.push(done.at.saturating_duration_since(begun.at));
        }
        late.extend(judge(case.what, taken, round_trip(fixture).await));
    }
    let mut taken = Vec::new();
    let what = "moving pod: to its eviction";
    for _ in 0..CHANGES {
        fixture.events.quiet().await;
        let count = fixture.events.count();
        let name = fixture.put_moving().await;
        let of_pod = |event: &Event| event.is("pods", &name);
        let begun = fixture.events.since(count, what, of_pod).await;
        let is_evicted = |event: &Event| {
            let deleted = &event.object["metadata"]["deletionTimestamp"];
            of_pod(event) && (event.deleted || !deleted.is_null())
        };
        let done = fixture.events.since(count, what, is_evicted).await;
        taken.push(done.at.saturating_duration_since(begun.at));
    }
    late.extend(judge(what, taken, round_trip(fixture).await));
    assert!(late.is_empty(), "{late:#?}");
}

/// Prints the reactions to changes of a kind, and returns them if only a poll can be that slow.
fn judge(what: &str, mut taken: Vec<Duration>, round_trip: Duration) -> Option<String> {
    taken.sort();
    let (median, largest) = (taken[taken.len() / 2], taken[taken.len() - 1]);
    let said = format!(
        "{what}: median {median:.1?}, largest {largest:.1?}; a round trip takes {round_trip:.1?}, \
         processes for each processor: {:.1}",
        load()
    );
    println!("{said}");
    (median > REACTION.mul_f64(load().max(1.0))).then_some(said)
}

/// Number of running processes for each processor in the last minute (proc_loadavg(5)).
fn load() -> f64 {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    let load: f64 = load.split(' ').next().unwrap().parse().unwrap();
    load / std::thread::available_parallelism().unwrap().get() as f64
}
