use maglor_identity::{LeafRequest, SpiffeId};

use super::*;

const TTL: Duration = Duration::from_secs(24 * 3600);
const DEADLINE: Duration = Duration::from_secs(3600);

fn domain() -> TrustDomain {
    "mesh.example".parse().unwrap()
}

/// A clock that tests move.
struct Fixture {
    now: Timestamp,
    spread: Spread,
}

impl Fixture {
    fn new() -> Self {
        Self {
            now: "2026-11-21T12:00:00Z".parse().unwrap(),
            spread: Spread::Missing(vec!["shop/cart".to_owned()]),
        }
    }

    fn passes(&mut self, time: Duration) {
        self.now += SignedDuration::try_from(time).unwrap();
    }

    fn step(&self, stored: &Stored) -> Option<Stored> {
        let circumstances = Circumstances {
            now: self.now,
            spread: &self.spread,
            ttl: TTL,
            deadline: DEADLINE,
        };
        stored.step(&domain(), &circumstances).unwrap()
    }
}

fn asked(mut stored: Stored, what: &str) -> Stored {
    stored
        .annotations
        .insert(ROTATE.to_owned(), what.to_owned());
    stored
}

fn roots(stored: &Stored) -> usize {
    stored.ca(&domain()).unwrap().bundle.certificates().len()
}

/// Whether a leaf that `issuer` signs now is trusted with the bundle of `verifier`.
fn trusts(verifier: &Stored, issuer: &Stored, now: Timestamp) -> bool {
    let id = SpiffeId::workload(&domain(), "shop", "cart").unwrap();
    let issuer = issuer.ca(&domain()).unwrap();
    let issued = issuer
        .authority
        .issue(&LeafRequest::new(id), now.into())
        .unwrap();
    let key = issued.private_key_pem.unwrap();
    let identity =
        maglor_identity::Identity::from_pem(issued.certificate_pem.as_bytes(), key.as_bytes());
    let bundle = verifier.ca(&domain()).unwrap().bundle;
    let live = maglor_identity::Live::new(identity.unwrap(), bundle).unwrap();
    live.is_trusted(now.into())
}

#[test]
fn a_root_is_replaced_in_three_steps_without_losing_clients() {
    let mut fixture = Fixture::new();
    let first = Stored::create(&domain(), fixture.now).unwrap();
    assert_eq!((first.phase(), roots(&first)), (Phase::Steady, 1));
    assert_eq!(fixture.step(&first), None, "no request yet");

    let first = asked(first, "1");
    let announcing = fixture.step(&first).unwrap();
    assert_eq!(
        (announcing.phase(), roots(&announcing)),
        (Phase::Announcing, 2)
    );
    assert!(
        trusts(&first, &announcing, fixture.now),
        "the old root signs"
    );

    fixture.passes(Duration::from_secs(60));
    assert_eq!(
        fixture.step(&announcing),
        None,
        "a client does not trust it yet"
    );
    fixture.spread = Spread::Everywhere;
    let retiring = fixture.step(&announcing).unwrap();
    assert_eq!((retiring.phase(), roots(&retiring)), (Phase::Retiring, 2));
    assert_ne!(retiring.data[CERTIFICATE], first.data[CERTIFICATE]);
    assert!(trusts(&announcing, &retiring, fixture.now));
    assert!(
        trusts(&retiring, &announcing, fixture.now),
        "leaves of the old root are good"
    );
    assert!(
        trusts(&first, &retiring, fixture.now),
        "who has not heard of the new root finds the way by the old one"
    );

    fixture.passes(TTL);
    assert_eq!(
        fixture.step(&retiring),
        None,
        "a leaf of the old root may live"
    );
    fixture.passes(SKEW);
    let last = fixture.step(&retiring).unwrap();
    assert_eq!((last.phase(), roots(&last)), (Phase::Steady, 1));
    assert!(trusts(&last, &last, fixture.now));
    assert!(
        !trusts(&last, &first, fixture.now),
        "the old root is not trusted any more"
    );
    assert!(trusts(&retiring, &last, fixture.now));
    assert_eq!(fixture.step(&last), None, "what was asked for is done");
    assert!(
        fixture.step(&asked(last, "2")).is_some(),
        "and may be asked for again"
    );
}

#[test]
fn at_the_deadline_it_goes_on_without_those_that_are_missing() {
    let mut fixture = Fixture::new();
    let first = asked(Stored::create(&domain(), fixture.now).unwrap(), "1");
    let announcing = fixture.step(&first).unwrap();
    fixture.passes(DEADLINE);
    assert_eq!(fixture.step(&announcing).unwrap().phase(), Phase::Retiring);
}

#[test]
fn acknowledgements_at_the_same_moment_are_not_trusted() {
    let mut fixture = Fixture::new();
    fixture.spread = Spread::Everywhere;
    let first = asked(Stored::create(&domain(), fixture.now).unwrap(), "1");
    let announcing = fixture.step(&first).unwrap();
    assert_eq!(
        fixture.step(&announcing),
        None,
        "no client can have acknowledged it yet"
    );
    fixture.passes(ANNOUNCED);
    assert!(fixture.step(&announcing).is_some());
}

/// The leader is killed after each step, and the next leader has only the Secret. A step that was taken but not
/// written is repeated from the same state.
#[test]
fn after_a_crash_at_any_step_another_writer_goes_on() {
    let mut fixture = Fixture::new();
    fixture.spread = Spread::Everywhere;
    let mut stored = asked(Stored::create(&domain(), fixture.now).unwrap(), "1");
    let mut phases = Vec::new();
    for _ in 0..10 {
        fixture.passes(TTL + SKEW);
        // The step is taken and lost.
        let lost = fixture.step(&stored);
        let Some(next) = fixture.step(&stored) else {
            break;
        };
        assert_eq!(lost.map(|lost| lost.phase()), Some(next.phase()));
        assert!(trusts(&next, &stored, fixture.now) || next.phase() == Phase::Steady);
        phases.push(next.phase());
        // The next writer has only the stored state.
        stored = Stored {
            data: next.data.clone(),
            annotations: next.annotations.clone(),
        };
        assert!(stored.ca(&domain()).is_ok());
    }
    assert_eq!(phases, [Phase::Announcing, Phase::Retiring, Phase::Steady]);
}

#[test]
fn what_cannot_be_used_is_named() {
    let empty = Stored::default();
    let error = empty.ca(&domain()).unwrap_err().to_string();
    assert_eq!(error, "the Secret has no `tls.crt`");
    let mut wrong = Stored::create(&domain(), Fixture::new().now).unwrap();
    wrong.put(PRIVATE_KEY, "nonsense".to_owned());
    assert!(wrong.ca(&domain()).unwrap_err().to_string().contains("key"));
}
