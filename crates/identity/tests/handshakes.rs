//! Handshakes between members and with unauthenticated clients: which are accepted, and which are rejected with which
//! reason.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::time::SystemTime;

use maglor_identity::{Authority, Identity, LeafRequest, Live, Refusal, tls};
use rustls::{HandshakeKind, NamedGroup, ProtocolVersion, ServerConnection};
use support::{
    DAY, Handshake, Obedient, authority, careless, client, id, identity, issued, live, server,
};

#[test]
fn members_see_each_other() {
    let authority = authority();
    let (cart, web) = (live(&authority, "cart"), live(&authority, "web"));
    let met = Handshake::run(&client(&web), &server(&cart));
    assert_eq!(met.seen_by_server(), Ok(id("web")));
    assert_eq!(met.seen_by_client(), Ok(id("cart")));
    let connection = met.server.unwrap();
    assert_eq!(
        connection.protocol_version(),
        Some(ProtocolVersion::TLSv1_3)
    );
    assert_eq!(connection.alpn_protocol(), Some(&b"h2"[..]));
    let group = connection.negotiated_key_exchange_group().unwrap();
    assert_eq!(group.name(), NamedGroup::X25519MLKEM768);
}

#[test]
fn a_client_may_expect_certain_servers_only() {
    let authority = authority();
    let (cart, web) = (live(&authority, "cart"), live(&authority, "web"));
    let expecting = |ids| tls::Client::new(&web, tls::Expected::OneOf(ids), &[b"h2"]).unwrap();
    let both = expecting(vec![id("cart"), id("other")]);
    assert!(
        Handshake::run(&both, &server(&cart))
            .seen_by_client()
            .is_ok()
    );
    let met = Handshake::run(&expecting(vec![id("other")]), &server(&cart));
    assert_eq!(met.seen_by_client(), Err(Refusal::WrongIdentity));
    assert_eq!(met.seen_by_server(), Err(Refusal::Other));
}

#[test]
fn unauthenticated_clients_are_rejected_with_a_reason() {
    let ours = authority();
    let cart = live(&ours, "cart");
    let yesterday = SystemTime::now() - DAY - DAY / 24;
    let request = LeafRequest::new(id("web"));
    let of = |authority: &Authority, now| {
        let issued = authority.issue(&request, now).unwrap();
        (issued.certificate_pem, issued.private_key_pem.unwrap())
    };
    let now = SystemTime::now();
    for (shown, reason) in [
        (None, Refusal::NoCertificate),
        (Some(of(&ours, yesterday)), Refusal::Expired),
        (Some(of(&ours, now + DAY)), Refusal::Expired),
        (Some(of(&authority(), now)), Refusal::UnknownRoot),
    ] {
        let met = Handshake::run(&Arc::new(careless(shown)), &server(&cart));
        assert_eq!(met.seen_by_server(), Err(reason));
    }
}

#[test]
fn a_certificate_names_one_workload_of_our_trust_domain() {
    let obedient = Obedient::new();
    let cart = obedient.live("spiffe://mesh.test/ns/shop/sa/cart");
    let web = "spiffe://mesh.test/ns/shop/sa/web";
    for (uris, reason) in [
        (&[web][..], None),
        (&[], Some(Refusal::BadSan)),
        (
            &[web, "spiffe://mesh.test/ns/shop/sa/admin"],
            Some(Refusal::BadSan),
        ),
        (&["https://mesh.test/ns/shop/sa/web"], Some(Refusal::BadSan)),
        (&["spiffe://mesh.test"], Some(Refusal::BadSan)),
        (&["spiffe://mesh.test/ns/../sa/web"], Some(Refusal::BadSan)),
        (
            &["spiffe://other.test/ns/shop/sa/web"],
            Some(Refusal::WrongIdentity),
        ),
    ] {
        let met = Handshake::run(
            &Arc::new(careless(Some(obedient.issue(uris)))),
            &server(&cart),
        );
        assert_eq!(met.seen_by_server().err(), reason, "{uris:?}");
    }
}

