use bytes::Bytes;

use super::*;
use crate::Resource;
use crate::server::Receipt;

const NOW: Time = Time::ZERO;

fn put(cache: &mut Cache, kind: Kind, name: &str, body: &'static str) -> ChangeId {
    let body = Bytes::from_static(body.as_bytes());
    let name = name.into();
    cache
        .set(Resource { kind, name, body }, NOW)
        .expect("it is new")
}

fn everything() -> Scope {
    Arc::new(|_, name| Some(name.into()))
}

fn delta_session() -> Session {
    Session::new(Protocol::Delta, "node", everything())
}

fn subscribe(kind: Kind, names: &[&str]) -> wire::DeltaDiscoveryRequest {
    wire::DeltaDiscoveryRequest {
        type_url: kind.type_url().to_owned(),
        resource_names_subscribe: names.iter().map(ToString::to_string).collect(),
        ..Default::default()
    }
}

fn answer(
    response: &wire::DeltaDiscoveryResponse,
    error: Option<&str>,
) -> wire::DeltaDiscoveryRequest {
    wire::DeltaDiscoveryRequest {
        type_url: response.type_url.clone(),
        response_nonce: response.nonce.clone(),
        error_detail: error.map(|message| Status {
            code: 3,
            message: message.to_owned(),
        }),
        ..Default::default()
    }
}

fn names(response: &wire::DeltaDiscoveryResponse) -> Vec<&str> {
    response.resources.iter().map(|r| r.name.as_str()).collect()
}

fn ask(
    session: &mut Session,
    cache: &mut Cache,
    request: &wire::DeltaDiscoveryRequest,
) -> Vec<wire::DeltaDiscoveryResponse> {
    assert_eq!(session.receive_delta(cache, request, NOW), None);
    session.poll_delta(cache, NOW)
}

#[test]
fn what_is_asked_for_comes_once_and_again_when_it_changes() {
    let (mut cache, mut session) = (Cache::new(), delta_session());
    put(&mut cache, Kind::Cluster, "a", "1");
    put(&mut cache, Kind::Cluster, "b", "1");
    let first = ask(&mut session, &mut cache, &subscribe(Kind::Cluster, &["a"]));
    assert_eq!(first.len(), 1);
    assert_eq!(names(&first[0]), ["a"]);
    assert!(ask(&mut session, &mut cache, &answer(&first[0], None)).is_empty());
    put(&mut cache, Kind::Cluster, "b", "2");
    assert!(
        session.poll_delta(&mut cache, NOW).is_empty(),
        "b is not subscribed"
    );
    put(&mut cache, Kind::Cluster, "a", "2");
    put(&mut cache, Kind::Cluster, "a", "3");
    let second = session.poll_delta(&mut cache, NOW);
    assert_eq!(names(&second[0]), ["a"]);
    assert_ne!(first[0].nonce, second[0].nonce);
}

#[test]
fn what_is_not_there_is_said_to_be_gone_and_comes_when_it_is() {
    let (mut cache, mut session) = (Cache::new(), delta_session());
    let first = ask(&mut session, &mut cache, &subscribe(Kind::Listener, &["x"]));
    assert_eq!(first[0].removed_resources, ["x"]);
    assert!(session.poll_delta(&mut cache, NOW).is_empty());
    put(&mut cache, Kind::Listener, "x", "1");
    assert_eq!(names(&session.poll_delta(&mut cache, NOW)[0]), ["x"]);
    cache.remove(Kind::Listener, "x", NOW);
    let gone = session.poll_delta(&mut cache, NOW);
    assert_eq!(gone[0].removed_resources, ["x"]);
    let none = wire::DeltaDiscoveryRequest {
        resource_names_subscribe: Vec::new(),
        resource_names_unsubscribe: vec!["x".to_owned()],
        ..subscribe(Kind::Listener, &[])
    };
    assert!(ask(&mut session, &mut cache, &none).is_empty());
    put(&mut cache, Kind::Listener, "x", "2");
    assert!(session.poll_delta(&mut cache, NOW).is_empty());
}

