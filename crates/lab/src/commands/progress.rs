//! Progress bars, on standard error, if that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Shows a bar for this number of runs, from now on.
pub(crate) fn bar(runs: u64) -> ProgressBar {
    let style = "{bar:40} {pos}/{len} runs, {elapsed} passed, {eta} left";
    let style = ProgressStyle::with_template(style).expect("the template is well-formed");
    let bar = ProgressBar::new(runs).with_style(style);
    bar.tick();
    // Long runs end rarely; the displayed time continues between them.
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

/// Shows a bar for a run of this many seconds, whose message is set once a second.
pub(crate) fn seconds(length: u64) -> ProgressBar {
    let style = "{bar:40} {pos}/{len} s, {msg}";
    let style = ProgressStyle::with_template(style).expect("the template is well-formed");
    let bar = ProgressBar::new(length).with_style(style);
    bar.tick();
    bar
}
