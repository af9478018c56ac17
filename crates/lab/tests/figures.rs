//! The figures are complete, and show the expected results even after a short simulation.

use std::collections::BTreeSet;

use maglor_lab::chart::Figure;
use maglor_lab::figures::{Effort, studies};

use crate::support::{run, run_all};

fn last(figure: &Figure, name: &str) -> f64 {
    let series = figure.series.iter().find(|s| s.name == name).unwrap();
    series.points.last().unwrap().y
}

#[test]
fn every_scenario_makes_sense_and_every_figure_has_a_name_of_its_own() {
    let mut ids = BTreeSet::new();
    for study in studies(Effort::Quick) {
        for scenario in study.scenarios() {
            assert_eq!(scenario.check(), Ok(()), "{}", study.name());
        }
        // Drawing needs outcomes, whose values do not matter here.
        let outcome = run(&maglor_lab::des::Scenario {
            requests: 100,
            runs: 2,
            ..Default::default()
        });
        for figure in study.draw(&vec![outcome.clone(); study.scenarios().len()]) {
            assert!(ids.insert(figure.id.clone()), "{} twice", figure.id);
            for series in &figure.series {
                assert!(
                    series.points.is_sorted_by(|a, b| a.x < b.x),
                    "{}",
                    figure.id
                );
                assert!(series.points.iter().all(|p| p.low <= p.y && p.y <= p.high));
            }
        }
    }
    assert!(ids.len() > 20, "{ids:?}");
}

/// The preview is not misleading: random routing is near its exact value.
#[test]
fn a_quick_preview_says_so_and_is_near_the_theory() {
    let studies = studies(Effort::Quick);
    let study = studies
        .iter()
        .find(|one| one.ids().any(|id| id == "mean-n40-rho75"));
    let study = study.unwrap();
    let random = &study.scenarios()[0];
    assert_eq!((&*random.policy.to_string(), random.rho), ("random", 0.75));
    let outcome = run(random);
    let (mean, half_width) = (outcome.mean_ms.value, outcome.mean_ms.half_width);
    assert!((mean - 80.0).abs() < 4.0, "{mean} ± {half_width}");

    let figures = study.draw(&vec![outcome; study.scenarios().len()]);
    for figure in figures {
        assert_eq!(figure.stamp, Some("quick preview"));
        assert!(
            figure.caption[0].contains("95 % confidence intervals"),
            "{:?}",
            figure.caption
        );
        assert!(figure.x_log, "balancers are on a logarithmic axis");
    }
}

#[test]
fn fig_9_has_the_order_of_the_paper() {
    let effort = Effort::Custom {
        requests: 15_000,
        runs: 3,
    };
    let study = &studies(effort)[0];
    let figure = &study.draw(&run_all(study.scenarios()))[0];
    let ends = [
        "lor(choices=2)",
        "a-lsq(choices=2,overhead=10)",
        "lor(choices=2) + Proxy-Service",
        "ledger(group=40)",
    ]
    .map(|name| last(figure, name));
    assert!(ends.is_sorted_by(|a, b| a > b), "{ends:?}");
}