#[test]
fn what_is_referred_to_comes_first_and_goes_last() {
    let (mut cache, mut session) = (Cache::new(), delta_session());
    for kind in Kind::ALL.into_iter().rev() {
        session.receive_delta(&mut cache, &subscribe(kind, &["a", "b"]), NOW);
        put(&mut cache, kind, "a", "1");
    }
    let responses = session.poll_delta(&mut cache, NOW);
    let order: Vec<_> = responses
        .iter()
        .filter(|r| !r.resources.is_empty())
        .map(|r| r.type_url.as_str())
        .collect();
    assert_eq!(order, Kind::ALL.map(Kind::type_url));
    for kind in Kind::ALL {
        cache.remove(kind, "a", NOW);
    }
    put(&mut cache, Kind::Routes, "b", "1");
    let responses = session.poll_delta(&mut cache, NOW);
    assert_eq!(
        names(&responses[0]),
        ["b"],
        "what is new comes before anything goes"
    );
    let last = responses.last().map(|r| r.type_url.as_str());
    assert_eq!(last, Some(Kind::Bundle.type_url()));
}

#[test]
fn a_client_holds_what_it_has_taken() {
    let (mut cache, mut session) = (Cache::new(), delta_session());
    put(&mut cache, Kind::Bundle, "a", "1");
    let holds = |session: &Session, cache: &Cache| session.holds(cache, Kind::Bundle, "a");
    assert!(!holds(&session, &cache), "not subscribed");
    let first = ask(&mut session, &mut cache, &subscribe(Kind::Bundle, &["a"]));
    assert!(!holds(&session, &cache), "sent, not answered");
    ask(&mut session, &mut cache, &answer(&first[0], None));
    assert!(holds(&session, &cache));
    put(&mut cache, Kind::Bundle, "a", "2");
    assert!(!holds(&session, &cache), "there is another one");
    let second = session.poll_delta(&mut cache, NOW);
    session.receive_delta(&mut cache, &answer(&second[0], Some("no")), NOW);
    assert!(!holds(&session, &cache), "refused");
}

#[test]
fn nothing_named_means_everything_of_whole_kinds() {
    let (mut cache, mut session) = (Cache::new(), delta_session());
    put(&mut cache, Kind::Cluster, "a", "1");
    put(&mut cache, Kind::Endpoints, "a", "1");
    let all = ask(&mut session, &mut cache, &subscribe(Kind::Cluster, &[]));
    assert_eq!(names(&all[0]), ["a"]);
    assert!(ask(&mut session, &mut cache, &subscribe(Kind::Endpoints, &[])).is_empty());
    put(&mut cache, Kind::Cluster, "b", "1");
    assert_eq!(names(&session.poll_delta(&mut cache, NOW)[0]), ["b"]);
    cache.remove(Kind::Cluster, "a", NOW);
    assert_eq!(
        session.poll_delta(&mut cache, NOW)[0].removed_resources,
        ["a"]
    );
}

#[test]
fn a_client_that_returns_gets_what_it_missed() {
    let (mut cache, mut session) = (Cache::new(), delta_session());
    put(&mut cache, Kind::Cluster, "same", "1");
    put(&mut cache, Kind::Cluster, "changed", "2");
    let version = |name| cache.version(Kind::Cluster, name).unwrap().to_owned();
    let request = wire::DeltaDiscoveryRequest {
        initial_resource_versions: [
            ("same".to_owned(), version("same")),
            ("changed".to_owned(), "old".to_owned()),
            ("gone".to_owned(), "old".to_owned()),
        ]
        .into(),
        ..subscribe(Kind::Cluster, &["same", "changed", "gone"])
    };
    let responses = ask(&mut session, &mut cache, &request);
    assert_eq!(names(&responses[0]), ["changed"]);
    assert_eq!(responses[1].removed_resources, ["gone"]);
    assert_eq!(responses.len(), 2);
}

#[test]
fn a_refusal_is_kept_until_something_better_is_taken() {
    let (mut cache, mut session) = (Cache::new(), delta_session());
    put(&mut cache, Kind::Cluster, "a", "1");
    let first = ask(&mut session, &mut cache, &subscribe(Kind::Cluster, &["a"]));
    session.receive_delta(&mut cache, &answer(&first[0], None), NOW);
    let change = put(&mut cache, Kind::Cluster, "a", "bad");
    let second = session.poll_delta(&mut cache, NOW);
    let nack = session.receive_delta(&mut cache, &answer(&second[0], Some("no")), NOW);
    assert_eq!(
        nack.map(|nack| (nack.kind, nack.change)),
        Some((Kind::Cluster, change))
    );
    assert_eq!(session.nacks().count(), 1);
    assert!(
        session.poll_delta(&mut cache, NOW).is_empty(),
        "what was refused is not sent again"
    );
    let refused = cache.receipts().of(change).unwrap();
    assert!(matches!(&refused.deliveries[0].outcome, Some((_, Err(why))) if &**why == "no"));
    put(&mut cache, Kind::Cluster, "a", "good");
    let third = session.poll_delta(&mut cache, NOW);
    session.receive_delta(&mut cache, &answer(&third[0], None), NOW);
    assert_eq!(session.nacks().count(), 0);
}

