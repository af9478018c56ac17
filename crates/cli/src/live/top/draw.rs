//! Draws `maglor top`: a title, the table, the details of the selected row, and the keys.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Widget as _};

use super::columns::{Column, Fitted};
use super::keys::HELP;
use super::palette::Palette;
use super::rows::Row;
use super::state::{Mode, State};
use super::view::View;
use crate::live::served::short;
use crate::live::stat::By;

/// Draws a state, and returns the positions of its parts.
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    state: &mut State,
    palette: Palette,
    now: Duration,
) -> View {
    let view = View::new(area, &state.content());
    if area.is_empty() {
        return view;
    }
    state.fit(usize::from(view.height()));
    let title = title(state, palette, now);
    buffer.set_line(area.x, area.y, &title, area.width);
    if area.height > 1 {
        titles(buffer, state, palette, &view);
    }
    table(buffer, state, palette, &view);
    if let Some(y) = view.detail() {
        let detail = detail(state);
        buffer.set_stringn(area.x, y, detail, usize::from(area.width), palette.faint());
    }
    if let Some(y) = view.keys() {
        let keys = match state.mode {
            Mode::Filter => prompt(state, palette),
            Mode::Browse | Mode::Help => keys(palette, usize::from(area.width)),
        };
        buffer.set_line(area.x, y, &keys, area.width);
    }
    if state.mode == Mode::Help {
        help(buffer, area, palette);
    }
    view
}

/// Errors come first, because a narrow terminal cuts off the end.
fn title(state: &State, palette: Palette, now: Duration) -> Line<'static> {
    let mut spans = vec![Span::styled("maglor top", palette.title())];
    let mut add = |text: String, style: Style| {
        spans.push(Span::raw(" "));
        spans.push(Span::styled(text, style));
    };
    if state.paused {
        add("paused".to_owned(), palette.error());
    }
    if let [first, others @ ..] = &state.errors[..] {
        let more = match others.len() {
            0 => String::new(),
            count => format!("(+{count}) "),
        };
        add(format!("✗ {more}{first}"), palette.error());
        if let Some(age) = state.age(now).filter(|age| age.as_secs() >= 1) {
            add(format!("data {} s old", age.as_secs()), Style::new());
        }
    }
    let shown = state.rows();
    let of = match state.by() {
        By::Workloads => "workloads",
        By::Services => "calls",
    };
    let count = match shown.len() == state.count() {
        true => format!("{} {of}", shown.len()),
        false => format!("{} of {} {of}", shown.len(), state.count()),
    };
    add(count, Style::new());
    let rates = shown.iter().filter_map(|(_, row)| row.line.rps);
    add(format!("· {:.1}/s", rates.sum::<f64>()), Style::new());
    if !state.filter.is_empty() {
        add(format!("/{}", state.filter), palette.key());
    }
    Line::from(spans)
}

/// Pads or cuts a text to a width.
fn aligned(text: &str, width: usize, right: bool) -> String {
    let length = text.chars().count();
    if length > width {
        let kept: String = text.chars().take(width.saturating_sub(1)).collect();
        return kept + "…";
    }
    match right {
        true => format!("{text:>width$}"),
        false => format!("{text:<width$}"),
    }
}

fn titles(buffer: &mut Buffer, state: &State, palette: Palette, view: &View) {
    let sort = state.table().sort;
    let mut x = view.area.x;
    for one in &view.columns {
        let (mut title, mut style) = (one.column.title().to_owned(), palette.heading());
        if one.column == sort.column {
            title.push(if sort.reverse { '▼' } else { '▲' });
            style = palette.sorted();
        }
        let title = aligned(&title, one.width, one.column.is_number());
        buffer.set_stringn(x, view.titles(), title, one.width, style);
        x += width(one);
    }
}

/// Returns the width of a column including the space after it.
fn width(one: &Fitted) -> u16 {
    u16::try_from(one.width + 1).unwrap_or(u16::MAX)
}

