//! Draws a screen of `maglor top` as a picture for the documentation.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

use super::draw::draw;
use super::palette::Palette;
use super::state::{Sample, State};
use super::tests::{call, workload};
use crate::live::stat::{By, Calls, Line};

const WIDTH: u16 = 112;
const HEIGHT: u16 = 16;
/// The size of a character.
const CELL: (f64, f64) = (7.8, 17.0);
const MARGIN: f64 = 10.0;

/// Returns the state of a shop whose advertisements fail increasingly.
fn state() -> State {
    let mut state = State::new(By::Services, false);
    for step in 0..40 {
        let wave = |phase: f64| 1.0 + 0.8 * ((f64::from(step) / 25.0 + phase).fract() - 0.5).abs();
        let bad = if step > 30 { f64::from(step - 30) } else { 0.0 };
        let calls = vec![
            call("gateway", "frontend", 620.0 * wave(0.0), 0.9966, 0.0),
            call("frontend", "catalog", 540.0 * wave(0.3), 0.9991, 0.0),
            call("frontend", "currency", 510.0 * wave(0.4), 1.0, 0.0),
            call(
                "frontend",
                "ads",
                300.0 * wave(0.8) / (1.0 + bad),
                0.93 - 0.01 * bad,
                1.0,
            ),
            call("recommendation", "catalog", 290.0 * wave(1.4), 0.9985, 0.0),
            call("frontend", "recommendation", 300.0 * wave(1.0), 0.985, 0.0),
            call("frontend", "cart", 180.0 * wave(2.0), 1.0, 0.0),
            call("checkout", "payment", 12.0 * wave(3.0), 0.9975, 0.0),
            call("cart", "redis", 0.0, 1.0, 0.0),
        ];
        let latencies = [42.0, 9.1, 1.9, 12.5, 8.4, 38.0, 7.2, 88.0, 0.0];
        let calls = calls.into_iter().zip(latencies).map(|(line, p50)| Line {
            p50_ms: line.success.map(|_| p50),
            p95_ms: line.success.map(|_| 2.4 * p50),
            p99_ms: line.success.map(|_| 4.0 * p50),
            calls: line.calls.map(|calls| Calls {
                retries: (p50 / 8.0).floor(),
                ..calls
            }),
            ..line
        });
        let sample = Sample {
            services: calls.collect(),
            workloads: vec![workload("frontend", 620.0, 1.0)],
            silent: Vec::new(),
        };
        state.update(sample, Duration::from_secs(step as u64));
    }
    state.select(6);
    state
}

fn colour(colour: Color) -> &'static str {
    match colour {
        Color::Green => "#56b886",
        Color::Yellow => "#e3a23a",
        Color::Red => "#ff7b72",
        Color::Cyan => "#76d0e0",
        Color::Blue => "#79a7e8",
        _ => "#e6edf3",
    }
}

/// Adjacent characters of one style are drawn as one text, whose width is that of their cells in any typeface.
fn svg(buffer: &Buffer) -> String {
    let (width, height) = (f64::from(WIDTH) * CELL.0, f64::from(HEIGHT) * CELL.1);
    let (whole_width, whole_height) = (width + 2.0 * MARGIN, height + 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {whole_width:.0} {whole_height:.0}\" \
         width=\"{whole_width:.0}\" height=\"{whole_height:.0}\" role=\"img\" aria-labelledby=\"title\" \
         font-family=\"ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace\" font-size=\"13\">\n\
         <title id=\"title\">maglor top services in a terminal</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#0d1117\"/>\n"
    );
    // Bars often use another typeface than letters, with a different width.
    let is_same = |one: &Cell, other: &Cell| {
        let letters = one.symbol().is_ascii() == other.symbol().is_ascii();
        one.fg == other.fg && one.modifier == other.modifier && letters
    };
    for y in 0..HEIGHT {
        let mut x = 0;
        while x < WIDTH {
            let first = &buffer[(x, y)];
            let run = (x..WIDTH).take_while(|at| is_same(&buffer[(*at, y)], first));
            let text: String = run.map(|at| buffer[(at, y)].symbol()).collect();
            let length = text.chars().count();
            write_run(&mut svg, (x, y), first, &text);
            x += u16::try_from(length).unwrap();
        }
    }
    svg + "</svg>\n"
}

fn write_run(svg: &mut String, (x, y): (u16, u16), cell: &Cell, text: &str) {
    let left = MARGIN + f64::from(x) * CELL.0;
    let top = MARGIN + f64::from(y) * CELL.1;
    let width = text.chars().count() as f64 * CELL.0;
    let mut fill = colour(cell.fg);
    if cell.modifier.contains(Modifier::REVERSED) {
        let (height, back) = (CELL.1, fill);
        writeln!(
            svg,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height}\" fill=\"{back}\"/>"
        )
        .unwrap();
        fill = "#0d1117";
    }
    if text.trim().is_empty() {
        return;
    }
    let spaces = text.chars().take_while(|sign| *sign == ' ').count() as f64;
    let text = text.trim();
    let (left, length) = (left + spaces * CELL.0, text.chars().count() as f64 * CELL.0);
    let mut style = String::new();
    for (modifier, attribute) in [
        (Modifier::BOLD, " font-weight=\"bold\""),
        (Modifier::DIM, " opacity=\"0.6\""),
        (Modifier::UNDERLINED, " text-decoration=\"underline\""),
    ] {
        if cell.modifier.contains(modifier) {
            style.push_str(attribute);
        }
    }
    let text = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace(' ', "\u{a0}");
    writeln!(
        svg,
        "<text x=\"{left:.1}\" y=\"{:.1}\" textLength=\"{length:.1}\" fill=\"{fill}\"{style}>{text}</text>",
        top + CELL.1 - 4.5
    )
    .unwrap();
}

/// `UPDATE=1` draws the picture again; check it afterwards.
#[test]
fn the_picture_of_the_documentation_is_what_is_drawn() {
    let mut terminal = Terminal::new(TestBackend::new(WIDTH, HEIGHT)).unwrap();
    let mut state = state();
    terminal
        .draw(|frame| {
            let area = frame.area();
            let now = Duration::from_secs(40);
            draw(
                frame.buffer_mut(),
                area,
                &mut state,
                Palette::new(true),
                now,
            );
        })
        .unwrap();
    let drawn = svg(terminal.backend().buffer());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures/top.svg");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &drawn).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == drawn,
        "{} is stale: run with UPDATE=1",
        path.display()
    );
}
