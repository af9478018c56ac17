//! Output of the demo: a redrawn picture on a terminal, otherwise plain lines.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, stdout};
use std::time::Duration;

use maglor_balance::PolicySpec;
use maglor_telemetry::command_line::output;

use super::plan::Plan;
use super::tally::{Tally, Window};
use crate::demo::latencies::millis;

/// The length in characters of a bar for all requests.
const BAR: f64 = 60.0;

/// The statistics of a policy under load; its window is a second.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub(super) since: Duration,
    pub(super) recent: &'a Window,
    pub(super) outstanding: &'a [u64],
    pub(super) failures: u64,
}

#[derive(Debug)]
pub(super) struct Screen {
    terminal: bool,
    each: Duration,
    servers: usize,
    /// Lines of the picture on the terminal.
    drawn: usize,
}

impl Screen {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            terminal: stdout().is_terminal(),
            each: plan.each,
            servers: plan.servers,
            drawn: 0,
        }
    }

    pub(super) fn begin(&mut self, policy: &PolicySpec) {
        self.drawn = 0;
        output::print(&format!("{policy}\n"));
    }

    pub(super) fn draw(&mut self, frame: &Frame<'_>) {
        let text = if self.terminal {
            self.picture(frame)
        } else {
            self.line(frame)
        };
        output::print(&text);
    }

    pub(super) fn end(&mut self) {
        output::print("\n");
    }

    fn line(&self, frame: &Frame<'_>) -> String {
        let mut text = self.numbers(frame);
        text.push_str("  share");
        for share in frame.recent.shares() {
            let _ = write!(text, " {share:.0}");
        }
        text.push_str(" %  outstanding");
        for outstanding in frame.outstanding {
            let _ = write!(text, " {outstanding}");
        }
        text.push('\n');
        text
    }

    /// Draws the numbers, and a line for each server, over those of the last frame.
    fn picture(&mut self, frame: &Frame<'_>) -> String {
        let mut text = String::new();
        if self.drawn > 0 {
            // Cursor up, then rewrite each line.
            let _ = write!(text, "\x1b[{}A", self.drawn);
        }
        let mut lines = vec![self.numbers(frame)];
        let shares = frame.recent.shares();
        lines.extend(shares.enumerate().map(|(index, share)| {
            let bar = "#".repeat((share / 100.0 * BAR).round() as usize);
            let outstanding = frame.outstanding.get(index).copied().unwrap_or(0);
            let name = self.name(index);
            format!("    {name:<17} {share:>3.0} %  {outstanding:>3} outstanding  {bar}")
        }));
        self.drawn = lines.len();
        for line in lines {
            let _ = writeln!(text, "\x1b[2K{line}");
        }
        text
    }

    fn numbers(&self, frame: &Frame<'_>) -> String {
        let [p50, p99] = frame.recent.latencies.percentiles([50, 99]);
        format!(
            "  {:>3.0} of {:.0} s  {:>5} req/s  p50 {}  p99 {}  errors {}",
            frame.since.as_secs_f64(),
            self.each.as_secs_f64(),
            frame.recent.answers(),
            millis(p50),
            millis(p99),
            frame.failures,
        )
    }

    fn name(&self, server: usize) -> String {
        let slow = if server + 1 == self.servers {
            " (slow)"
        } else {
            ""
        };
        format!("server {}{slow}", server + 1)
    }
}

/// Returns the table at the end.
pub(super) fn summary(plan: &Plan, tallies: &[Tally]) -> String {
    let mut text = format!(
        "The same requests under each policy; server {} is slow, an even share is {:.0} %.\n\n\
         {:<24} {:>8} {:>7} {:>10} {:>10} {:>10}  {:>9}  {:>6}\n",
        plan.servers,
        100.0 / plan.servers as f64,
        "policy",
        "requests",
        "req/s",
        "mean",
        "p50",
        "p99",
        "slow got",
        "errors",
    );
    for (policy, tally) in plan.policies.iter().zip(tallies) {
        let total = &tally.total;
        let [p50, p99] = total.latencies.percentiles([50, 99]);
        let seconds = tally.took.as_secs_f64().max(f64::EPSILON);
        let _ = writeln!(
            text,
            "{:<24} {:>8} {:>7.0} {} {} {}  {:>7.1} %  {:>6}",
            policy.to_string(),
            total.answers(),
            total.answers() as f64 / seconds,
            millis(total.latencies.mean()),
            millis(p50),
            millis(p99),
            total.shares().last().unwrap_or(0.0),
            tally.failures(),
        );
    }
    text.push('\n');
    text.push_str(&verdict(plan, tallies));
    for (policy, tally) in plan.policies.iter().zip(tallies) {
        for reason in &tally.reasons {
            let _ = writeln!(text, "error under {policy}: {reason}");
        }
    }
    text
}

/// Describes the first policy in comparison with the others.
fn verdict(plan: &Plan, tallies: &[Tally]) -> String {
    if tallies.len() < plan.policies.len() {
        return "Ended early.\n".into();
    }
    let p99 = |tally: &Tally| tally.total.latencies.percentiles([99])[0];
    let Some(first) = p99(&tallies[0]).filter(|first| !first.is_zero()) else {
        return "No answers.\n".into();
    };
    let mut text = String::new();
    for (policy, tally) in plan.policies.iter().zip(tallies).skip(1) {
        if let Some(other) = p99(tally) {
            let factor = other.as_secs_f64() / first.as_secs_f64();
            let _ = writeln!(
                text,
                "p99 with {policy} is {factor:.1} times that with {}.",
                plan.policies[0],
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(millis: u64, failures: bool) -> Tally {
        let mut tally = Tally::new(4);
        for server in 0..4 {
            tally.answered(server, Duration::from_millis(millis));
        }
        tally.took = Duration::from_secs(2);
        if failures {
            tally.failed(&crate::demo::client::Failure::Timeout);
        }
        tally
    }

    #[test]
    fn the_summary_compares() {
        let plan = Plan::new(&"lor(choices=2)".parse().unwrap(), 4, 6);
        let tallies = [tally(10, false), tally(50, true), tally(20, false)];
        let text = summary(&plan, &tallies);
        assert!(text.contains("p99 with random is 5.0 times"), "{text}");
        assert!(
            text.contains("error under random: timeout after 15s"),
            "{text}"
        );
        assert!(text.contains("25.0 %"), "{text}");
    }

    #[test]
    fn an_early_end_is_said() {
        let plan = Plan::new(&"lor(choices=2)".parse().unwrap(), 4, 6);
        let text = summary(&plan, &[tally(10, false)]);
        assert!(
            text.contains("Ended early") && !text.contains("random"),
            "{text}"
        );
    }
}
