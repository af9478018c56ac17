//! Actions of keys and the mouse.

use ratatui::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use super::columns::Column;
use super::state::{Mode, State};
use super::view::View;

/// The keys and their actions, the most important first.
pub(super) const HELP: [(&str, &str); 13] = [
    ("q", "quit"),
    ("?", "help"),
    ("/", "filter"),
    ("←→", "sort"),
    ("↑↓", "select"),
    ("Tab", "workloads, services"),
    ("r", "reverse"),
    ("Space", "pause"),
    (
        "R S L E N",
        "sort by rate, success, latency (p99), ejected, name",
    ),
    ("PgUp PgDn", "one page"),
    ("g G", "first, last row"),
    ("Esc", "remove the filter"),
    (
        "m",
        "mouse: select rows, sort by titles; takes the mouse from the terminal",
    ),
];

/// Number of rows by which one step of the mouse wheel moves.
const WHEEL: isize = 3;

/// Whether to continue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Next {
    Continue,
    Quit,
}

/// Handles an event of the terminal.
pub(super) fn handle(state: &mut State, event: &Event, view: &View) -> Next {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => {
            if key.modifiers.contains(KeyModifiers::CONTROL) {
                return control(key);
            }
            match state.mode {
                Mode::Browse => return browse(state, key.code),
                Mode::Filter => edit(state, key.code),
                Mode::Help => state.mode = Mode::Browse,
            }
        }
        Event::Mouse(mouse) => point(state, mouse, view),
        _ => {}
    }
    Next::Continue
}

/// In raw mode, Ctrl-C is a key and not a signal.
fn control(key: &KeyEvent) -> Next {
    match key.code {
        KeyCode::Char('c') => Next::Quit,
        _ => Next::Continue,
    }
}

fn browse(state: &mut State, key: KeyCode) -> Next {
    match key {
        KeyCode::Char('q' | 'Q') | KeyCode::F(10) => return Next::Quit,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => state.mode = Mode::Help,
        KeyCode::Char('/') | KeyCode::F(4) => state.mode = Mode::Filter,
        KeyCode::Esc => state.filter.clear(),
        KeyCode::Char(' ' | 'p') => state.paused = !state.paused,
        KeyCode::Char('m') => state.mouse = !state.mouse,
        KeyCode::Tab | KeyCode::BackTab => state.switch(),
        KeyCode::Char('r') => state.sort(state.table().sort.column),
        KeyCode::Right | KeyCode::Char('>') => state.sort_by_next(true),
        KeyCode::Left | KeyCode::Char('<') => state.sort_by_next(false),
        KeyCode::Down | KeyCode::Char('j') => state.step(1),
        KeyCode::Up | KeyCode::Char('k') => state.step(-1),
        KeyCode::PageDown => state.step(state.page()),
        KeyCode::PageUp => state.step(-state.page()),
        KeyCode::Home | KeyCode::Char('g') => state.select(0),
        KeyCode::End | KeyCode::Char('G') => state.select(usize::MAX),
        KeyCode::Char(letter) => {
            if let Some(column) = column(letter) {
                // Only columns of the current table can be chosen.
                let known = state.content().sortable().contains(&column);
                if known {
                    state.sort(column);
                }
            }
        }
        _ => {}
    }
    Next::Continue
}

/// Returns the column by which a letter sorts.
fn column(letter: char) -> Option<Column> {
    Some(match letter {
        'R' => Column::Rate,
        'S' => Column::Success,
        'L' => Column::P99,
        'E' => Column::Ejected,
        'N' => Column::Workload,
        _ => return None,
    })
}

fn edit(state: &mut State, key: KeyCode) {
    match key {
        KeyCode::Esc => {
            state.filter.clear();
            state.mode = Mode::Browse;
        }
        KeyCode::Enter => state.mode = Mode::Browse,
        // An empty prompt is left, as in a pager.
        KeyCode::Backspace if state.filter.is_empty() => state.mode = Mode::Browse,
        KeyCode::Backspace => drop(state.filter.pop()),
        KeyCode::Up => state.step(-1),
        KeyCode::Down => state.step(1),
        KeyCode::Char(letter) => state.filter.push(letter),
        _ => {}
    }
}

fn point(state: &mut State, mouse: &MouseEvent, view: &View) {
    match mouse.kind {
        MouseEventKind::ScrollDown => state.step(WHEEL),
        MouseEventKind::ScrollUp => state.step(-WHEEL),
        MouseEventKind::Down(MouseButton::Left) => {
            if let Some(place) = view.row_at(mouse.row) {
                state.select(state.table().offset + place);
            } else if let Some(column) = view.title_at(mouse.column, mouse.row)
                && state.content().sortable().contains(&column)
            {
                state.sort(column);
            }
        }
        _ => {}
    }
}
