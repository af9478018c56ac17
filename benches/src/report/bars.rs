//! The bars of a comparison: its required results, and whether they are reached.

use crate::bar::{Bar, beside_linkerd};
use crate::measure::{Phase, Results, metric};
use crate::peer::Subject;
use crate::scenario::{HEADLINE, LATENCY, Scenario};
use crate::stats;

/// Returns the bars that the executed phases can decide.
pub(super) fn bars(results: &Results, ran: &[Phase], peers: &[Subject], pair: bool) -> Vec<Bar> {
    let mut bars = Vec::new();
    let beside_linkerd = match pair {
        true => beside_linkerd::CPU_OF_PAIR,
        false => beside_linkerd::CPU,
    };
    if ran.contains(&Phase::Load) {
        for (peer, limit) in [
            (Subject::Haproxy, 1.0),
            (Subject::Nginx, 1.0),
            (Subject::Envoy, 0.25),
            (Subject::Linkerd, beside_linkerd),
        ] {
            if peers.contains(&peer) {
                let measured = ratio(results, HEADLINE, peer, metric::CPU);
                bars.push(Bar::at_most(
                    format!("CPU a request / {peer}'s"),
                    limit,
                    measured,
                ));
            }
        }
        if peers.contains(&Subject::Haproxy) {
            for name in [metric::P50, metric::P99] {
                let measured = added_over(results, LATENCY, Subject::Haproxy, name);
                let short = name.trim_end_matches("_us");
                bars.push(Bar::at_most(
                    format!("added {short} at 1000 req/s / HAProxy's"),
                    1.0,
                    measured,
                ));
            }
        }
    }
    let own = |phase, metric| results.median(phase, None, Subject::Maglor, metric);
    if ran.contains(&Phase::Idle) {
        let idle = own(Phase::Idle, metric::RSS_IDLE).map(|kb| kb / 1e3);
        bars.push(Bar::at_most("RSS idle, MB", 6.0, idle));
        let each = own(Phase::Idle, metric::PER_CONNECTION);
        bars.push(Bar::at_most("kB an idle keep-alive connection", 3.0, each));
        let after = own(Phase::Burst, metric::AFTER_RATIO);
        bars.push(Bar::at_most(
            "RSS 10 s after 2000 connections / idle",
            1.3,
            after,
        ));
    }
    if ran.contains(&Phase::Startup) {
        bars.push(Bar::at_most(
            "start to ready, ms",
            15.0,
            own(Phase::Startup, metric::READY),
        ));
        bars.push(Bar::at_most(
            "stripped binary, MB",
            10.0,
            own(Phase::Size, metric::BINARY),
        ));
    }
    bars
}

/// Returns the ratio of Maglor's value to that of `peer`, paired by round.
pub(super) fn ratio(results: &Results, cell: Scenario, peer: Subject, metric: &str) -> Option<f64> {
    let own = results.series(Phase::Load, Some(cell), Subject::Maglor, metric);
    let other = results.series(Phase::Load, Some(cell), peer, metric);
    stats::paired_ratio(&own, &other)
}

/// Returns the latency that `subject` adds to the direct latency, paired by round.
pub(super) fn added(
    results: &Results,
    cell: Scenario,
    subject: Subject,
    metric: &str,
) -> Option<f64> {
    let own = results.series(Phase::Load, Some(cell), subject, metric);
    let direct = results.series(Phase::Load, Some(cell), Subject::Direct, metric);
    stats::paired_difference(&own, &direct)
}

/// Returns the ratio of the latency that Maglor adds to that of `peer`; none if `peer` adds nothing.
pub(super) fn added_over(
    results: &Results,
    cell: Scenario,
    peer: Subject,
    metric: &str,
) -> Option<f64> {
    let own = added(results, cell, Subject::Maglor, metric)?;
    let other = added(results, cell, peer, metric)?;
    (other > 0.0).then_some(own / other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Record;

    #[test]
    fn verdicts_follow_the_ratio() {
        let mut results = Results::new(Box::new(std::io::sink())).unwrap();
        let peers = [
            (Subject::Maglor, 18.0),
            (Subject::Haproxy, 20.0),
            (Subject::Envoy, 60.0),
        ];
        for (subject, cpu) in peers {
            let (phase, scenario) = (Phase::Load, Some(HEADLINE));
            let values = vec![(metric::CPU, cpu)];
            results
                .add(Record {
                    phase,
                    round: 0,
                    subject,
                    scenario,
                    values,
                })
                .unwrap();
        }
        let bars = bars(
            &results,
            &[Phase::Load],
            &[Subject::Haproxy, Subject::Envoy],
            false,
        );
        let reached: Vec<_> = bars.iter().take(2).map(Bar::is_reached).collect();
        assert_eq!(reached, [true, false]);
        assert!(!bars[2].is_reached(), "an unmeasured bar is not reached");
    }
}
