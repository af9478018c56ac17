//! Lines that the user types while the demo runs.

use std::io::{self, IsTerminal as _, Stdin, stdin};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use super::fault::{FaultError, Line};

/// The interval at which a job in the background looks whether it is in the foreground.
const LOOK: Duration = Duration::from_millis(300);

/// The commands, a line each.
macro_rules! commands {
    () => {
        "  slow reviews-2      add 500 ms to each request
  fail reviews-2      fail 30 % of its requests with 500
  kill ratings-1      kill its proxy and its server
  heal ratings-1      undo, and restart what was killed
  help                show this list
  quit"
    };
}
pub(super) use commands;

/// Returns whether there is a terminal that this process may read and draw on: not as a job in the background.
pub(super) fn is_interactive() -> bool {
    let terminal = stdin();
    terminal.is_terminal() && is_foreground(&terminal)
}

/// Reads lines typed on a terminal; without one there are none. The thread that waits for them ends with the process.
pub(super) fn lines() -> UnboundedReceiver<Result<Line, FaultError>> {
    let (sender, lines) = mpsc::unbounded_channel();
    if stdin().is_terminal() {
        let read = move || {
            while let Ok(Some(line)) = next() {
                if sender.send(line.parse()).is_err() {
                    return;
                }
            }
        };
        // Without it nothing can be typed; the demo runs all the same.
        let _ = thread::Builder::new().name("lines".into()).spawn(read);
    }
    lines
}

/// Waits for a line without reading in the background, for which the kernel would stop the process (SIGTTIN).
fn next() -> io::Result<Option<String>> {
    let terminal = stdin();
    let limit = Timespec::try_from(LOOK).map_err(io::Error::other)?;
    loop {
        let mut ready = [PollFd::new(&terminal, PollFlags::IN)];
        poll(&mut ready, Some(&limit))?;
        if ready[0].revents().is_empty() {
            continue;
        }
        if is_foreground(&terminal) {
            let mut line = String::new();
            let length = terminal.read_line(&mut line)?;
            return Ok((length > 0).then_some(line));
        }
        // What is ready is for the shell.
        thread::sleep(LOOK);
    }
}

fn is_foreground(terminal: &Stdin) -> bool {
    tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp())
}
