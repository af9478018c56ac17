use bytes::Bytes;
use maglor_balance::Time;
use maglor_config::raw;

use super::*;
use crate::server::{Cache, Protocol, Session};
use crate::{Health, MOST_AHEAD, Resource, ServedEndpoint, encode};

const TARGET: &str = "a.shop.svc.cluster.local:80";

struct Fixture {
    discovery: Discovery,
    cache: Cache,
    session: Session,
}

impl Fixture {
    fn new() -> Self {
        let mut discovery = Discovery::new(Node::default(), false);
        discovery.connected();
        Self {
            discovery,
            cache: Cache::new(),
            session: session(),
        }
    }

    fn put(&mut self, resource: Resource) {
        self.cache.set(resource, Time::ZERO);
    }

    /// Serves a service with one cluster and one endpoint.
    fn serve(&mut self) {
        let routes = TARGET.to_owned();
        self.put(
            encode::listener(
                TARGET,
                &Listener::Http {
                    routes,
                    bytes: None,
                },
            )
            .unwrap(),
        );
        self.put(table(&format!(
            "{{name: {TARGET:?}, virtual_hosts: [{{domains: ['*'], routes: [{{cluster: a}}]}}]}}"
        )));
        self.put(cluster("{name: a}"));
        self.put(endpoints("a", &["10.0.0.1:80"]));
    }

    /// Passes messages between both sides until neither has any; returns the changes.
    fn settle(&mut self) -> Changes {
        let mut all = Changes::default();
        loop {
            while let Some(request) = self.discovery.request() {
                self.session
                    .receive_delta(&mut self.cache, &request, Time::ZERO);
            }
            let responses = self.session.poll_delta(&mut self.cache, Time::ZERO);
            if responses.is_empty() {
                return all;
            }
            for response in responses {
                let changes = self.discovery.receive(response);
                all.routing |= changes.routing;
                all.inbound |= changes.inbound;
                all.endpoints.extend(changes.endpoints);
                all.refused.extend(changes.refused);
            }
        }
    }

    fn subscribed(&self) -> [usize; 4] {
        [Kind::Listener, Kind::Routes, Kind::Cluster, Kind::Endpoints]
            .map(|kind| self.session.subscribed(kind))
    }
}

fn session() -> Session {
    Session::new(Protocol::Delta, "n", Arc::new(|_, name| Some(name.into())))
}

fn table(text: &str) -> Resource {
    encode::routes(&resource::read::<raw::RouteTable>(text, "x").unwrap()).unwrap()
}

fn cluster(text: &str) -> Resource {
    encode::cluster(&resource::read::<raw::Cluster>(text, "x").unwrap()).unwrap()
}

fn endpoints(name: &str, addresses: &[&str]) -> Resource {
    let all: Vec<_> = addresses
        .iter()
        .map(|address| ServedEndpoint {
            described: raw::Endpoint {
                address: Some((*address).to_owned()),
                ..raw::Endpoint::default()
            },
            health: Health::Healthy,
        })
        .collect();
    encode::endpoints(name, &all).unwrap()
}

#[test]
fn a_target_leads_to_its_endpoints_step_by_step() {
    let mut fixture = Fixture::new();
    fixture.serve();
    fixture.discovery.want(TARGET);
    assert!(matches!(fixture.discovery.target(TARGET), Target::Pending));
    fixture.settle();
    assert!(matches!(
        fixture.discovery.target(TARGET),
        Target::Http { bytes: None, .. }
    ));
    let used: Vec<_> = fixture.discovery.clusters().collect();
    assert_eq!(used.len(), 1);
    assert_eq!(used[0].endpoints.as_ref().unwrap().len(), 1);
    assert_eq!(fixture.subscribed(), [1, 1, 1, 1]);
}

#[test]
fn what_no_target_leads_to_is_forgotten() {
    let mut fixture = Fixture::new();
    fixture.serve();
    fixture.discovery.want(TARGET);
    fixture.settle();
    fixture.discovery.forget(TARGET);
    fixture.settle();
    assert_eq!(fixture.subscribed(), [0, 0, 0, 0]);
    assert_eq!(fixture.discovery.clusters().count(), 0);
    fixture.discovery.want(TARGET);
    fixture.settle();
    assert!(
        matches!(fixture.discovery.target(TARGET), Target::Http { .. }),
        "asked for again"
    );
}

#[test]
fn what_is_not_there_is_known_not_to_be_and_may_come() {
    let mut fixture = Fixture::new();
    fixture.discovery.want(TARGET);
    fixture.settle();
    assert!(matches!(fixture.discovery.target(TARGET), Target::Absent));
    fixture.serve();
    fixture.settle();
    assert!(matches!(
        fixture.discovery.target(TARGET),
        Target::Http { .. }
    ));
    // A removed cluster is one without endpoints, not a reason to wait.
    fixture.cache.remove(Kind::Cluster, "a", Time::ZERO);
    fixture.settle();
    assert!(matches!(
        fixture.discovery.target(TARGET),
        Target::Http { .. }
    ));
    assert!(fixture.discovery.cluster("a").is_none());
}

