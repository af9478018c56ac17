use std::time::Duration;

use maglor_identity::{Authority, KeyRequest, LeafRequest};

use super::*;
use crate::metrics::Metrics;

struct World {
    folder: tempfile::TempDir,
    metrics: Metrics,
    own: Own,
}

fn authority() -> Authority {
    Authority::create(&"mesh.example".parse().unwrap(), SystemTime::now()).unwrap()
}

fn identity(by: &Authority) -> Identity {
    let key = KeyRequest::generate().unwrap();
    let id = "spiffe://mesh.example/ns/shop/sa/cart".parse().unwrap();
    let wanted = LeafRequest::new(id);
    let issued = by.sign(&key.der().unwrap(), &wanted, SystemTime::now());
    let chain = issued.unwrap().chain;
    key.certified(chain.iter().map(|one| one.to_vec())).unwrap()
}

impl World {
    /// A proxy that begins with these roots, and what an earlier one has left.
    fn new(roots: &TrustBundle, kept: Option<(Identity, TrustBundle)>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut world = Self {
            folder,
            metrics: Metrics::new(1),
            own: Own::default(),
        };
        world.put(roots);
        let wanted = world.wanted();
        let prepared = world.own.prepare(Some(&wanted), || kept).unwrap();
        world.own.commit(prepared, &world.metrics.identity);
        world
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

    fn trusts(&self, roots: &TrustBundle) -> bool {
        self.own.live().unwrap().bundle().is_same(roots)
    }
}

#[test]
fn roots_that_were_told_count_more_than_those_that_come_with_a_certificate() {
    let (old, new) = (authority(), authority());
    let roots = old.bundle().unwrap();
    let mut world = World::new(&roots, None);
    assert!(!world.own.live().unwrap().is_identified());
    world.own.fail("nobody answers".to_owned());
    assert_eq!(world.own.missing().as_deref(), Some("nobody answers"));
    let metrics = &world.metrics.identity;
    world.own.certified(identity(&old), roots.clone(), metrics);
    assert_eq!(world.own.missing(), None);
    assert!(world.trusts(&roots));
    let both = new.bundle().unwrap().union(&roots).unwrap();
    world.own.told(both.clone(), &world.metrics.identity);
    // From a replica that has not heard of the new root yet.
    let metrics = &world.metrics.identity;
    world.own.certified(identity(&old), roots.clone(), metrics);
    assert!(world.trusts(&both));
}

#[test]
fn a_file_of_roots_takes_nothing_from_those_that_were_told() {
    let (old, new) = (authority(), authority());
    let (roots, later) = (old.bundle().unwrap(), new.bundle().unwrap());
    let mut world = World::new(&roots, None);
    world.put(&later);
    world.own.poll(&world.metrics.identity);
    assert!(world.trusts(&later), "nothing was told yet");
    world.own.told(roots.clone(), &world.metrics.identity);
    assert!(world.trusts(&roots));
    world.put(&roots.union(&later).unwrap());
    world.own.poll(&world.metrics.identity);
    world.put(&later);
    world.own.poll(&world.metrics.identity);
    assert!(world.trusts(&roots.union(&later).unwrap()));
    std::fs::write(world.folder.path().join("roots.pem"), "nonsense").unwrap();
    world.own.poll(&world.metrics.identity);
    assert!(
        world.trusts(&roots.union(&later).unwrap()),
        "the last good ones stay"
    );
}

#[test]
fn what_an_earlier_process_has_left_is_used_if_the_roots_vouch_for_it() {
    let (old, foreign) = (authority(), authority());
    let roots = old.bundle().unwrap();
    let kept = Some((identity(&old), roots.clone()));
    let world = World::new(&roots, kept);
    assert!(world.own.live().unwrap().is_identified());
    let wait = world.own.renewal(SystemTime::now());
    assert!(wait > Duration::from_secs(16 * 3600), "{wait:?}");
    // Its roots came with it, and are another authority's.
    let kept = Some((identity(&foreign), roots.clone()));
    let world = World::new(&roots, kept);
    assert!(!world.own.live().unwrap().is_identified());
    assert_eq!(world.own.renewal(SystemTime::now()), Duration::ZERO);
}
