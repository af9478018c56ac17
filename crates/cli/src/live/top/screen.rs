//! The terminal of `maglor top`: the event loop, and the restoration of the terminal.

use std::future::Future;
use std::io::{self, stdout};
use std::pin::pin;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, DisableMouseCapture, EnableMouseCapture, Event};
use ratatui::crossterm::execute;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::draw::draw;
use super::keys::{Next, handle};
use super::palette::Palette;
use super::state::State;
use super::view::View;

/// Interval of redrawing without an event, which updates the age of the data.
const REDRAW: Duration = Duration::from_secs(1);
/// Capacity of the queue of events, such as the characters of a pasted text.
const EVENTS: usize = 64;

/// Restores the terminal on drop, and before the message of a panic is printed.
struct Screen {
    terminal: DefaultTerminal,
    mouse: bool,
}

impl Screen {
    fn enter() -> io::Result<Self> {
        let terminal = ratatui::try_init().inspect_err(|_| ratatui::restore())?;
        // ratatui's hook leaves only raw mode and the alternate screen.
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore_rest();
            hook(panic);
        }));
        Ok(Self {
            terminal,
            mouse: false,
        })
    }

    fn draw(&mut self, state: &mut State, palette: Palette, now: Duration) -> io::Result<View> {
        if std::mem::replace(&mut self.mouse, state.mouse) != state.mouse {
            match state.mouse {
                true => execute!(stdout(), EnableMouseCapture)?,
                false => execute!(stdout(), DisableMouseCapture)?,
            }
        }
        let mut view = None;
        self.terminal.draw(|frame| {
            let area = frame.area();
            view = Some(draw(frame.buffer_mut(), area, state, palette, now));
        })?;
        // `draw` calls the closure once.
        Ok(view.unwrap_or_else(|| View::new(ratatui::layout::Rect::ZERO, &state.content())))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore_rest();
        ratatui::restore();
    }
}

/// Restores the rest of the terminal's state. Errors are ignored, because a closed terminal cannot be restored.
fn restore_rest() {
    let _ = execute!(stdout(), DisableMouseCapture, Show);
}

/// Shows a state until the user quits. `updates` are applied as they arrive.
pub(super) async fn show<U>(
    mut state: State,
    mut updates: mpsc::Receiver<U>,
    apply: impl Fn(&mut State, U, Duration),
) -> io::Result<()> {
    let palette = Palette::of_environment();
    let started = Instant::now();
    let mut ended = pin!(terminated()?);
    let mut screen = Screen::enter()?;
    let mut events = events();
    let mut has_keys = true;
    let mut redraw = tokio::time::interval(REDRAW);
    loop {
        let view = screen.draw(&mut state, palette, started.elapsed())?;
        tokio::select! {
            update = updates.recv() => match update {
                Some(update) => apply(&mut state, update, started.elapsed()),
                None => return Ok(()),
            },
            event = events.recv(), if has_keys => match event {
                Some(event) if handle(&mut state, &event, &view) == Next::Quit => return Ok(()),
                Some(_) => {}
                None => has_keys = false,
            },
            _ = redraw.tick() => {}
            () = &mut ended => return Ok(()),
        }
    }
}

/// Returns a future that resolves at a signal that ends the process.
fn terminated() -> io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}

/// Reads the terminal's events in a thread, which ends with the process.
fn events() -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(EVENTS);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                break;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use maglor_testkit::pty::Terminal;

    use super::*;

    #[test]
    #[ignore = "panics in a terminal, which the next test provides"]
    fn panics_in_a_terminal() {
        let mut screen = Screen::enter().unwrap();
        let mut state = State::new(crate::live::stat::By::Workloads, false);
        state.mouse = true;
        screen
            .draw(&mut state, Palette::new(true), Duration::ZERO)
            .unwrap();
        panic!("as expected");
    }

    #[test]
    fn a_panic_restores_the_terminal() {
        let terminal = Terminal::open(80, 24);
        let mut command = Command::new(std::env::current_exe().unwrap());
        let name = "live::top::screen::tests::panics_in_a_terminal";
        command.args([name, "--exact", "--ignored", "--nocapture"]);
        let mut child = terminal.spawn(command);
        assert!(!child.wait().unwrap().success());
        terminal.expect("as expected");
        assert!(!terminal.is_raw());
        let output = terminal.output();
        let at = |part: &str| output.rfind(part).unwrap_or_else(|| panic!("no {part:?}"));
        let message = at("as expected");
        // The screen, the mouse and the cursor are restored before the message, so that it can be read.
        for (taken, back) in [
            ("\x1b[?1049h", "\x1b[?1049l"),
            ("\x1b[?1000h", "\x1b[?1000l"),
        ] {
            assert!(at(taken) < message, "{output:?}");
            let left = output.find(back).unwrap_or_else(|| panic!("no {back:?}"));
            assert!(at(taken) < left && left < message, "{output:?}");
        }
        assert!(at("\x1b[?25l") < at("\x1b[?25h"), "{output:?}");
    }
}