#[test]
fn a_receipt_says_who_has_a_change_and_when() {
    let (mut cache, mut session) = (Cache::new(), delta_session());
    let mut other = Session::new(Protocol::Delta, "other", everything());
    put(&mut cache, Kind::Cluster, "a", "1");
    for session in [&mut session, &mut other] {
        let first = ask(session, &mut cache, &subscribe(Kind::Cluster, &["a"]));
        session.receive_delta(&mut cache, &answer(&first[0], None), NOW);
    }
    let change = put(&mut cache, Kind::Cluster, "a", "2");
    let later = Time::from_nanos(5_000_000);
    let response = session.poll_delta(&mut cache, NOW);
    other.poll_delta(&mut cache, NOW);
    session.receive_delta(&mut cache, &answer(&response[0], None), later);
    let receipt = |cache: &Cache| cache.receipts().of(change).unwrap().clone();
    assert_eq!(receipt(&cache).deliveries.len(), 2);
    assert!(!receipt(&cache).is_complete());
    other.end(&mut cache);
    let complete: Receipt = receipt(&cache);
    assert!(complete.is_complete());
    assert_eq!(complete.took(), Some(Duration::from_millis(5)));
}

#[test]
fn a_client_sees_only_what_it_may() {
    let mut cache = Cache::new();
    put(&mut cache, Kind::Cluster, "own/a", "1");
    put(&mut cache, Kind::Cluster, "other/a", "1");
    let scope: Scope = Arc::new(|_, name| name.starts_with("own/").then(|| name.into()));
    let mut session = Session::new(Protocol::Delta, "node", Arc::clone(&scope));
    let all = ask(&mut session, &mut cache, &subscribe(Kind::Cluster, &[]));
    assert_eq!(names(&all[0]), ["own/a"]);
    let named = ask(
        &mut session,
        &mut cache,
        &subscribe(Kind::Cluster, &["other/a"]),
    );
    assert_eq!(named[0].removed_resources, ["other/a"]);
    let mut whole = Session::new(Protocol::StateOfTheWorld, "node", scope);
    whole.receive_whole(&mut cache, &whole_request(Kind::Cluster, &[], ""), NOW);
    assert_eq!(whole.poll_whole(&mut cache, NOW)[0].resources.len(), 1);
}

#[test]
fn a_name_may_stand_for_another_resource_and_for_a_third_later() {
    let mut cache = Cache::new();
    put(&mut cache, Kind::Routes, "a", "1");
    put(&mut cache, Kind::Routes, "a@ns", "2");
    let special = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = Arc::clone(&special);
    let scope: Scope = Arc::new(move |_, name| {
        let special = seen.load(std::sync::atomic::Ordering::Relaxed) && name == "a";
        Some(if special { "a@ns".into() } else { name.into() })
    });
    let mut session = Session::new(Protocol::Delta, "node", scope);
    let body = |responses: &[wire::DeltaDiscoveryResponse]| {
        let resource = responses[0].resources[0].clone();
        (resource.name, resource.resource.unwrap().value)
    };
    let first = ask(&mut session, &mut cache, &subscribe(Kind::Routes, &["a"]));
    assert_eq!(body(&first), ("a".to_owned(), b"1".to_vec()));
    special.store(true, std::sync::atomic::Ordering::Relaxed);
    cache.mark_changed(Kind::Routes, "a", NOW);
    let second = session.poll_delta(&mut cache, NOW);
    assert_eq!(body(&second), ("a".to_owned(), b"2".to_vec()));
    put(&mut cache, Kind::Routes, "a@ns", "3");
    let third = session.poll_delta(&mut cache, NOW);
    assert_eq!(body(&third), ("a".to_owned(), b"3".to_vec()));
}

