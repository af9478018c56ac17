//! A pod moves under random events: the operator crashes or acts on stale observations, the scheduler puts
//! pods elsewhere or nowhere, budgets forbid evictions, users scale, roll out and delete. At no time are there fewer
//! pods than desired, at most one move is in progress, and in the end no move is, and the number of pods is the desired
//! one.

mod fixture;

use maglor_controller::placement::affinity::choose;
use proptest::prelude::*;

use fixture::{Fixture, Happens};

fn happenings() -> impl Strategy<Value = Vec<Happens>> {
    let one = prop_oneof![
        3 => Just(Happens::Begin),
        8 => Just(Happens::Look),
        8 => Just(Happens::Act),
        1 => Just(Happens::Crash),
        8 => Just(Happens::ReplicaSets),
        4 => Just(Happens::Deployment),
        6 => (0..4u8).prop_map(Happens::Schedule),
        6 => Just(Happens::Ready),
        6 => Just(Happens::End),
        3 => (1..40i64).prop_map(Happens::Time),
        1 => (1..4usize).prop_map(Happens::Scale),
        1 => Just(Happens::Rollout),
        1 => any::<bool>().prop_map(Happens::Budget),
    ];
    proptest::collection::vec(one, 0..250)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn there_are_never_too_few_and_all_comes_to_an_end(happenings in happenings()) {
        let mut fixture = Fixture::new(3);
        for one in &happenings {
            fixture.make(one);
            fixture.check(one);
        }
        fixture.settle();
        fixture.check_end();
    }

    #[test]
    fn what_is_deleted_leaves_nothing_behind(happenings in happenings()) {
        let mut fixture = Fixture::new(2);
        for one in &happenings {
            fixture.make(one);
        }
        fixture.make(&Happens::Delete);
        fixture.make(&Happens::Budget(false));
        fixture.settle();
        prop_assert_eq!(fixture.pods().count(), 0);
    }
}

/// The new pod first, then the old one goes.
#[test]
fn a_move_is_begun_and_ended() {
    let mut fixture = Fixture::new(3);
    fixture.make(&Happens::Begin);
    let steps = fixture.settle();
    assert_eq!(steps, ["evict"]);
    assert_eq!(fixture.nodes(), ["n1", "n1", "n2"]);
    fixture.check_end();
}

#[test]
fn a_pod_that_lands_elsewhere_is_given_up() {
    let mut fixture = Fixture::new(3);
    fixture.obeys = false;
    fixture.make(&Happens::Begin);
    let steps = fixture.settle();
    assert_eq!(steps, ["mark", "give back", "clear"]);
    assert_eq!(fixture.nodes(), ["n1", "n1", "n1"]);
    fixture.check_end();
}

/// As long as a budget forbids it the old pod stays, and with it one more than wanted.
#[test]
fn a_budget_is_kept() {
    let mut fixture = Fixture::new(3);
    fixture.make(&Happens::Budget(true));
    fixture.make(&Happens::Begin);
    fixture.settle();
    assert_eq!(fixture.pods().count(), 4);
    fixture.make(&Happens::Budget(false));
    assert_eq!(fixture.settle(), ["evict"]);
    fixture.check_end();
}

/// New pods reach the desired placement one after another, from any previous placement.
#[test]
fn new_pods_come_to_the_spread_that_is_wanted() {
    for (wanted, expected) in [
        (vec![("n2", 3)], vec!["n2", "n2", "n2"]),
        (vec![("n1", 1), ("n2", 2)], vec!["n1", "n2", "n2"]),
        (
            vec![("n1", 1), ("n2", 1), ("n3", 1)],
            vec!["n1", "n2", "n3"],
        ),
    ] {
        let wanted = wanted
            .into_iter()
            .map(|(node, count)| (node.to_owned(), count))
            .collect();
        let mut siblings = Vec::new();
        for name in ["a", "b", "c"] {
            let place = choose(&wanted, &siblings, None).unwrap();
            siblings.push(fixture::sibling(name, &place.node));
        }
        let mut nodes: Vec<_> = siblings
            .iter()
            .filter_map(|pod| pod.node.as_deref())
            .collect();
        nodes.sort_unstable();
        assert_eq!(nodes, expected);
    }
}
