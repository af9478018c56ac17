use super::*;

const TTL: Duration = Duration::from_secs(24 * 3600);
const DEADLINE: Duration = Duration::from_secs(3600);

fn domain() -> TrustDomain {
    "mesh.example".parse().unwrap()
}

fn start() -> Timestamp {
    "2026-11-24T12:00:00Z".parse().unwrap()
}

/// The Secret written by a program that is unaware of the previous authority.
fn external(now: Timestamp) -> Signer {
    of(&Authority::create(&domain(), now.into()).unwrap())
}

fn of(authority: &Authority) -> Signer {
    Signer {
        certificate: authority.certificate_pem(),
        private_key: authority.private_key_pem(),
        bundle: Some(authority.certificate_pem()),
        chain: None,
    }
}

fn authority(signer: &Signer) -> Authority {
    signer.ca(&domain()).unwrap().authority
}

fn bundle(of: &Succession) -> TrustBundle {
    of.ca(&domain()).unwrap().bundle
}

/// Whether a leaf that `issuer` signs now is trusted by members that have the bundle of `verifier`.
fn trusts(verifier: &Succession, issuer: &Succession, now: Timestamp) -> bool {
    let authority = issuer.ca(&domain()).unwrap().authority;
    vouches(&bundle(verifier), &authority, now).unwrap()
}

/// A clock that tests move.
struct Clock {
    now: Timestamp,
    spread: Spread,
}

impl Clock {
    fn new() -> Self {
        Self {
            now: start(),
            spread: Spread::Everywhere,
        }
    }

    fn passes(&mut self, time: Duration) {
        self.now += SignedDuration::try_from(time).unwrap();
    }

    fn step(&self, of: &Succession) -> Option<Succession> {
        let circumstances = Circumstances {
            now: self.now,
            spread: &self.spread,
            ttl: TTL,
            deadline: DEADLINE,
        };
        of.step(&domain(), &circumstances).unwrap()
    }

    fn follow(&self, of: &Succession, source: &Signer) -> Option<Succession> {
        of.follow(source, &domain(), self.now).unwrap()
    }
}

fn begin(clock: &Clock) -> Succession {
    Succession::begin(external(clock.now), &domain()).unwrap()
}

#[test]
fn a_replaced_root_signs_once_members_trust_it() {
    let mut clock = Clock::new();
    clock.spread = Spread::Missing(vec!["shop/cart".to_owned()]);
    let first = begin(&clock);
    let source = external(clock.now);
    let announcing = clock.follow(&first, &source).unwrap();
    assert_eq!(announcing.phase(), Phase::Announcing);
    assert_eq!(announcing.signer, first.signer, "the old root signs");
    assert_eq!(bundle(&announcing).certificates().len(), 2);
    assert!(trusts(&first, &announcing, clock.now));
    assert_eq!(clock.follow(&announcing, &source), None, "nothing is new");

    clock.passes(Duration::from_secs(60));
    assert_eq!(clock.step(&announcing), None, "a member does not trust it");
    clock.spread = Spread::Everywhere;
    let retiring = clock.step(&announcing).unwrap();
    assert_eq!(retiring.phase(), Phase::Retiring);
    assert_eq!(retiring.signer, source);
    assert!(trusts(&announcing, &retiring, clock.now));
    assert!(
        trusts(&retiring, &announcing, clock.now),
        "leaves of the old root are good"
    );
    assert!(
        trusts(&first, &retiring, clock.now),
        "a member that has not heard of the new root finds its way by the old one"
    );
    assert_eq!(clock.follow(&retiring, &source), None);

    clock.passes(TTL + SKEW - Duration::from_secs(1));
    assert_eq!(
        clock.step(&retiring),
        None,
        "a leaf of the old root may live"
    );
    clock.passes(Duration::from_secs(1));
    let steady = clock.step(&retiring).unwrap();
    assert_eq!(steady.phase(), Phase::Steady);
    assert!(!trusts(&steady, &first, clock.now));
    assert_eq!(steady, Succession::begin(source, &domain()).unwrap());
}

#[test]
fn announced_for_a_moment_is_not_enough_and_the_deadline_is() {
    let mut clock = Clock::new();
    let announcing = clock.follow(&begin(&clock), &external(clock.now)).unwrap();
    assert_eq!(
        clock.step(&announcing),
        None,
        "no client can have said so yet"
    );
    clock.passes(ANNOUNCED);
    assert!(clock.step(&announcing).is_some());
    clock.spread = Spread::Missing(vec!["shop/cart".to_owned()]);
    assert_eq!(clock.step(&announcing), None);
    clock.passes(DEADLINE);
    assert_eq!(clock.step(&announcing).unwrap().phase(), Phase::Retiring);
}

#[test]
fn a_second_replacement_replaces_what_is_only_announced() {
    let mut clock = Clock::new();
    let first = begin(&clock);
    let (second, third) = (external(clock.now), external(clock.now));
    let announcing = clock.follow(&first, &second).unwrap();
    let again = clock.follow(&announcing, &third).unwrap();
    assert_eq!(again.signer, first.signer);
    assert_eq!(
        bundle(&again).certificates().len(),
        2,
        "the second one never signed"
    );
    clock.passes(ANNOUNCED);
    let retiring = clock.step(&again).unwrap();
    assert_eq!(retiring.signer, third);
    assert!(trusts(&retiring, &first, clock.now) && trusts(&first, &retiring, clock.now));
    // Back to the authority that signs now.
    let fourth = external(clock.now);
    let announcing = clock.follow(&retiring, &fourth).unwrap();
    let back = clock.follow(&announcing, &third).unwrap();
    assert_eq!(back, retiring);
}

