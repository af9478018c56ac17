use std::time::Duration;

use maglor_balance::Rng;

use super::*;
use crate::advise::VersionUse;

fn version(name: &str, weight: u32, replicas: u32) -> VersionUse {
    VersionUse {
        name: name.to_owned(),
        subset: false,
        weight,
        replicas,
        rps: f64::from(weight),
        latency_ms: 10.0,
        failures: 0.0,
    }
}

fn divided(versions: Vec<VersionUse>) -> SplitUse {
    SplitUse {
        service: "shop/web".to_owned(),
        port: 80,
        versions,
    }
}

fn at(minute: u64) -> Time {
    Time::ZERO + Duration::from_secs(60 * minute)
}

fn weights(advice: &SplitAdvice) -> Vec<u32> {
    let versions = advice.versions.iter();
    versions.map(|one| one.weight.value).collect()
}

/// Applies the recommended weights, minute by minute; `fares` returns the observations of the versions.
fn followed(
    versions: &[VersionUse],
    minutes: u64,
    mut fares: impl FnMut(u64, &mut VersionUse),
) -> Vec<Vec<u32>> {
    let params = Params::default();
    let (mut track, mut now) = (SplitTrack::default(), versions.to_vec());
    let mut all = Vec::new();
    for minute in 0..minutes {
        for one in &mut now {
            one.rps = f64::from(one.weight);
            fares(minute, one);
        }
        track.observe(at(minute), &divided(now.clone()), &params);
        if let Some(advice) = track.decided.clone() {
            for (one, advised) in now.iter_mut().zip(&advice.versions) {
                one.weight = advised.weight.value;
                assert!(!advised.weight.reason.is_empty());
            }
        }
        all.push(now.iter().map(|one| one.weight).collect());
    }
    all
}

#[test]
fn a_version_that_does_well_grows_to_the_share_of_its_replicas() {
    let versions = [version("v1", 95, 3), version("v2", 5, 2)];
    let all = followed(&versions, 10, |_, _| {});
    let v2: Vec<u32> = all.iter().map(|weights| weights[1]).collect();
    assert_eq!(v2[..5], [15, 25, 35, 40, 40]);
    assert_eq!(all.last().unwrap(), &[60, 40]);
}

#[test]
fn a_version_that_fails_goes_back_and_does_not_return_by_itself() {
    let versions = [version("v1", 50, 1), version("v2", 50, 1)];
    let fails = |share: f64| {
        move |minute: u64, one: &mut VersionUse| {
            let fails = one.name == "v2" && (2..10).contains(&minute);
            one.failures = if fails { one.rps * share } else { 0.0 };
        }
    };
    let all = followed(&versions, 20, fails(0.1));
    let v2: Vec<u32> = all.iter().map(|weights| weights[1]).collect();
    assert_eq!(v2[..6], [50, 50, 30, 10, 0, 0]);
    assert_eq!(*v2.last().unwrap(), 0);
    let all = followed(&versions, 20, fails(0.9));
    assert!(all.iter().all(|weights| weights.iter().sum::<u32>() == 100));
    let gone = all.iter().position(|weights| weights[1] == 0).unwrap();
    assert!(gone <= 3, "half of them fail in the second minute: {all:?}");
}

#[test]
fn a_slow_version_loses_share_until_it_recovers() {
    // Its response times follow its load: 10 ms up to a third of the requests.
    let versions = [version("v1", 40, 1), version("v2", 60, 1)];
    let all = followed(&versions, 60, |_, one| {
        let load = f64::from(one.weight);
        one.latency_ms = match &*one.name {
            "v2" => 10.0 * (load / 33.0).max(1.0),
            _ => 10.0,
        };
    });
    let rests: Vec<u32> = all[10..30].iter().map(|weights| weights[1]).collect();
    assert!(rests.iter().all(|weight| *weight == rests[0]), "{rests:?}");
    assert!((20..=50).contains(&rests[0]), "{rests:?}");
}