#[test]
fn an_expired_root_is_not_trusted() {
    let (old, new) = (Obedient::until(2025), Obedient::new());
    let both = old.bundle().union(&new.bundle()).unwrap();
    let live = |by: &Obedient, account: &str| {
        let (certificate, key) = by.issue(&[id(account).as_str()]);
        let own = Identity::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap();
        Live::new(own, both.clone()).unwrap()
    };
    let (cart, web) = (live(&new, "cart"), live(&new, "web"));
    let met = Handshake::run(&client(&web), &server(&cart));
    assert_eq!(met.seen_by_server(), Ok(id("web")), "the other root counts");
    assert_eq!(met.seen_by_client(), Ok(id("cart")));
    let late = live(&old, "late");
    let met = Handshake::run(&client(&late), &server(&cart));
    assert!(met.server.is_err());
    let met = Handshake::run(
        &Arc::new(careless(Some(old.issue(&[web_id()])))),
        &server(&cart),
    );
    assert_eq!(met.seen_by_server(), Err(Refusal::Expired));
    let met = Handshake::run(&client(&web), &server(&late));
    assert_eq!(met.seen_by_client(), Err(Refusal::Expired));
    let now = SystemTime::now();
    assert!(web.is_trusted(now) && !late.is_trusted(now));
    // Nor where there is no other.
    let alone = old.live(web_id());
    assert!(!alone.is_trusted(now));
    let met = Handshake::run(&client(&web), &server(&alone));
    assert_eq!(met.seen_by_client(), Err(Refusal::Expired));
}

fn web_id() -> &'static str {
    "spiffe://mesh.test/ns/shop/sa/web"
}

#[test]
fn the_server_is_judged_as_the_client_is() {
    let ours = authority();
    let web = live(&ours, "web");
    let outsider = live(&authority(), "cart");
    let met = Handshake::run(&client(&web), &server(&outsider));
    assert_eq!(met.seen_by_client(), Err(Refusal::UnknownRoot));

    let old = issued(&ours, "cart", SystemTime::now() - DAY - DAY);
    let late = Live::new(old, ours.bundle().unwrap()).unwrap();
    let met = Handshake::run(&client(&web), &server(&late));
    assert_eq!(met.seen_by_client(), Err(Refusal::Expired));
    assert!(!late.is_trusted(SystemTime::now()) && web.is_trusted(SystemTime::now()));

    let obedient = Obedient::new();
    let web = obedient.live("spiffe://mesh.test/ns/shop/sa/web");
    let foreign = obedient.live("spiffe://other.test/ns/shop/sa/cart");
    let met = Handshake::run(&client(&web), &server(&foreign));
    assert_eq!(met.seen_by_client(), Err(Refusal::WrongIdentity));
}

#[test]
fn older_tls_versions_are_distinguished() {
    let cart = live(&authority(), "cart");
    let mut old = careless(None);
    let provider = Arc::clone(old.crypto_provider());
    old = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let met = Handshake::run(&Arc::new(old), &server(&cart));
    assert_eq!(met.seen_by_server(), Err(Refusal::TlsVersion));
    assert_eq!(met.seen_by_client(), Err(Refusal::TlsVersion));

    for plain in [
        &b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ] {
        let mut connection = ServerConnection::new(server(&cart).config()).unwrap();
        connection.read_tls(&mut &plain[..]).unwrap();
        let error = connection.process_new_packets().unwrap_err();
        assert_eq!(Refusal::of(&error), Refusal::Plaintext, "{error}");
        let error = std::io::Error::new(std::io::ErrorKind::InvalidData, error);
        assert_eq!(Refusal::of_io(&error), Refusal::Plaintext);
    }
}

