//! Output while the demo runs: a redrawn picture on a terminal, otherwise plain lines.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, stdout};
use std::time::Duration;

use maglor_telemetry::command_line::output;

use super::flow::{Flow, Flows};
use super::prompt;
use super::record::Pages;
use crate::demo::latencies::millis;

/// The interval between frames, in seconds: the numbers of a frame are per second.
#[derive(Debug)]
pub(super) struct Screen {
    terminal: bool,
    /// Whether nothing is shown, because the summary is for a program.
    silent: bool,
    length: Duration,
    /// The time of the last frame, to compute rates.
    last: Duration,
    /// The number of lines of the picture on the terminal.
    drawn: usize,
}

impl Screen {
    pub(super) fn new(length: Duration, silent: bool) -> Self {
        Self {
            terminal: stdout().is_terminal() && prompt::is_interactive(),
            silent,
            length,
            last: Duration::ZERO,
            drawn: 0,
        }
    }

    /// Shows the title of a new stage, below the previous output.
    pub(super) fn title(&mut self, title: &str) {
        self.print(&format!("{title}\n"));
    }

    /// Shows an unplanned event.
    pub(super) fn note(&mut self, note: &str) {
        self.print(&format!("  {note}\n"));
    }

    fn print(&mut self, text: &str) {
        self.drawn = 0;
        if !self.silent {
            output::print(text);
        }
    }

    pub(super) fn draw(&mut self, since: Duration, pages: &Pages, flows: &Flows) {
        let seconds = since
            .saturating_sub(self.last)
            .as_secs_f64()
            .max(f64::EPSILON);
        self.last = since;
        if self.silent {
            return;
        }
        let mut lines = vec![self.numbers(since, seconds, pages)];
        if self.terminal {
            let edges = flows.edges.iter();
            lines.extend(edges.map(|(edge, flow)| line(&edge.to_string(), flow, seconds)));
        } else if let Some(numbers) = lines.last_mut() {
            let sum = |of: fn(&Flow) -> f64| flows.edges.iter().map(|(_, flow)| of(flow)).sum();
            let (retries, ejections): (f64, f64) =
                (sum(|flow| flow.retries), sum(|flow| flow.ejections));
            let _ = write!(numbers, "  retries {retries:.0}  ejections {ejections:.0}");
        }
        output::print(&self.picture(&lines));
    }

    fn numbers(&self, since: Duration, seconds: f64, pages: &Pages) -> String {
        let [p50, p99] = pages.latencies.percentiles([50, 99]);
        format!(
            "  {:>3.0} of {:.0} s  {:>5.0} req/s  {:>6.2} % ok  p50 {}  p99 {}",
            since.as_secs_f64(),
            self.length.as_secs_f64(),
            pages.latencies.count() as f64 / seconds,
            pages.success(),
            millis(p50),
            millis(p99),
        )
    }

    /// Draws the lines, on a terminal over those of the last frame.
    fn picture(&mut self, lines: &[String]) -> String {
        let mut text = String::new();
        if self.terminal && self.drawn > 0 {
            // Cursor up, then rewrite each line.
            let _ = write!(text, "\x1b[{}A", self.drawn);
        }
        let erase = if self.terminal { "\x1b[2K" } else { "" };
        for line in lines {
            let _ = writeln!(text, "{erase}{line}");
        }
        self.drawn = lines.len();
        text
    }
}

/// Formats an edge during a frame.
fn line(edge: &str, flow: &Flow, seconds: f64) -> String {
    let mutual = match flow.mutual_tls() {
        Some(percent) => format!("{percent:>3.0} %"),
        None => "  -  ".into(),
    };
    format!(
        "    {edge:<23} {:>5.0} req/s  p50 {}  p99 {}  retries {:>3.0}  ejected {:>2.0}  mTLS {mutual}",
        flow.requests() / seconds,
        millis(flow.percentile(50.0)),
        millis(flow.percentile(99.0)),
        flow.retries,
        flow.ejected,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(terminal: bool) -> Screen {
        Screen {
            terminal,
            ..Screen::new(Duration::from_secs(20), true)
        }
    }

    #[test]
    fn a_terminal_is_drawn_over_and_a_pipe_is_not() {
        let lines = ["one".to_owned(), "two".to_owned()];
        let mut pipe = screen(false);
        assert_eq!(pipe.picture(&lines), "one\ntwo\n");
        assert_eq!(pipe.picture(&lines), "one\ntwo\n");
        let mut terminal = screen(true);
        assert!(!terminal.picture(&lines).contains("\x1b[2A"));
        assert!(terminal.picture(&lines).starts_with("\x1b[2A"));
        terminal.note("something happened");
        assert!(!terminal.picture(&lines).contains("\x1b[2A"));
    }

    #[test]
    fn an_edge_without_requests_has_no_numbers() {
        let text = line("reviews → ratings", &Flow::default(), 1.0);
        assert!(
            text.contains("p99       - ms") && text.ends_with("mTLS   -  "),
            "{text}"
        );
    }
}
