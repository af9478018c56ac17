use maglor_balance::Time;

use super::*;
use crate::Resource;
use crate::server::{Cache, Protocol, Session};

fn client() -> Client {
    Client::new(Node {
        id: "node".to_owned(),
        ..Node::default()
    })
}

/// The server of the tests, which sends everything at once.
struct Server {
    cache: Cache,
    session: Session,
}

impl Server {
    fn new() -> Self {
        Self {
            cache: Cache::new(),
            session: Session::new(
                Protocol::Delta,
                "node",
                Arc::new(|_, name| Some(name.into())),
            ),
        }
    }

    fn put(&mut self, kind: Kind, name: &str, body: &'static [u8]) {
        let resource = Resource {
            kind,
            name: name.into(),
            body: Bytes::from_static(body),
        };
        self.cache.set(resource, Time::ZERO);
    }

    /// Passes requests to the server, and its responses back.
    fn round_trip(&mut self, client: &mut Client) -> Vec<Update> {
        while let Some(request) = client.request() {
            self.session
                .receive_delta(&mut self.cache, &request, Time::ZERO);
        }
        let responses = self.session.poll_delta(&mut self.cache, Time::ZERO);
        responses
            .into_iter()
            .filter_map(|r| client.receive(r))
            .collect()
    }
}

#[test]
fn the_first_request_says_who_asks_and_no_other() {
    let mut client = client();
    client.connected();
    assert!(client.request().is_none(), "there is nothing to ask");
    client.subscribe(Kind::Listener, "a");
    client.subscribe(Kind::Cluster, "b");
    let first = client.request().unwrap();
    assert_eq!(first.node.unwrap().id, "node");
    assert_eq!(first.resource_names_subscribe, ["b"]);
    assert_eq!(client.request().unwrap().node, None);
    assert!(client.request().is_none());
}

#[test]
fn what_was_taken_is_not_sent_again_on_a_new_stream() {
    let (mut client, mut server) = (client(), Server::new());
    server.put(Kind::Cluster, "a", b"1");
    server.put(Kind::Cluster, "b", b"1");
    client.subscribe(Kind::Cluster, "a");
    client.subscribe(Kind::Cluster, "b");
    client.connected();
    let updates = server.round_trip(&mut client);
    assert_eq!(updates[0].resources.len(), 2);
    client.accept(&updates[0]);
    assert!(server.round_trip(&mut client).is_empty());
    let cache = std::mem::take(&mut server.cache);
    server = Server {
        cache,
        ..Server::new()
    };
    server.put(Kind::Cluster, "b", b"2");
    server.cache.remove(Kind::Cluster, "a", Time::ZERO);
    client.connected();
    let updates = server.round_trip(&mut client);
    assert_eq!(&*updates[0].resources[0].name, "b");
    assert_eq!(&*updates[1].removed[0], "a");
    assert_eq!(updates.len(), 2);
}

#[test]
fn what_was_refused_is_sent_again_on_a_new_stream() {
    let (mut client, mut server) = (client(), Server::new());
    server.put(Kind::Cluster, "a", b"1");
    client.subscribe(Kind::Cluster, "a");
    client.connected();
    let updates = server.round_trip(&mut client);
    client.refuse(&updates[0], "no");
    server.round_trip(&mut client);
    let nacks: Vec<_> = server
        .session
        .nacks()
        .map(|nack| nack.reason.to_string())
        .collect();
    assert_eq!(nacks, ["no"]);
    let cache = std::mem::take(&mut server.cache);
    server = Server {
        cache,
        ..Server::new()
    };
    client.connected();
    assert_eq!(server.round_trip(&mut client).len(), 1);
}

#[test]
fn unsubscribed_resources_are_not_followed() {
    let (mut client, mut server) = (client(), Server::new());
    client.connected();
    client.subscribe(Kind::Routes, "a");
    client.unsubscribe(Kind::Routes, "a");
    assert!(client.request().is_none(), "the server never heard of it");
    client.subscribe(Kind::Routes, "a");
    server.round_trip(&mut client);
    client.unsubscribe(Kind::Routes, "a");
    server.round_trip(&mut client);
    server.put(Kind::Routes, "a", b"1");
    assert!(server.round_trip(&mut client).is_empty());
    assert_eq!(server.session.subscribed(Kind::Routes), 0);
}

#[test]
fn pauses_grow_up_to_a_limit_and_shrink_with_an_answer() {
    let (mut client, mut rng) = (client(), Rng::seed(1));
    let pauses: Vec<_> = (0..40).map(|_| client.disconnected(&mut rng)).collect();
    assert!(pauses[0] <= FIRST_PAUSE && pauses[0] >= FIRST_PAUSE / 2);
    assert!(pauses[39] <= LONGEST_PAUSE && pauses[39] >= LONGEST_PAUSE / 2);
    client.receive(wire::DeltaDiscoveryResponse {
        type_url: Kind::Cluster.type_url().to_owned(),
        ..Default::default()
    });
    assert!(client.disconnected(&mut rng) <= FIRST_PAUSE);
}