#[test]
fn a_long_response_comes_in_parts() {
    let mut cache = Cache::new();
    for i in 0..3 {
        let body = Bytes::from(vec![i; RESPONSE * 2 / 3]);
        let name = i.to_string().as_str().into();
        let kind = Kind::Cluster;
        cache.set(Resource { kind, name, body }, NOW);
    }
    let responses = ask(
        &mut delta_session(),
        &mut cache,
        &subscribe(Kind::Cluster, &["*"]),
    );
    assert_eq!(responses.len(), 3);
}

fn whole_request(kind: Kind, names: &[&str], nonce: &str) -> wire::DiscoveryRequest {
    wire::DiscoveryRequest {
        type_url: kind.type_url().to_owned(),
        resource_names: names.iter().map(ToString::to_string).collect(),
        response_nonce: nonce.to_owned(),
        ..Default::default()
    }
}

#[test]
fn state_of_the_world_holds_everything_asked_for() {
    let mut cache = Cache::new();
    let mut session = Session::new(Protocol::StateOfTheWorld, "node", everything());
    put(&mut cache, Kind::Endpoints, "a", "1");
    put(&mut cache, Kind::Endpoints, "b", "1");
    let first = whole_request(Kind::Endpoints, &["a", "missing"], "");
    session.receive_whole(&mut cache, &first, NOW);
    let responses = session.poll_whole(&mut cache, NOW);
    assert_eq!(responses[0].resources.len(), 1);
    let more = whole_request(Kind::Endpoints, &["a", "b"], &responses[0].nonce);
    session.receive_whole(&mut cache, &more, NOW);
    let responses = session.poll_whole(&mut cache, NOW);
    assert_eq!(responses[0].resources.len(), 2);
    let acked = whole_request(Kind::Endpoints, &["a", "b"], &responses[0].nonce);
    session.receive_whole(&mut cache, &acked, NOW);
    assert!(session.poll_whole(&mut cache, NOW).is_empty());
    put(&mut cache, Kind::Endpoints, "b", "2");
    let changed = session.poll_whole(&mut cache, NOW);
    assert_eq!(changed[0].resources.len(), 2);
    // An answer to an older response changes nothing.
    let stale = whole_request(Kind::Endpoints, &[], &responses[0].nonce);
    session.receive_whole(&mut cache, &stale, NOW);
    assert_eq!(session.subscribed(Kind::Endpoints), 2);
}

#[test]
fn state_of_the_world_says_when_there_is_nothing_and_when_something_goes() {
    let mut cache = Cache::new();
    let mut session = Session::new(Protocol::StateOfTheWorld, "node", everything());
    session.receive_whole(&mut cache, &whole_request(Kind::Listener, &["x"], ""), NOW);
    let none = session.poll_whole(&mut cache, NOW);
    assert!(none[0].resources.is_empty());
    put(&mut cache, Kind::Listener, "x", "1");
    assert_eq!(session.poll_whole(&mut cache, NOW)[0].resources.len(), 1);
    cache.remove(Kind::Listener, "x", NOW);
    assert!(session.poll_whole(&mut cache, NOW)[0].resources.is_empty());
    session.receive_whole(&mut cache, &whole_request(Kind::Endpoints, &["x"], ""), NOW);
    assert!(session.poll_whole(&mut cache, NOW).is_empty());
}

/// In the delta variant, each response is about different resources. The acceptance of one does not imply that of
/// another.
#[test]
fn what_else_is_taken_hides_no_refusal() {
    let (mut cache, mut session) = (Cache::new(), delta_session());
    let refused = |session: &Session| -> Vec<String> {
        session
            .nacks()
            .map(|nack| nack.reason.to_string())
            .collect()
    };
    put(&mut cache, Kind::Routes, "a", "bad");
    let first = ask(&mut session, &mut cache, &subscribe(Kind::Routes, &["a"]));
    session.receive_delta(&mut cache, &answer(&first[0], Some("no a")), NOW);
    put(&mut cache, Kind::Routes, "b", "1");
    let second = ask(&mut session, &mut cache, &subscribe(Kind::Routes, &["b"]));
    assert!(ask(&mut session, &mut cache, &answer(&second[0], None)).is_empty());
    assert_eq!(refused(&session), ["no a"]);
    assert!(session.holds(&cache, Kind::Routes, "b"));
    assert!(!session.holds(&cache, Kind::Routes, "a"));
    put(&mut cache, Kind::Routes, "b", "bad");
    let third = session.poll_delta(&mut cache, NOW);
    session.receive_delta(&mut cache, &answer(&third[0], Some("no b")), NOW);
    assert_eq!(refused(&session), ["no a", "no b"]);
    put(&mut cache, Kind::Routes, "a", "good");
    let fourth = session.poll_delta(&mut cache, NOW);
    assert!(ask(&mut session, &mut cache, &answer(&fourth[0], None)).is_empty());
    assert_eq!(refused(&session), ["no b"]);
    let mut none = subscribe(Kind::Routes, &[]);
    none.resource_names_unsubscribe = vec!["b".to_owned()];
    assert!(ask(&mut session, &mut cache, &none).is_empty());
    assert!(refused(&session).is_empty(), "no longer subscribed");
}

