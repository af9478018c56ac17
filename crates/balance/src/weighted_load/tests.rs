use super::*;

fn candidates(set: &[(u32, f64)]) -> Vec<Candidate<usize>> {
    set.iter()
        .enumerate()
        .map(|(of, &(load, weight))| Candidate { of, load, weight })
        .collect()
}

fn compete(set: &[(u32, f64)], rng: &mut Rng) -> usize {
    let mut candidates = candidates(set);
    candidates.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    let mut contest = Contest::new();
    for candidate in candidates {
        contest.offer(candidate, rng, |_| Tie::Equal);
    }
    contest.winner(rng).unwrap()
}

#[test]
fn an_idle_set_is_shared_by_weight_exactly() {
    let mut rng = Rng::seed(1);
    for weights in [&[99.0, 1.0][..], &[3.0, 2.0, 1.0], &[10.0, 1.0, 1.0, 0.1]] {
        let set: Vec<_> = weights.iter().map(|&weight| (0, weight)).collect();
        let mut counts = vec![0.0; set.len()];
        for _ in 0..400_000 {
            counts[compete(&set, &mut rng)] += 1.0;
        }
        let sum: f64 = weights.iter().sum();
        for (count, weight) in counts.iter().zip(weights) {
            let mean = 400_000.0 * weight / sum;
            assert!((count - mean).abs() < 5.0 * f64::sqrt(mean), "{counts:?}");
        }
    }
}

#[test]
fn a_server_with_free_places_is_taken_before_one_without() {
    let mut rng = Rng::seed(2);
    for _ in 0..1000 {
        // Three requests for each unit of weight, but for one.
        assert_eq!(compete(&[(9, 3.0), (6, 2.0), (2, 1.0)], &mut rng), 2);
        assert_eq!(compete(&[(6, 3.0), (6, 2.0), (3, 1.0)], &mut rng), 0);
        // A server whose requests make no progress does not make its side look busy.
        assert_eq!(compete(&[(0, 3.0), (100, 2.0), (1, 1.0)], &mut rng), 0);
        assert_eq!(compete(&[(0, 500.0), (30, 500.0), (1, 1.0)], &mut rng), 0);
    }
}

#[test]
fn equal_weights_are_compared_by_whole_numbers() {
    let mut rng = Rng::seed(3);
    for _ in 0..1000 {
        let loads: Vec<(u32, f64)> = (0..6).map(|_| (rng.below(4), 7.0)).collect();
        let least = loads.iter().map(|(load, _)| *load).min();
        assert_eq!(Some(loads[compete(&loads, &mut rng)].0), least);
        let all = candidates(&loads);
        let first = all.iter().find(|one| Some(one.load) == least);
        let chosen = super::least(&all, unit_of(&all), &mut rng);
        assert_eq!(chosen, first.map(|one| one.of));
    }
}

#[test]
fn one_that_has_more_by_two_in_a_place_is_never_taken() {
    let mut rng = Rng::seed(4);
    for _ in 0..100_000 {
        let set: Vec<_> = (0..4)
            .map(|_| (rng.below(50), 0.01 + 20.0 * rng.unit()))
            .collect();
        let all = candidates(&set);
        let unit = unit_of(&all);
        let a_place = |at: usize| f64::from(set[at].0) * unit / set[at].1;
        let chosen = least(&all, unit, &mut rng).unwrap();
        let fewest = (0..4).map(a_place).fold(f64::INFINITY, f64::min);
        assert!(a_place(chosen) < fewest + 2.0, "{set:?}");
        // A limit is the greatest load that counts as no more.
        let (most, places) = (f64::from(rng.below(4)), all[0].weight / unit);
        let toss = rng.unit();
        let limit = limit(most, places, toss);
        assert!(limit == 0 || rounded(limit, places, toss) <= most);
        assert!(rounded(limit + 1, places, toss) > most);
    }
}
