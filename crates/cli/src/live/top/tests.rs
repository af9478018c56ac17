use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};

use super::columns::Column;
use super::draw::draw;
use super::keys::{Next, handle};
use super::palette::Palette;
use super::state::{Mode, Sample, State};
use super::view::View;
use crate::live::stat::{By, Calls, Line};

const NOW: Duration = Duration::from_secs(60);

/// Returns a workload with this rate and share of successful requests.
pub(super) fn workload(name: &str, rps: f64, success: f64) -> Line {
    Line {
        namespace: Some("shop".to_owned()),
        workload: name.to_owned(),
        service: None,
        proxies: 2,
        requests: rps * 2.0,
        rps: Some(rps),
        success: (rps > 0.0).then_some(success),
        p50_ms: (rps > 0.0).then_some(3.2),
        p95_ms: (rps > 0.0).then_some(12.5),
        p99_ms: (rps > 0.0).then_some(45.0),
        mtls: Some(1.0),
        calls: None,
    }
}

/// Returns the calls of a workload to a service.
pub(super) fn call(name: &str, service: &str, rps: f64, success: f64, ejected: f64) -> Line {
    Line {
        service: Some(format!("{service}.shop.svc.cluster.local:80")),
        calls: Some(Calls {
            retries: 3.0,
            ejections: ejected,
            ejected_now: ejected,
        }),
        ..workload(name, rps, success)
    }
}

fn sample(workloads: &[Line]) -> Sample {
    Sample {
        workloads: workloads.to_vec(),
        services: vec![call("web", "cart", 40.0, 0.97, 0.0)],
        silent: Vec::new(),
    }
}

fn shop() -> Vec<Line> {
    vec![
        workload("web", 120.0, 0.998),
        workload("cart", 40.0, 0.97),
        workload("ads", 30.0, 0.9),
        workload("batch", 0.0, 1.0),
    ]
}

fn state(lines: &[Line]) -> State {
    let mut state = State::new(By::Workloads, false);
    state.update(sample(lines), NOW);
    state
}

fn drawn(state: &mut State, width: u16, height: u16) -> (Buffer, View) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let mut view = None;
    terminal
        .draw(|frame| {
            let area = frame.area();
            let palette = Palette::new(true);
            view = Some(draw(frame.buffer_mut(), area, state, palette, NOW));
        })
        .unwrap();
    (terminal.backend().buffer().clone(), view.unwrap())
}

