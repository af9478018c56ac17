use std::time::Duration;

use maglor_identity::{Authority, KeyRequest, LeafRequest};

use super::*;
use crate::telemetry::metrics::Metrics;

struct Fixture {
    folder: tempfile::TempDir,
    metrics: Metrics,
    own: Own,
}

fn authority() -> Authority {
    Authority::create(&"mesh.example".parse().unwrap(), SystemTime::now()).unwrap()
}

fn left(identity: Identity, roots: &TrustBundle) -> Stored {
    Stored {
        identity: Some(identity),
        roots: Some(roots.clone()),
    }
}

fn identity(by: &Authority) -> Identity {
    issued(by, SystemTime::now())
}

fn issued(by: &Authority, now: SystemTime) -> Identity {
    let key = KeyRequest::generate().unwrap();
    let id = "spiffe://mesh.example/ns/shop/sa/cart".parse().unwrap();
    let wanted = LeafRequest::new(id);
    let issued = by.sign(&key.der().unwrap(), &wanted, now);
    let chain = issued.unwrap().chain;
    key.certified(chain.iter().map(|one| one.to_vec())).unwrap()
}

impl Fixture {
    /// Creates a proxy with these roots and a cached state.
    fn new(roots: &TrustBundle, kept: Stored) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut fixture = Self {
            folder,
            metrics: Metrics::new(1),
            own: Own::default(),
        };
        fixture.put(roots);
        let wanted = fixture.wanted();
        let prepared = fixture.own.prepare(Some(&wanted), || kept).unwrap();
        fixture.own.commit(prepared, &fixture.metrics.identity);
        fixture
    }

    fn wanted(&self) -> Wanted {
        Wanted::ControlPlane(Enrolment {
            token_file: self.folder.path().join("token"),
            trust_bundle: self.folder.path().join("roots.pem"),
        })
    }

    fn put(&self, roots: &TrustBundle) {
        let new = self.folder.path().join("new");
        std::fs::write(&new, roots.to_pem()).unwrap();
        std::fs::rename(new, self.folder.path().join("roots.pem")).unwrap();
    }

    fn certified(&mut self, identity: Identity, roots: &TrustBundle) -> Result<(), NotTaken> {
        let metrics = &self.metrics.identity;
        self.own
            .certified(identity, roots.clone(), SystemTime::now(), metrics)
    }

    fn missing(&self) -> (Unusable, String) {
        let Missing { why, trouble } = self.own.missing(SystemTime::now()).unwrap();
        (why, trouble)
    }

    fn trusts(&self, roots: &TrustBundle) -> bool {
        self.own.live().unwrap().bundle().is_same(roots)
    }
}

#[test]
fn received_roots_count_more_than_those_that_come_with_a_certificate() {
    let (old, new) = (authority(), authority());
    let roots = old.bundle().unwrap();
    let mut fixture = Fixture::new(&roots, Stored::default());
    assert!(!fixture.own.live().unwrap().is_identified());
    fixture.own.fail("no answer".to_owned());
    assert_eq!(
        fixture.missing(),
        (Unusable::Missing, "no answer".to_owned())
    );
    fixture.certified(identity(&old), &roots).unwrap();
    assert!(fixture.own.missing(SystemTime::now()).is_none());
    assert!(fixture.trusts(&roots));
    let both = new.bundle().unwrap().union(&roots).unwrap();
    fixture
        .own
        .receive_bundle(both.clone(), &fixture.metrics.identity);
    // From a replica that does not have the new root yet.
    fixture.certified(identity(&old), &roots).unwrap();
    assert!(fixture.trusts(&both));
}

#[test]
fn a_file_of_roots_does_not_replace_received_ones() {
    let (old, new) = (authority(), authority());
    let (roots, later) = (old.bundle().unwrap(), new.bundle().unwrap());
    let mut fixture = Fixture::new(&roots, Stored::default());
    fixture.put(&later);
    fixture.own.poll(&fixture.metrics.identity);
    assert!(fixture.trusts(&later), "nothing was received yet");
    fixture
        .own
        .receive_bundle(roots.clone(), &fixture.metrics.identity);
    assert!(fixture.trusts(&roots));
    fixture.put(&roots.union(&later).unwrap());
    fixture.own.poll(&fixture.metrics.identity);
    fixture.put(&later);
    fixture.own.poll(&fixture.metrics.identity);
    assert!(fixture.trusts(&roots.union(&later).unwrap()));
    std::fs::write(fixture.folder.path().join("roots.pem"), "nonsense").unwrap();
    fixture.own.poll(&fixture.metrics.identity);
    assert!(
        fixture.trusts(&roots.union(&later).unwrap()),
        "the last good ones stay"
    );
}