#[test]
fn a_new_leaf_is_shown_by_the_same_configuration() {
    let authority = authority();
    let (cart, web) = (live(&authority, "cart"), live(&authority, "web"));
    let (client, server) = (client(&web), server(&cart));
    Handshake::run(&client, &server);
    let bundle = authority.bundle().unwrap();
    let rotation = cart
        .rotate(identity(&authority, "cart-2"), bundle.clone())
        .unwrap();
    assert!(rotation.identity && rotation.roots_removed == 0);
    let met = Handshake::run(&client, &server);
    assert_eq!(
        met.seen_by_client(),
        Ok(id("cart-2")),
        "not the session of before"
    );
    web.rotate(identity(&authority, "web-2"), bundle).unwrap();
    let met = Handshake::run(&client, &server);
    assert_eq!(
        met.seen_by_server(),
        Ok(id("web-2")),
        "not the session of before"
    );
}

#[test]
fn sessions_are_resumed_until_what_proved_them_is_gone() {
    let (old, new) = (authority(), authority());
    let (cart, web) = (live(&old, "cart"), live(&old, "web"));
    let (client, server) = (client(&web), server(&cart));
    let kinds = |n: usize| -> Vec<_> {
        let kind = |_| Handshake::run(&client, &server);
        (0..n)
            .map(kind)
            .inspect(|met| {
                assert_eq!(met.seen_by_server(), Ok(id("web")));
                assert_eq!(met.seen_by_client(), Ok(id("cart")));
            })
            .map(|met| met.kind())
            .collect()
    };
    use HandshakeKind::{Full, Resumed};
    assert_eq!(kinds(3), [Full, Resumed, Resumed]);
    // An additional root does not invalidate the old one.
    let both = old.bundle().unwrap().union(&new.bundle().unwrap()).unwrap();
    let same = identity(&old, "cart");
    let rotation = cart.rotate(same.clone(), both.clone()).unwrap();
    assert_eq!((rotation.roots_added, rotation.roots_removed), (1, 0));
    assert_eq!(kinds(2), [Full, Resumed], "another leaf");
    cart.rotate(same, both.clone()).unwrap();
    web.rotate(identity(&new, "web"), both.clone()).unwrap();
    assert_eq!(kinds(2), [Full, Resumed]);
    // The old root is removed: the server resumes none of its sessions, with a new leaf or not.
    cart.rotate(identity(&new, "cart"), both).unwrap();
    assert_eq!(kinds(2), [Full, Resumed]);
    cart.rotate(identity(&new, "cart"), new.bundle().unwrap())
        .unwrap();
    assert_eq!(kinds(2), [Full, Resumed]);
}

/// Whichever flight of a handshake a renewal falls before, nothing of the former certificate is resumed afterwards.
/// Once such sessions were refused when the former certificate expired, long after its renewal.
#[test]
fn a_renewal_during_a_handshake_leaves_no_session_of_the_former_certificate() {
    let authority = authority();
    let bundle = authority.bundle().unwrap();
    for (renewed, flight) in (0..4).map(|flight| ("cart", flight)).chain([
        ("web", 0),
        ("web", 1),
        ("web", 2),
        ("web", 3),
    ]) {
        let (cart, web) = (live(&authority, "cart"), live(&authority, "web"));
        let (client, server) = (client(&web), server(&cart));
        let renew = |at| {
            let (side, new) = match renewed {
                "cart" => (&cart, "cart-2"),
                _ => (&web, "web-2"),
            };
            if at == flight {
                side.rotate(identity(&authority, new), bundle.clone())
                    .unwrap();
            }
        };
        renew(0);
        Handshake::interrupted(&client, &server, renew);
        let met = Handshake::run(&client, &server);
        let case = format!("{renewed} renewed before flight {flight}");
        let (cart, web) = match renewed {
            "cart" => ("cart-2", "web"),
            _ => ("cart", "web-2"),
        };
        assert_eq!(met.seen_by_client(), Ok(id(cart)), "{case}");
        assert_eq!(met.seen_by_server(), Ok(id(web)), "{case}");
    }
}