/// "Unsubscribing From Resources": a client with a wildcard subscription that unsubscribes from a name must learn
/// whether the wildcard includes it.
#[test]
fn what_is_let_go_of_and_still_wanted_as_one_of_all_is_said_again() {
    let (mut cache, mut session) = (Cache::new(), delta_session());
    let change = put(&mut cache, Kind::Cluster, "a", "1");
    let wanted = subscribe(Kind::Cluster, &["*", "a", "missing"]);
    let first = ask(&mut session, &mut cache, &wanted);
    assert_eq!(names(&first[0]), ["a"]);
    assert_eq!(first[1].removed_resources, ["missing"]);
    for response in &first {
        assert!(ask(&mut session, &mut cache, &answer(response, None)).is_empty());
    }
    let mut none = subscribe(Kind::Cluster, &[]);
    none.resource_names_unsubscribe = vec!["a".to_owned(), "missing".to_owned()];
    let again = ask(&mut session, &mut cache, &none);
    assert_eq!(names(&again[0]), ["a"]);
    assert_eq!(again[1].removed_resources, ["missing"]);
    let receipt = cache.receipts().of(change).unwrap();
    assert!(receipt.deliveries.is_empty(), "it is no change");
    // It is not subscribed, so it is not announced again.
    assert!(ask(&mut session, &mut cache, &none).is_empty());
    put(&mut cache, Kind::Cluster, "a", "2");
    assert_eq!(names(&session.poll_delta(&mut cache, NOW)[0]), ["a"]);
}

/// An empty list means all resources until a name was requested, and none afterwards.
#[test]
fn an_empty_list_means_nothing_once_something_was_named() {
    for first in [&["*"][..], &["a"], &["*", "a"]] {
        let mut cache = Cache::new();
        put(&mut cache, Kind::Cluster, "a", "1");
        let mut session = Session::new(Protocol::StateOfTheWorld, "node", everything());
        let mut say = |cache: &mut Cache, names: &[&str], nonce: &str| {
            session.receive_whole(cache, &whole_request(Kind::Cluster, names, nonce), NOW);
            session.poll_whole(cache, NOW)
        };
        let all = say(&mut cache, first, "");
        assert_eq!(all[0].resources.len(), 1, "{first:?}");
        assert!(say(&mut cache, first, &all[0].nonce).is_empty());
        assert!(say(&mut cache, &[], &all[0].nonce).is_empty());
        put(&mut cache, Kind::Cluster, "a", "2");
        assert!(session.poll_whole(&mut cache, NOW).is_empty(), "{first:?}");
    }
}

/// An acknowledgement of a response other than the last one is ignored, whether or not the last one was acknowledged.
#[test]
fn a_late_request_changes_nothing() {
    let mut cache = Cache::new();
    let mut session = Session::new(Protocol::StateOfTheWorld, "node", everything());
    let mut say = |cache: &mut Cache, names: &[&str], nonce: &str| {
        session.receive_whole(cache, &whole_request(Kind::Endpoints, names, nonce), NOW);
        session.poll_whole(cache, NOW)
    };
    put(&mut cache, Kind::Endpoints, "a", "1");
    let first = say(&mut cache, &["a"], "").remove(0).nonce;
    assert!(say(&mut cache, &["a"], &first).is_empty());
    put(&mut cache, Kind::Endpoints, "a", "2");
    let second = say(&mut cache, &["a"], &first).remove(0).nonce;
    assert!(say(&mut cache, &["a"], &second).is_empty());
    assert!(say(&mut cache, &[], &first).is_empty());
    assert_eq!(session.subscribed(Kind::Endpoints), 1);
}