fn table(buffer: &mut Buffer, state: &State, palette: Palette, view: &View) {
    let rows = state.rows();
    if rows.is_empty() && view.height() > 0 {
        let text = match (state.count(), state.age(Duration::ZERO)) {
            (0, None) => "measuring …",
            (0, Some(_)) => "no requests yet",
            _ => "no row matches the filter; Esc removes it",
        };
        let width = usize::from(view.area.width);
        buffer.set_stringn(view.area.x, view.first(), text, width, palette.faint());
    }
    let selected = state.selected();
    let offset = state.table().offset;
    let height = usize::from(view.height());
    for (place, (_, row)) in rows.iter().enumerate().skip(offset).take(height) {
        // At most the height of the screen.
        let y = view.first() + u16::try_from(place - offset).unwrap_or(0);
        let mut x = view.area.x;
        for one in &view.columns {
            let cell = one.column.cell(row, one.width);
            let cell = aligned(&cell, one.width, one.column.is_number());
            buffer.set_stringn(x, y, cell, one.width, style(row, one.column, palette));
            x += width(one);
        }
        if selected == Some(place) {
            buffer.set_style(
                Rect::new(view.area.x, y, view.area.width, 1),
                palette.selected(),
            );
        }
    }
}

fn style(row: &Row, column: Column, palette: Palette) -> Style {
    let health = row.health();
    match column {
        _ if row.stale => palette.faint(),
        Column::Health | Column::Success => palette.health(health),
        Column::Trend => palette.trend(),
        _ if health.is_none() => palette.faint(),
        _ => Style::new(),
    }
}

/// Returns the details of the selected row, because a narrow terminal does not show all columns.
fn detail(state: &State) -> String {
    let rows = state.rows();
    let Some((_, row)) = state.selected().and_then(|place| rows.get(place)) else {
        return String::new();
    };
    let columns = state.content().sortable().into_iter();
    let cells = columns.filter(|column| column.is_number()).map(|column| {
        let title = column.title();
        format!("{} {}", title.to_lowercase(), column.cell(row, 0))
    });
    let namespace = row.line.namespace.as_deref().unwrap_or_default();
    let service = row.line.service.as_deref().map(short).unwrap_or_default();
    let mut name = row.line.workload.clone();
    if !namespace.is_empty() {
        name = format!("{namespace}/{name}");
    }
    if !service.is_empty() {
        name = format!("{name} → {service}");
    }
    let stale = if row.stale { " (no response)" } else { "" };
    let cells: Vec<_> = cells.collect();
    format!("{name}{stale}: {}", cells.join(", "))
}

fn prompt(state: &State, palette: Palette) -> Line<'static> {
    Line::from(vec![
        Span::styled(format!("/{}▏", state.filter), palette.title()),
        Span::styled("  Enter", palette.key()),
        Span::raw(" keep  "),
        Span::styled("Esc", palette.key()),
        Span::raw(" remove"),
    ])
}

/// Returns as many keys as fit.
fn keys(palette: Palette, width: usize) -> Line<'static> {
    let mut left = width;
    let mut spans = Vec::new();
    for (key, what) in HELP {
        let length = key.chars().count() + 1 + what.chars().count() + 2;
        if length > left + 2 {
            break;
        }
        left = left.saturating_sub(length);
        spans.push(Span::styled(key, palette.key()));
        spans.push(Span::raw(format!(" {what}  ")));
    }
    Line::from(spans)
}

fn help(buffer: &mut Buffer, area: Rect, palette: Palette) {
    let lines = HELP.iter().map(|(key, what)| {
        Line::from(vec![
            Span::styled(format!("{key:>11} "), palette.key()),
            Span::raw(*what),
        ])
    });
    let signs = "✓ at least 99 % succeed, ! 95 %, ✗ less; ! also with ejected endpoints";
    let signs = [Line::default(), Line::from(format!(" {signs}"))];
    let lines: Vec<Line<'_>> = lines.chain(signs).collect();
    let wanted = |length: usize| u16::try_from(length + 2).unwrap_or(u16::MAX);
    let widest = lines.iter().map(Line::width).max().unwrap_or(0);
    let width = wanted(widest + 1).min(area.width);
    let height = wanted(lines.len()).min(area.height);
    let x = area.x + (area.width - width) / 2;
    let y = area.y + (area.height - height) / 2;
    let place = Rect::new(x, y, width, height);
    Clear.render(place, buffer);
    let frame = Block::bordered().title(" Keys: any of them closes this ");
    Paragraph::new(lines).block(frame).render(place, buffer);
}