/// A client whose root is removed between its certificate and its last flight gets no ticket that lasts.
#[test]
fn a_root_removed_during_a_handshake_leaves_no_session() {
    let (ours, theirs) = (authority(), authority());
    let both = ours.bundle().unwrap().union(&theirs.bundle().unwrap());
    let both = both.unwrap();
    for flight in 0..4 {
        let leaf = identity(&ours, "cart");
        let cart = Live::new(leaf.clone(), both.clone()).unwrap();
        let web = Live::new(identity(&theirs, "web"), both.clone()).unwrap();
        let (client, server) = (client(&web), server(&cart));
        let remove = |at| {
            if at == flight {
                cart.rotate(leaf.clone(), ours.bundle().unwrap()).unwrap();
            }
        };
        remove(0);
        Handshake::interrupted(&client, &server, remove);
        let met = Handshake::run(&client, &server);
        let seen = met.seen_by_server();
        assert_eq!(seen, Err(Refusal::UnknownRoot), "before flight {flight}");
    }
}

#[test]
fn a_session_of_a_removed_root_is_not_resumed_but_refused() {
    let (ours, theirs) = (authority(), authority());
    let both = ours
        .bundle()
        .unwrap()
        .union(&theirs.bundle().unwrap())
        .unwrap();
    let leaf = identity(&ours, "cart");
    let cart = Live::new(leaf.clone(), both.clone()).unwrap();
    let web = Live::new(identity(&theirs, "web"), both).unwrap();
    let (client, server) = (client(&web), server(&cart));
    Handshake::run(&client, &server);
    assert_eq!(
        Handshake::run(&client, &server).kind(),
        HandshakeKind::Resumed
    );
    let rotation = cart.rotate(leaf, ours.bundle().unwrap()).unwrap();
    assert_eq!((rotation.identity, rotation.roots_removed), (false, 1));
    let met = Handshake::run(&client, &server);
    assert_eq!(met.seen_by_server(), Err(Refusal::UnknownRoot));
    // Nor does a client resume with a server whose root it has abandoned.
    let web = Live::new(identity(&ours, "web"), ours.bundle().unwrap()).unwrap();
    let client = support::client(&web);
    let cart = live(&ours, "cart");
    let server = support::server(&cart);
    Handshake::run(&client, &server);
    web.rotate(identity(&theirs, "web"), theirs.bundle().unwrap())
        .unwrap();
    let met = Handshake::run(&client, &server);
    assert_eq!(met.seen_by_client(), Err(Refusal::UnknownRoot));
}

#[test]
fn a_cross_signed_root_lets_both_bundles_trust_a_new_leaf() {
    let (old, new) = (authority(), authority());
    let now = SystemTime::now();
    let crossed = new.crossed_by(&old, now).unwrap();
    let new = new.with_chain(crossed.as_bytes()).unwrap();
    let web = live(&new, "web");
    assert!(web.is_trusted(now));
    for bundle in [old.bundle().unwrap(), new.bundle().unwrap()] {
        let cart = Live::new(identity(&new, "cart"), bundle.clone()).unwrap();
        assert!(cart.is_trusted(now));
        let met = Handshake::run(&client(&web), &server(&cart));
        assert_eq!(met.seen_by_server(), Ok(id("web")));
        let met = Handshake::run(&client(&cart), &server(&web));
        assert_eq!(met.seen_by_client(), Ok(id("web")));
    }
    // Without it, a client that knows only the old root does not trust the new one.
    let new = authority_like(&new);
    let web = live(&new, "web");
    let cart = live(&old, "cart");
    let met = Handshake::run(&client(&web), &server(&cart));
    assert_eq!(met.seen_by_client(), Err(Refusal::UnknownRoot));
}

/// The same root without its additional certificates.
fn authority_like(authority: &Authority) -> Authority {
    let (certificate, key) = (authority.certificate_pem(), authority.private_key_pem());
    Authority::from_pem(certificate.as_bytes(), key.as_bytes(), None).unwrap()
}