#[test]
fn a_change_of_endpoints_is_only_that() {
    let mut fixture = Fixture::new();
    fixture.serve();
    fixture.discovery.want(TARGET);
    fixture.settle();
    let before = fixture.discovery.cluster("a").unwrap().cluster;
    fixture.put(endpoints("a", &["10.0.0.1:80", "10.0.0.2:80"]));
    let changes = fixture.settle();
    assert!(!changes.routing);
    assert_eq!(
        changes
            .endpoints
            .iter()
            .map(|name| &**name)
            .collect::<Vec<_>>(),
        ["a"]
    );
    let after = fixture.discovery.cluster("a").unwrap();
    assert!(Arc::ptr_eq(&before, &after.cluster));
    assert_eq!(after.endpoints.unwrap().len(), 2);
}

#[test]
fn what_is_wrong_is_refused_and_the_last_good_one_stays() {
    let mut fixture = Fixture::new();
    fixture.serve();
    fixture.discovery.want(TARGET);
    fixture.settle();
    let before = fixture.discovery.cluster("a").unwrap().cluster;
    let bad = cluster("{name: a, max_concurrent_streams: 0}");
    fixture.put(bad);
    let changes = fixture.settle();
    let error = changes.refused[0].to_string();
    assert!(
        error.contains("cluster `a`") && error.contains("max_concurrent_streams"),
        "{error}"
    );
    assert!(Arc::ptr_eq(
        &before,
        &fixture.discovery.cluster("a").unwrap().cluster
    ));
    let nacks: Vec<_> = fixture
        .session
        .nacks()
        .map(|nack| nack.reason.to_string())
        .collect();
    assert_eq!(nacks, [error]);
    fixture.put(Resource {
        body: Bytes::from_static(b"\xff\xff"),
        ..cluster("{name: a}")
    });
    assert_eq!(fixture.settle().refused.len(), 1, "no protobuf at all");
    fixture.put(cluster("{name: a, policy: random}"));
    assert!(fixture.settle().refused.is_empty());
    assert_eq!(fixture.session.nacks().count(), 0);
}

#[test]
fn a_new_stream_goes_on_where_the_last_one_ended() {
    let mut fixture = Fixture::new();
    fixture.serve();
    fixture.discovery.want(TARGET);
    fixture.settle();
    let mut rng = Rng::seed(1);
    fixture.discovery.disconnected(&mut rng);
    assert!(
        matches!(fixture.discovery.target(TARGET), Target::Http { .. }),
        "it goes on serving"
    );
    fixture.put(endpoints("a", &["10.0.0.9:80"]));
    fixture.session = session();
    fixture.discovery.connected();
    let changes = fixture.settle();
    assert!(!changes.routing, "what it has is not sent again");
    assert_eq!(changes.endpoints.len(), 1);
}

const WORKLOAD: &str = "shop/cart-1";

impl Fixture {
    fn inbound(&mut self, words: &str) {
        self.inbound_ahead(words, &[]);
    }

    fn inbound_ahead(&mut self, words: &str, ahead: &[String]) {
        let inbound: Inbound = resource::read(words, "x").unwrap();
        self.put(encode::inbound(WORKLOAD, &inbound, ahead).unwrap());
    }
}

#[test]
fn what_a_workload_is_expected_to_call_is_there_before_it_does() {
    let mut fixture = Fixture::new();
    fixture.serve();
    fixture.inbound_ahead("{}", &[TARGET.to_owned(), "absent:1".to_owned()]);
    fixture
        .discovery
        .want_workloads([WORKLOAD.into()].into_iter());
    fixture.settle();
    assert!(matches!(
        fixture.discovery.target(TARGET),
        Target::Http { .. }
    ));
    assert!(matches!(
        fixture.discovery.target("absent:1"),
        Target::Absent
    ));
    assert_eq!(fixture.discovery.targets().len(), 0, "not called yet");
    // A caller now does not wait; without callers it stays as long as it is expected.
    fixture.discovery.want(TARGET);
    assert!(fixture.discovery.request().is_none(), "it is there");
    fixture.discovery.forget(TARGET);
    fixture.settle();
    assert!(matches!(
        fixture.discovery.target(TARGET),
        Target::Http { .. }
    ));
    fixture.inbound("{}");
    let changes = fixture.settle();
    assert!(changes.inbound && changes.refused.is_empty());
    assert!(matches!(fixture.discovery.target(TARGET), Target::Pending));
    assert_eq!(fixture.subscribed(), [0; 4]);
    // At most a few, for any input.
    let many: Vec<String> = (0..1000).map(|port| format!("10.0.0.1:{port}")).collect();
    fixture.inbound_ahead("{}", &many);
    fixture.settle();
    assert_eq!(fixture.subscribed()[0], MOST_AHEAD);
}