#[test]
fn too_few_calls_say_nothing_and_noise_moves_nothing() {
    let versions = [version("v1", 99, 1), version("v2", 1, 1)];
    let params = Params::default();
    let mut track = SplitTrack::default();
    track.observe(at(0), &divided(Vec::from(versions)), &params);
    let advice = track.decided.clone().unwrap();
    assert_eq!(weights(&advice), [99, 1]);
    assert!(advice.versions[1].weight.reason.contains("too few"));

    let seed = 5;
    println!("seed {seed}");
    let mut rng = Rng::seed(seed);
    let versions = [version("v1", 67, 2), version("v2", 33, 1)];
    let all = followed(&versions, 60, |_, one| {
        let noise = |rng: &mut Rng| 0.8 + 0.4 * rng.unit();
        one.rps *= noise(&mut rng);
        one.latency_ms = 10.0 * noise(&mut rng);
        one.failures = 0.005 * one.rps * noise(&mut rng);
    });
    assert!(all.iter().all(|weights| weights == &[67, 33]), "{all:?}");
}

#[test]
fn who_gets_nothing_or_all_stays_so() {
    let params = Params::default();
    let mut track = SplitTrack::default();
    let versions = vec![
        version("v1", 70, 1),
        version("v2", 0, 5),
        version("v3", 30, 1),
    ];
    track.observe(at(0), &divided(versions), &params);
    assert_eq!(weights(&track.decided.clone().unwrap()), [60, 0, 40]);
    let versions = vec![version("v1", 5, 1), version("v2", 0, 5)];
    track.observe(at(1), &divided(versions), &params);
    assert_eq!(track.decided.clone(), None, "nothing is divided");
    let unknown = vec![version("v1", 70, 0), version("v2", 30, 1)];
    track.observe(at(2), &divided(unknown), &params);
    assert_eq!(weights(&track.decided.clone().unwrap()), [70, 30]);
}

/// For any observations, the sum of weights is 100, versions with weight 0 stay at 0, and no version loses more than
/// two steps unless it is broken, or gains weight while it is worse. The order of versions does not matter.
#[test]
fn steps_are_bounded_whatever_is_observed() {
    let params = Params::default();
    for seed in 0..2000 {
        let mut rng = Rng::seed(seed);
        let count = 2 + (rng.unit() * 4.0) as usize;
        let versions: Vec<VersionUse> = (0..count)
            .map(|at| {
                let draw = |rng: &mut Rng, most: f64| rng.unit() * most;
                let rps = draw(&mut rng, 100.0);
                VersionUse {
                    name: format!("v{at}"),
                    subset: false,
                    weight: draw(&mut rng, 60.0) as u32,
                    replicas: draw(&mut rng, 5.0) as u32,
                    rps,
                    latency_ms: 5.0 + draw(&mut rng, 20.0),
                    failures: rps * rng.unit().powi(6),
                }
            })
            .collect();
        let decided = |versions: Vec<VersionUse>| {
            let mut track = SplitTrack::default();
            track.observe(at(0), &divided(versions), &params);
            track.decided.clone()
        };
        let Some(advice) = decided(versions.clone()) else {
            continue;
        };
        assert_eq!(weights(&advice).iter().sum::<u32>(), 100, "seed {seed}");
        for (one, input) in advice.versions.iter().zip(&versions) {
            let (from, to) = (one.present, one.weight.value);
            assert!(from > 0 || to == 0, "seed {seed}: {advice:?}");
            let broken = input.failures > 0.4 * input.rps;
            assert!(
                broken || from.saturating_sub(to) <= 20,
                "seed {seed}: {advice:?}"
            );
        }
        let mut turned = versions;
        turned.reverse();
        let mut turned = weights(&decided(turned).unwrap());
        turned.reverse();
        let same = weights(&advice);
        // Of equal remainders the first one gets more, for present weights and for moved ones.
        let off = turned
            .iter()
            .zip(&same)
            .map(|(one, other)| one.abs_diff(*other));
        assert!(off.max() <= Some(2), "seed {seed}: {turned:?} {same:?}");
    }
}

#[test]
fn parts_of_a_whole_add_up() {
    assert_eq!(apportion(100, &[1, 1, 1]), [34, 33, 33]);
    assert_eq!(apportion(100, &[0, 0]), [0, 0]);
    assert_eq!(apportion(7, &[u32::MAX, u32::MAX]), [4, 3]);
    assert_eq!(apportion(100, &[70, 30]), [70, 30]);
}