/// Returns the lines of a screen without trailing spaces.
fn lines(buffer: &Buffer) -> Vec<String> {
    let Rect { width, height, .. } = buffer.area;
    let line = |y| {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    (0..height).map(line).collect()
}

fn screen(state: &mut State, width: u16, height: u16) -> Vec<String> {
    lines(&drawn(state, width, height).0)
}

fn press(state: &mut State, codes: &[KeyCode]) -> Next {
    let mut next = Next::Continue;
    for code in codes {
        let (_, view) = drawn(state, 80, 24);
        let key = KeyEvent::new(*code, KeyModifiers::NONE);
        next = handle(state, &Event::Key(key), &view);
    }
    next
}

fn typed(state: &mut State, text: &str) {
    for letter in text.chars() {
        press(state, &[KeyCode::Char(letter)]);
    }
}

fn order(state: &State) -> Vec<&str> {
    let rows = state.rows();
    rows.iter().map(|(id, _)| id.workload.as_str()).collect()
}

fn selected(state: &State) -> &str {
    order(state)[state.selected().unwrap()]
}

#[test]
fn a_wide_screen_has_all_columns() {
    let mut state = state(&shop());
    assert_eq!(
        screen(&mut state, 110, 9),
        [
            "maglor top 4 workloads · 190.0/s",
            "  NAMESPACE   WORKLOAD       REQ/S▼ TREND                                SUCCESS  P50 ms  P95 ms  P99 ms  MTLS",
            "✓ shop        web             120.0                                   █  99.80 %     3.2    12.5    45.0 100 %",
            "! shop        cart             40.0                                   █  97.00 %     3.2    12.5    45.0 100 %",
            "✗ shop        ads              30.0                                   █  90.00 %     3.2    12.5    45.0 100 %",
            "· shop        batch             0.0                                            -       -       -       - 100 %",
            "",
            "shop/web: req/s 120.0, success 99.80 %, p50 ms 3.2, p95 ms 12.5, p99 ms 45.0, mtls 100 %",
            "q quit  ? help  / filter  ←→ sort  ↑↓ select  Tab workloads, services  r reverse  Space pause",
        ]
    );
}

#[test]
fn a_narrow_screen_has_the_important_columns() {
    let mut state = state(&shop());
    let narrow = screen(&mut state, 40, 8);
    assert_eq!(
        narrow[..4],
        [
            "maglor top 4 workloads · 190.0/s",
            "  WORKLOAD       REQ/S▼  SUCCESS  P99 ms",
            "✓ web             120.0  99.80 %    45.0",
            "! cart             40.0  97.00 %    45.0",
        ]
    );
    assert_eq!(narrow[7], "q quit  ? help  / filter  ←→ sort");
    state.switch();
    let calls = screen(&mut state, 40, 8);
    assert_eq!(calls[1], "  WORKLOAD CALLS         REQ/S▼  SUCCESS");
    assert_eq!(calls[2], "! web      cart.shop:…     40.0  97.00 %");
    // Any size is tested, because windows may be very small.
    for width in 0..60 {
        for height in 0..12 {
            let area = Rect::new(0, 0, width, height);
            for by in [By::Workloads, By::Services] {
                let mut state = State::new(by, true);
                state.update(sample(&shop()), NOW);
                for mode in [Mode::Browse, Mode::Filter, Mode::Help] {
                    state.mode = mode;
                    let mut buffer = Buffer::empty(area);
                    draw(&mut buffer, area, &mut state, Palette::new(true), NOW);
                }
            }
        }
    }
}

#[test]
fn columns_drop_in_the_order_of_their_importance() {
    let mut state = State::new(By::Services, true);
    let mut calls = sample(&shop());
    calls
        .services
        .push(call("web", "a-service-with-a-long-name", 3.0, 1.0, 1.0));
    state.update(calls, NOW);
    let mut last = Vec::new();
    for width in 0..200 {
        let fitted = state.content().fit(width);
        let needed: usize = fitted.iter().map(|one| one.width + 1).sum();
        assert!(needed <= width + 1, "{width}: {fitted:?}");
        let columns: Vec<Column> = fitted.iter().map(|one| one.column).collect();
        assert!(
            last.iter().all(|column| columns.contains(column)),
            "{width}"
        );
        last = columns;
    }
    assert!(last.contains(&Column::Ejections), "wide has all of them");
}

#[test]
fn nothing_yet_and_one_row() {
    let mut state = State::new(By::Workloads, false);
    assert_eq!(screen(&mut state, 60, 6)[2], "measuring …");
    press(&mut state, &[KeyCode::Down, KeyCode::End, KeyCode::PageUp]);
    state.update(sample(&[]), NOW);
    assert_eq!(screen(&mut state, 60, 6)[2], "no requests yet");
    state.update(sample(&[workload("web", 1.0, 1.0)]), NOW);
    press(&mut state, &[KeyCode::Down, KeyCode::Down]);
    assert_eq!(selected(&state), "web");
}

#[test]
fn the_selection_stays_on_its_row() {
    let mut state = state(&shop());
    assert_eq!(order(&state), ["web", "cart", "ads", "batch"]);
    press(&mut state, &[KeyCode::Down, KeyCode::Down]);
    assert_eq!(selected(&state), "ads");
    let mut busy = shop();
    busy[2].rps = Some(500.0);
    state.update(sample(&busy), NOW);
    assert_eq!(order(&state), ["ads", "web", "cart", "batch"]);
    assert_eq!(selected(&state), "ads");
    // Only the line of the selected row is reversed.
    let (buffer, view) = drawn(&mut state, 80, 10);
    let reversed = |y: u16| buffer[(3, y)].modifier.contains(Modifier::REVERSED);
    assert!(reversed(view.first()) && !reversed(view.first() + 1));
    press(&mut state, &[KeyCode::Char('G')]);
    assert_eq!(selected(&state), "batch");
}

#[test]
fn rows_of_equal_rates_do_not_change_places() {
    let lines = ["d", "b", "a", "c"].map(|name| workload(name, 5.0, 1.0));
    let mut state = state(&lines);
    assert_eq!(order(&state), ["a", "b", "c", "d"]);
    press(&mut state, &[KeyCode::Char('r')]);
    assert_eq!(order(&state), ["a", "b", "c", "d"]);
}

#[test]
fn five_hundred_rows_are_scrolled() {
    let lines: Vec<Line> = (0..500)
        .map(|at| workload(&format!("w{at:03}"), 1000.0 - f64::from(at), 1.0))
        .collect();
    let mut state = state(&lines);
    let shown = |state: &mut State| {
        let screen = screen(state, 80, 24);
        let name = |line: &String| line.split_whitespace().nth(2).unwrap().to_owned();
        (name(&screen[2]), name(&screen[21]))
    };
    assert_eq!(shown(&mut state), ("w000".into(), "w019".into()));
    press(&mut state, &[KeyCode::PageDown; 3]);
    assert_eq!(selected(&state), "w060");
    assert_eq!(shown(&mut state), ("w041".into(), "w060".into()));
    press(&mut state, &[KeyCode::Up; 5]);
    assert_eq!(
        shown(&mut state),
        ("w041".into(), "w060".into()),
        "on the screen"
    );
    press(&mut state, &[KeyCode::End]);
    assert_eq!(shown(&mut state), ("w480".into(), "w499".into()));
    // There are fewer rows than before, and the screen must not be empty.
    state.update(sample(&lines[..30]), NOW);
    assert_eq!(shown(&mut state), ("w000".into(), "w019".into()));
}

#[test]
fn the_filter_hides_rows_and_says_so() {
    let mut state = state(&shop());
    press(&mut state, &[KeyCode::Down]);
    typed(&mut state, "/AD");
    assert_eq!(order(&state), ["ads"]);
    let prompt = screen(&mut state, 60, 8);
    assert_eq!(prompt[7], "/AD▏  Enter keep  Esc remove");
    assert_eq!(prompt[0], "maglor top 1 of 4 workloads · 30.0/s /AD");
    press(&mut state, &[KeyCode::Enter, KeyCode::Char('q')]);
    assert_eq!(order(&state), ["ads"], "q is no part of it");
    press(&mut state, &[KeyCode::Esc]);
    assert_eq!(selected(&state), "cart", "as before");
    typed(&mut state, "/nothing");
    assert_eq!(
        screen(&mut state, 60, 8)[2],
        "no row matches the filter; Esc removes it"
    );
    press(&mut state, &[KeyCode::Esc]);
    assert_eq!((order(&state).len(), state.mode), (4, Mode::Browse));
    // The filter also matches namespaces and called services.
    typed(&mut state, "/shop");
    assert_eq!(order(&state).len(), 4);
}

#[test]
fn keys_choose_the_order() {
    let mut state = state(&shop());
    press(&mut state, &[KeyCode::Char('S')]);
    assert_eq!(
        order(&state),
        ["ads", "cart", "web", "batch"],
        "the worst first, unknown last"
    );
    press(&mut state, &[KeyCode::Char('r')]);
    assert_eq!(
        order(&state),
        ["web", "cart", "ads", "batch"],
        "unknown last"
    );
    press(&mut state, &[KeyCode::Char('N')]);
    assert_eq!(order(&state), ["ads", "batch", "cart", "web"]);
    press(&mut state, &[KeyCode::Right]);
    assert_eq!(state.table().sort.column, Column::Rate);
    press(&mut state, &[KeyCode::Left, KeyCode::Left, KeyCode::Left]);
    assert_eq!(state.table().sort.column, Column::Mtls, "around");
    press(&mut state, &[KeyCode::Char('E')]);
    assert_eq!(
        state.table().sort.column,
        Column::Mtls,
        "workloads have no ejections"
    );
    press(&mut state, &[KeyCode::Tab, KeyCode::Char('E')]);
    assert_eq!(state.table().sort.column, Column::Ejected);
    assert_eq!(state.by(), By::Services);
}

#[test]
fn q_and_ctrl_c_end_it_and_help_is_shown() {
    let mut state = state(&shop());
    assert_eq!(press(&mut state, &[KeyCode::Char('q')]), Next::Quit);
    let (_, view) = drawn(&mut state, 80, 24);
    let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    for mode in [Mode::Browse, Mode::Filter, Mode::Help] {
        state.mode = mode;
        assert_eq!(handle(&mut state, &Event::Key(control), &view), Next::Quit);
    }
    state.mode = Mode::Browse;
    press(&mut state, &[KeyCode::Char('?')]);
    let help = screen(&mut state, 100, 24).join("\n");
    for part in [
        "Keys: any of them closes this",
        "PgUp PgDn one page",
        "✗ less",
    ] {
        assert!(help.contains(part), "{part}:\n{help}");
    }
    assert_eq!(press(&mut state, &[KeyCode::Char('q')]), Next::Continue);
    assert_eq!(state.mode, Mode::Browse);
}

#[test]
fn errors_are_in_the_title_and_the_data_stays() {
    let mut state = state(&shop());
    state.failed("web-0: timeout after 5 s".to_owned());
    let later = NOW + Duration::from_secs(7);
    let area = Rect::new(0, 0, 110, 9);
    let mut buffer = Buffer::empty(area);
    draw(&mut buffer, area, &mut state, Palette::new(true), later);
    let text = lines(&buffer);
    assert_eq!(
        text[0],
        "maglor top ✗ web-0: timeout after 5 s data 7 s old 4 workloads · 190.0/s"
    );
    assert!(text[2].contains("web"), "{text:?}");
    assert_eq!(buffer[(11, 0)].fg, Color::Red);
    // One of several proxies does not respond: its rows are kept and not judged.
    let mut some = sample(&shop()[1..]);
    some.silent = vec!["web-0: refused".to_owned(), "web-1: refused".to_owned()];
    state.update(some, later);
    let (buffer, _) = drawn(&mut state, 110, 9);
    let text = lines(&buffer);
    assert_eq!(
        text[0],
        "maglor top ✗ (+1) web-0: refused 4 workloads · 190.0/s"
    );
    assert!(text[2].starts_with("· shop        web "), "{text:?}");
    press(&mut state, &[KeyCode::End]);
    let (buffer, _) = drawn(&mut state, 110, 9);
    assert!(buffer[(14, 2)].modifier.contains(Modifier::DIM));
    // If all proxies respond, missing rows are removed.
    state.update(sample(&shop()[1..]), later);
    assert_eq!(order(&state), ["cart", "ads", "batch"]);
}

#[test]
fn a_pause_keeps_what_is_read() {
    let mut state = state(&shop());
    press(&mut state, &[KeyCode::Char(' ')]);
    state.update(sample(&[]), NOW);
    state.failed("gone".to_owned());
    let text = screen(&mut state, 80, 9);
    assert_eq!(text[0], "maglor top paused 4 workloads · 190.0/s");
    press(&mut state, &[KeyCode::Char(' ')]);
    state.update(sample(&[]), NOW);
    assert!(order(&state).is_empty());
}

#[test]
fn colours_are_by_health_or_not_at_all() {
    let mut state = state(&shop());
    // The selected row has no style of its own, but is reversed.
    press(&mut state, &[KeyCode::End]);
    let (buffer, view) = drawn(&mut state, 110, 9);
    let colours: Vec<Color> = (0..3)
        .map(|row| buffer[(0, view.first() + row)].fg)
        .collect();
    assert_eq!(colours, [Color::Green, Color::Yellow, Color::Red]);
    let area = buffer.area;
    let mut buffer = Buffer::empty(area);
    draw(&mut buffer, area, &mut state, Palette::new(false), NOW);
    let plain = |color: Color| color == Color::Reset;
    assert!(
        buffer
            .content
            .iter()
            .all(|cell| plain(cell.fg) && plain(cell.bg))
    );
    // Ejected endpoints mean that a service is not healthy.
    let mut ejected = State::new(By::Services, false);
    let mut calls = sample(&[]);
    calls.services = vec![call("web", "cart", 4.0, 1.0, 1.0)];
    ejected.update(calls, NOW);
    assert!(screen(&mut ejected, 60, 6)[2].starts_with("! web"));
}

#[test]
fn trends_are_the_last_rates() {
    let mut state = State::new(By::Workloads, false);
    for rps in [0.0, 10.0, 40.0, 80.0] {
        state.update(sample(&[workload("web", rps, 1.0)]), NOW);
    }
    let rows = state.rows();
    assert_eq!(rows[0].1.trend(6), "   ▁▄█");
    assert_eq!(rows[0].1.trend(2), "▄█");
}

#[test]
fn the_mouse_selects_and_sorts() {
    let mut state = state(&shop());
    let (_, view) = drawn(&mut state, 110, 9);
    let click = |state: &mut State, column, row| {
        let mouse = MouseEvent {
            kind: MouseEventKind::Down(MouseButton::Left),
            column,
            row,
            modifiers: KeyModifiers::NONE,
        };
        handle(state, &Event::Mouse(mouse), &view)
    };
    click(&mut state, 20, view.first() + 2);
    assert_eq!(selected(&state), "ads");
    click(&mut state, 16, view.titles());
    assert_eq!(state.table().sort.column, Column::Workload);
    click(&mut state, 16, view.titles());
    assert!(state.table().sort.reverse);
    // The sparklines, and below the last row.
    click(&mut state, 45, view.titles());
    click(&mut state, 45, 8);
    assert_eq!(state.table().sort.column, Column::Workload);
}