#[test]
fn a_workload_is_followed_with_the_clusters_of_its_ledgers() {
    let mut fixture = Fixture::new();
    fixture.serve();
    fixture.inbound("{ports: {80: {load_reports: {cluster: a, endpoint: '10.0.0.1:80'}}}}");
    assert!(
        !fixture
            .discovery
            .want_workloads([WORKLOAD.into()].into_iter())
    );
    fixture.settle();
    assert_eq!(fixture.discovery.workloads().len(), 1);
    assert_eq!(
        fixture.subscribed(),
        [0, 0, 1, 1],
        "its cluster and the endpoints"
    );
    let known = fixture.discovery.workloads();
    fixture.inbound("{tls: strict}");
    let refused = fixture.settle().refused;
    assert!(refused[0].to_string().contains(WORKLOAD), "{}", refused[0]);
    assert_eq!(
        fixture.discovery.workloads(),
        known,
        "the last good one stays"
    );
    fixture.cache.remove(Kind::Inbound, WORKLOAD, Time::ZERO);
    fixture.settle();
    assert_eq!(
        fixture.discovery.workloads(),
        known,
        "it exists, whatever a server that is behind says"
    );
    fixture.inbound("{}");
    fixture.settle();
    assert!(
        fixture.discovery.want_workloads(std::iter::empty()),
        "what was known is not"
    );
    assert!(fixture.discovery.workloads().is_empty());
}

#[test]
fn cached_resources_serve_while_no_server_answers_and_only_differences_follow() {
    let mut first = Fixture::new();
    first.discovery.keep(Vec::new());
    first.serve();
    first.discovery.want(TARGET);
    first.settle();
    let kept = first.discovery.kept().unwrap();
    assert_eq!(kept.len(), 4);
    assert_eq!(first.discovery.kept(), None, "nothing has changed since");

    let mut second = Fixture::new();
    second.discovery.keep(kept);
    second.discovery.want(TARGET);
    let target = second.discovery.target(TARGET);
    assert!(
        matches!(target, Target::Pending),
        "a server may still respond"
    );
    assert!(second.discovery.go_offline().routing);
    let reached = |fixture: &Fixture| {
        let target = fixture.discovery.target(TARGET);
        assert!(matches!(target, Target::Http { .. }), "{target:?}");
        let used = fixture.discovery.cluster("a").unwrap();
        used.endpoints.unwrap()[0].address.clone()
    };
    let before = reached(&second);
    // Wanted later: known as well.
    second.discovery.forget(TARGET);
    second.discovery.want(TARGET);
    assert_eq!(reached(&second), before);

    // The server has the same, but for an endpoint.
    second.serve();
    second.put(endpoints("a", &["10.0.0.2:80"]));
    second.discovery.connected();
    let changes = second.settle();
    assert!(!changes.routing, "what is the same is not sent again");
    assert_ne!(reached(&second), before);
    assert!(!second.discovery.is_offline());
    assert!(second.discovery.kept().is_some());
}

#[test]
fn what_was_kept_and_is_gone_is_removed() {
    let mut fixture = Fixture::new();
    fixture.discovery.keep(Vec::new());
    fixture.serve();
    fixture.discovery.want(TARGET);
    fixture.settle();
    let kept = fixture.discovery.kept().unwrap();
    let mut later = Fixture::new();
    later.discovery.keep(kept);
    later.discovery.want(TARGET);
    later.discovery.go_offline();
    later.discovery.connected();
    later.settle();
    assert!(matches!(later.discovery.target(TARGET), Target::Absent));
    let kept = later.discovery.kept().unwrap();
    assert!(kept.iter().all(|kept| kept.kind != Kind::Listener));
}

#[test]
fn what_cannot_be_put_in_force_is_refused_and_accepted_once_it_is() {
    let mut fixture = Fixture::new();
    fixture.inbound("{}");
    fixture
        .discovery
        .want_workloads([WORKLOAD.into()].into_iter());
    fixture.settle();
    let holds = |fixture: &Fixture| {
        fixture
            .session
            .holds(&fixture.cache, Kind::Inbound, WORKLOAD)
    };
    fixture.discovery.confirm_workloads(Ok(()));
    assert!(fixture.discovery.request().is_none(), "as it was said");
    assert!(holds(&fixture));

    // Detected before the response is sent, and after it.
    for (round, early) in [(1, true), (2, false)] {
        let words = format!("{{ports: {{{round}: {{}}}}}}");
        fixture.inbound(&words);
        if early {
            let responses = fixture.session.poll_delta(&mut fixture.cache, Time::ZERO);
            for response in responses {
                fixture.discovery.receive(response);
            }
        } else {
            fixture.settle();
            assert!(holds(&fixture));
        }
        for _ in 0..2 {
            fixture
                .discovery
                .confirm_workloads(Err("the port is taken"));
            fixture.settle();
            let nack = fixture.session.nacks().next().map(|nack| &*nack.reason);
            assert_eq!(nack, Some("the port is taken"));
            assert!(!holds(&fixture) && fixture.discovery.request().is_none());
        }
        fixture.discovery.confirm_workloads(Ok(()));
        fixture.settle();
        assert!(holds(&fixture), "{early}");
    }

    // It is not announced as known on a new stream.
    fixture.discovery.confirm_workloads(Err("again"));
    fixture.discovery.connected();
    fixture.session = session();
    let changes = fixture.settle();
    assert!(changes.inbound && holds(&fixture));
}
