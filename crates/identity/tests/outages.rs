//! Expired identities and wrong clocks: a process that was unavailable for longer than its
//! certificate's lifetime must be able to reach an authority again.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::time::SystemTime;

use maglor_identity::{Authority, Identity, Live, Refusal, SpiffeId, TrustBundle, Unusable, tls};
use rustls::HandshakeKind;
use support::{DAY, Handshake, authority, careless, client, id, identity, issued, live, server};

/// The outcome of a handshake with a server that certifies, and what its client has proved.
fn at_the_authority(
    live: &Arc<Live>,
    client: &impl support::Settings<rustls::ClientConfig>,
) -> Result<SpiffeId, Refusal> {
    let open = tls::OpenServer::new(live, &[b"h2"]).unwrap();
    let met = Handshake::run(client, &open);
    assert!(met.client.is_ok(), "{:?}", met.client.err());
    let server = met.server.unwrap();
    Ok(open.peer(&server, SystemTime::now())?.0)
}

fn nothing_but(authority: &Authority) -> TrustBundle {
    authority.bundle().unwrap()
}

#[test]
fn an_identity_that_proves_nothing_is_not_presented() {
    let (ours, theirs) = (authority(), authority());
    let now = SystemTime::now();
    let controller = live(&ours, "controller");
    let old = issued(&ours, "web", now - 2 * DAY);
    let expired = Live::new(old.clone(), nothing_but(&ours)).unwrap();
    assert_eq!(expired.usable(now), Err(Unusable::Expired(old.expires())));
    // Its root was replaced while the process was stopped.
    let untrusted = Live::new(identity(&theirs, "web"), nothing_but(&ours)).unwrap();
    assert_eq!(untrusted.usable(now), Err(Unusable::Untrusted));
    for live in [&expired, &untrusted] {
        let shown = at_the_authority(&controller, &client(live));
        assert_eq!(shown, Err(Refusal::NoCertificate));
        let met = Handshake::run(&client(live), &server(&controller));
        assert_eq!(met.seen_by_server(), Err(Refusal::NoCertificate));
    }
    // The same process with a certificate of now.
    for live in [&expired, &untrusted] {
        live.rotate(identity(&ours, "web"), nothing_but(&ours))
            .unwrap();
        assert_eq!(live.usable(now), Ok(()));
        let shown = at_the_authority(&controller, &client(live));
        assert_eq!(shown, Ok(id("web")));
    }
}

/// Proxies of earlier versions present any certificate, and clocks differ.
#[test]
fn an_authority_serves_a_client_whose_certificate_proves_nothing() {
    let (ours, theirs) = (authority(), authority());
    let controller = live(&ours, "controller");
    let now = SystemTime::now();
    let of = |authority: &Authority, now| {
        let request = maglor_identity::LeafRequest::new(id("web"));
        let issued = authority.issue(&request, now).unwrap();
        Some((issued.certificate_pem, issued.private_key_pem.unwrap()))
    };
    for (shown, expected) in [
        (of(&ours, now), Ok(id("web"))),
        (of(&ours, now - 2 * DAY), Err(Refusal::Expired)),
        (of(&ours, now + DAY), Err(Refusal::Expired)),
        (of(&theirs, now), Err(Refusal::UnknownRoot)),
        (None, Err(Refusal::NoCertificate)),
    ] {
        let client = Arc::new(careless(shown));
        assert_eq!(at_the_authority(&controller, &client), expected);
    }
}

#[test]
fn a_resumed_session_proves_no_more_than_its_certificate() {
    let (ours, theirs) = (authority(), authority());
    let both = nothing_but(&ours).union(&nothing_but(&theirs)).unwrap();
    let controller = Live::new(identity(&ours, "controller"), both.clone()).unwrap();
    let web = Live::new(identity(&theirs, "web"), both).unwrap();
    let open = tls::OpenServer::new(&controller, &[b"h2"]).unwrap();
    let client = client(&web);
    Handshake::run(&client, &open);
    let met = Handshake::run(&client, &open);
    let connection = met.server.unwrap();
    assert_eq!(connection.handshake_kind(), Some(HandshakeKind::Resumed));
    let now = SystemTime::now();
    assert_eq!(open.peer(&connection, now).unwrap().0, id("web"));
    assert_eq!(open.peer(&connection, now + DAY), Err(Refusal::Expired));
    controller.trust(nothing_but(&ours)).unwrap();
    assert_eq!(open.peer(&connection, now), Err(Refusal::UnknownRoot));
}

/// A root that expires before a certificate issued by it, as may happen with a foreign authority.
#[test]
fn a_certificate_is_good_as_long_as_its_root_is() {
    let short = support::Obedient::until(2100);
    let own = short.live(id("web").as_str());
    let year = |years: u32| SystemTime::UNIX_EPOCH + DAY * 365 * years + DAY * 32;
    assert_eq!(own.usable(year(2099 - 1970)), Ok(()));
    assert_eq!(own.usable(year(2101 - 1970)), Err(Unusable::Untrusted));
    let expired = support::Obedient::until(2025).live(id("web").as_str());
    let now = expired.usable(SystemTime::now());
    assert_eq!(now, Err(Unusable::Untrusted));
}

/// A node whose clock was set back by days, or that has none and begins in the past: its members hold certificates
/// whose validity begins after its clock.
#[test]
fn members_with_a_clock_that_is_behind_see_each_other() {
    let ours = authority();
    let ahead = SystemTime::now() + 2 * DAY;
    let member = |account: &str, issued_at| {
        let own: Identity = issued(&ours, account, issued_at);
        Live::new(own, nothing_but(&ours)).unwrap()
    };
    let (cart, web) = (member("cart", ahead), member("web", ahead));
    assert_eq!(web.usable(SystemTime::now()), Ok(()));
    assert!(web.is_trusted(SystemTime::now()));
    let met = Handshake::run(&client(&web), &server(&cart));
    assert_eq!(met.seen_by_server(), Ok(id("web")));
    assert_eq!(met.seen_by_client(), Ok(id("cart")));
    // The clock is detected to be behind: certificates that had expired when the own certificate was issued have
    // expired. What begins later than that is not valid yet.
    for other in [ahead - 2 * DAY, ahead + DAY] {
        let request = maglor_identity::LeafRequest::new(id("web"));
        let other = ours.issue(&request, other).unwrap();
        let shown = (other.certificate_pem, other.private_key_pem.unwrap());
        let met = Handshake::run(&Arc::new(careless(Some(shown))), &server(&cart));
        assert_eq!(met.seen_by_server(), Err(Refusal::Expired));
    }
}