#[test]
fn a_replacement_while_an_older_root_retires_keeps_all_three() {
    let mut clock = Clock::new();
    let first = begin(&clock);
    let announcing = clock.follow(&first, &external(clock.now)).unwrap();
    clock.passes(ANNOUNCED);
    let second = clock.step(&announcing).unwrap();
    let third = external(clock.now);
    let announcing = clock.follow(&second, &third).unwrap();
    assert_eq!(bundle(&announcing).certificates().len(), 3);
    clock.passes(ANNOUNCED);
    let retiring = clock.step(&announcing).unwrap();
    for leaf in [&first, &second, &retiring] {
        assert!(trusts(&retiring, leaf, clock.now));
    }
    clock.passes(TTL + SKEW);
    let steady = clock.step(&retiring).unwrap();
    assert_eq!(bundle(&steady).certificates().len(), 1);
}

#[test]
fn what_cannot_be_used_is_refused_and_changes_nothing() {
    let clock = Clock::new();
    let first = begin(&clock);
    let (one, other) = (external(clock.now), external(clock.now));
    let refused = |source: Signer| first.follow(&source, &domain(), clock.now).unwrap_err();
    let key = Signer {
        private_key: other.private_key.clone(),
        ..one.clone()
    };
    assert!(refused(key).to_string().contains("key"));
    let nonsense = Signer {
        certificate: "nonsense".to_owned(),
        ..one.clone()
    };
    refused(nonsense);
    // The bundle of another authority: all members would be locked out.
    let bundle = Signer {
        bundle: other.bundle.clone(),
        ..one
    };
    assert!(matches!(refused(bundle), SuccessionError::Unvouched));
    let own = Signer {
        bundle: other.bundle,
        ..first.signer.clone()
    };
    assert!(matches!(refused(own), SuccessionError::Unvouched));
}

#[test]
fn a_root_that_comes_with_the_signature_of_the_old_one_signs_at_once() {
    let clock = Clock::new();
    let first = begin(&clock);
    let old = authority(&first.signer);
    let new = Authority::create(&domain(), clock.now.into()).unwrap();
    let both = new.bundle().unwrap().union(&old.bundle().unwrap()).unwrap();
    let crossed = Signer {
        bundle: Some(both.to_pem()),
        chain: Some(new.crossed_by(&old, clock.now.into()).unwrap()),
        ..of(&new)
    };
    let rotated = clock.follow(&first, &crossed).unwrap();
    assert_eq!(
        (rotated.phase(), &rotated.signer),
        (Phase::Steady, &crossed)
    );
    assert!(trusts(&first, &rotated, clock.now));
    // `--finish`: the same key signs, and the operator removes the old root.
    let finished = clock.follow(&rotated, &of(&new)).unwrap();
    assert_eq!(bundle(&finished).certificates().len(), 1);
    assert_eq!(finished.phase(), Phase::Steady);
}

#[test]
fn roots_that_only_come_beside_hold_at_once_and_sign_later() {
    let mut clock = Clock::new();
    let first = begin(&clock);
    let next = external(clock.now);
    let both = bundle(&first)
        .union(&next.ca(&domain()).unwrap().bundle)
        .unwrap();
    let beside = Signer {
        bundle: Some(both.to_pem()),
        ..first.signer.clone()
    };
    let reported = clock.follow(&first, &beside).unwrap();
    assert_eq!(
        (reported.phase(), bundle(&reported).certificates().len()),
        (Phase::Steady, 2)
    );
    // Whether all clients have acknowledged it is checked, not assumed.
    let signs = Signer {
        bundle: Some(both.to_pem()),
        ..next
    };
    let announcing = clock.follow(&reported, &signs).unwrap();
    assert_eq!(announcing.phase(), Phase::Announcing);
    clock.passes(ANNOUNCED);
    let then = clock.step(&announcing).unwrap();
    assert_eq!(
        (then.phase(), &then.signer),
        (Phase::Steady, &signs),
        "it keeps both itself"
    );
}

/// The writer is killed after any step, and the next writer has only the stored state.
#[test]
fn another_writer_goes_on_from_what_was_written_down() {
    let mut clock = Clock::new();
    let mut now = begin(&clock);
    let source = external(clock.now);
    let mut phases = Vec::new();
    loop {
        let next = clock.follow(&now, &source).or_else(|| clock.step(&now));
        let Some(next) = next else { break };
        now = Succession::from_json(next.to_json().as_bytes(), &domain()).unwrap();
        assert_eq!(now, next);
        phases.push(now.phase());
        clock.passes(TTL + SKEW);
    }
    assert_eq!(phases, [Phase::Announcing, Phase::Retiring, Phase::Steady]);
    assert!(Succession::from_json(b"{}", &domain()).is_err());
}