#[test]
fn what_an_earlier_process_has_left_is_used_if_the_roots_vouch_for_it() {
    let (old, foreign) = (authority(), authority());
    let roots = old.bundle().unwrap();
    let kept = left(identity(&old), &roots);
    let fixture = Fixture::new(&roots, kept);
    assert!(fixture.own.live().unwrap().is_identified());
    let renewal = fixture.own.renew_at().unwrap();
    let wait = renewal.duration_since(SystemTime::now()).unwrap();
    assert!(wait > Duration::from_secs(16 * 3600), "{wait:?}");
    // The cached certificate was issued by an authority other than the cached roots.
    let kept = left(identity(&foreign), &roots);
    let fixture = Fixture::new(&roots, kept);
    assert!(!fixture.own.live().unwrap().is_identified());
    assert_eq!(fixture.own.renew_at(), None);
}

/// The control plane was unavailable for longer than a certificate's lifetime, and has a new root since.
#[test]
fn roots_that_came_with_a_certificate_replace_those_that_do_not_lead_to_it() {
    let (old, new) = (authority(), authority());
    let (roots, later) = (old.bundle().unwrap(), new.bundle().unwrap());
    let mut fixture = Fixture::new(&roots, Stored::default());
    let long_ago = SystemTime::now() - Duration::from_secs(3 * 24 * 3600);
    let expired = issued(&old, long_ago);
    let end = expired.expires();
    let taken = fixture.certified(expired, &roots);
    assert!(
        matches!(taken, Err(NotTaken::Unusable(Unusable::Expired(at))) if at == end),
        "{taken:?}"
    );
    fixture
        .own
        .receive_bundle(roots.clone(), &fixture.metrics.identity);
    fixture.own.fail("no answer".to_owned());
    let expected = (Unusable::Expired(end), "no answer".to_owned());
    assert_eq!(fixture.missing(), expected);
    // The platform updates the file, which authenticates the control plane.
    assert!(fixture.own.anchors().unwrap().is_same(&roots));
    fixture.put(&later);
    fixture.own.poll(&fixture.metrics.identity);
    let both = roots.union(&later).unwrap();
    assert!(fixture.own.anchors().unwrap().is_same(&both));
    fixture.certified(identity(&new), &later).unwrap();
    assert!(fixture.own.missing(SystemTime::now()).is_none());
    assert!(fixture.trusts(&later));
    assert!(fixture.own.anchors().unwrap().is_same(&later));
}

#[test]
fn a_root_that_is_taken_away_leaves_an_identity_that_is_not_used() {
    let (old, new) = (authority(), authority());
    let roots = old.bundle().unwrap();
    let mut fixture = Fixture::new(&roots, left(identity(&old), &roots));
    let later = new.bundle().unwrap();
    fixture
        .own
        .receive_bundle(later.clone(), &fixture.metrics.identity);
    assert_eq!(fixture.missing().0, Unusable::Untrusted);
    // The file's roots still authenticate a replica that does not have the new root yet.
    let both = roots.union(&later).unwrap();
    assert!(fixture.own.anchors().unwrap().is_same(&both));
}

/// Clocks of machines differ: a valid certificate is not replaced by an invalid one.
#[test]
fn a_certificate_that_proves_nothing_replaces_none_that_is_good() {
    let (ours, theirs) = (authority(), authority());
    let roots = ours.bundle().unwrap();
    let good = identity(&ours);
    let mut fixture = Fixture::new(&roots, left(good.clone(), &roots));
    let day = Duration::from_secs(24 * 3600);
    let early = issued(&ours, SystemTime::now() + 2 * day);
    let taken = fixture.certified(early.clone(), &roots);
    assert!(matches!(taken, Err(NotTaken::Early(_))), "{taken:?}");
    let taken = fixture.certified(identity(&theirs), &roots);
    assert!(
        matches!(taken, Err(NotTaken::Unusable(Unusable::Untrusted))),
        "{taken:?}"
    );
    assert_eq!(fixture.own.live().unwrap().expires(), Some(good.expires()));
    assert!(fixture.own.missing(SystemTime::now()).is_none());
    // The clock was set back: the old and the new certificate both begin in its future.
    let mut fixture = Fixture::new(&roots, left(early, &roots));
    let next = issued(&ours, SystemTime::now() + 2 * day);
    fixture.certified(next.clone(), &roots).unwrap();
    assert_eq!(fixture.own.live().unwrap().expires(), Some(next.expires()));
}

#[test]
fn roots_of_an_earlier_process_count_although_its_identity_has_expired() {
    let (old, new) = (authority(), authority());
    let (roots, later) = (old.bundle().unwrap(), new.bundle().unwrap());
    let kept = Stored {
        identity: None,
        roots: Some(later.clone()),
    };
    let fixture = Fixture::new(&roots, kept);
    assert!(fixture.trusts(&roots.union(&later).unwrap()));
}
