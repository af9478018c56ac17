//! `maglor top`: repeats `stat`, the busiest first.

use std::io::{IsTerminal as _, stdout};
use std::process::ExitCode;
use std::time::Duration;

use maglor_config::raw::TimeSpan;
use maglor_terminal::output;
use tokio::sync::oneshot;

use super::LiveError;
use super::access::{Pods, Target, Where};
use super::stat::{self, By};
use super::table::{self, Format};
use super::traffic::{Observer, Traffic};

const EXAMPLES: &str = "\
Examples:
  Inbound requests of the workloads of this namespace:
    maglor top
  Calls between all services of the cluster:
    maglor top services -A
  Write three refreshes to a file:
    maglor top --count 3 > top.txt

On a terminal the table is redrawn; press q or Ctrl-C to stop. Otherwise tables are printed one after another.";

/// Moves the cursor home, and clears the screen below.
const CLEAR: &str = "\x1b[H\x1b[J";
/// Enters the alternate screen, and leaves it.
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Object to aggregate by.
    #[arg(value_enum, default_value_t)]
    by: By,

    /// Only proxies of this pod or workload.
    #[arg(long, value_name = "POD|WORKLOAD")]
    of: Option<Target>,

    /// Refresh interval.
    #[arg(long, value_name = "TIME", default_value = "2s")]
    every: TimeSpan,

    /// Exit after this many refreshes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// `table` or `wide`.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    pods: Pods,

    #[command(flatten)]
    place: Where,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    super::run(async {
        if matches!(options.output, Format::Json | Format::Yaml) {
            return Err(LiveError::Value {
                what: "--output",
                value: "json, yaml".to_owned(),
                expected: "use `maglor stat` for other formats",
            });
        }
        let proxies = options.place.proxies(&options.pods, options.of.as_ref());
        let observer = Observer::new(proxies.await?);
        let live = stdout().is_terminal() && options.count.is_none();
        if live {
            output::print(ENTER);
        }
        let done = tokio::select! {
            done = tables(options, observer, live) => done,
            () = left(live) => Ok(()),
            _ = tokio::signal::ctrl_c() => Ok(()),
        };
        if live {
            output::print(LEAVE);
        }
        done
    })
}

async fn tables(options: &Options, mut observer: Observer, live: bool) -> Result<(), LiveError> {
    observer.look().await?;
    let mut count = 0;
    while options.count.is_none_or(|most| count < most) {
        tokio::time::sleep(options.every.0.max(Duration::from_millis(100))).await;
        let traffic = observer.look().await?;
        let clear = if live { CLEAR } else { "" };
        output::print(&format!("{clear}{}\n", table(options, &traffic)));
        if output::has_ended() {
            break;
        }
        count += 1;
    }
    Ok(())
}

fn table(options: &Options, traffic: &Traffic) -> String {
    let time = Some(traffic.time);
    let mut text = match options.by {
        By::Workloads => {
            let mut lines = stat::asked(traffic, time);
            lines.sort_by(|a, b| {
                b.0.rps
                    .partial_cmp(&a.0.rps)
                    .unwrap_or(std::cmp::Ordering::Equal)
            });
            table::text(&lines, options.output)
        }
        By::Services => {
            let mut lines = stat::called(traffic, time);
            lines.sort_by(|a, b| {
                b.0.rps
                    .partial_cmp(&a.0.rps)
                    .unwrap_or(std::cmp::Ordering::Equal)
            });
            table::text(&lines, options.output)
        }
    };
    for (name, error) in &traffic.silent {
        text.push_str(&format!("{name}: {error}\n"));
    }
    text
}

/// Resolves when `q` is pressed; never resolves without a terminal.
async fn left(live: bool) {
    if !(live && std::io::stdin().is_terminal()) {
        return std::future::pending().await;
    }
    let (sender, pressed) = oneshot::channel();
    // Only this reads keys without a line break; the thread ends with the process.
    std::thread::spawn(move || {
        let terminal = console::Term::stdout();
        // Ctrl-C is an error here.
        while let Ok(key) = terminal.read_key() {
            if matches!(key, console::Key::Char('q' | 'Q') | console::Key::Escape) {
                break;
            }
        }
        // The receiver may have ended meanwhile.
        let _ = sender.send(());
    });
    let _ = pressed.await;
}
