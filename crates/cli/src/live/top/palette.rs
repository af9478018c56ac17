//! The styles of `maglor top`: colours by health, or no colours (`NO_COLOR`).

use ratatui::style::{Color, Modifier, Style};

use crate::health::Health;

/// The styles of `maglor top`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Palette {
    colour: bool,
}

impl Palette {
    pub(super) fn new(colour: bool) -> Self {
        Self { colour }
    }

    /// Returns the palette according to the environment (<https://no-color.org>).
    pub(super) fn of_environment() -> Self {
        Self::new(std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()))
    }

    fn foreground(self, colour: Color) -> Style {
        match self.colour {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    pub(super) fn health(self, health: Option<Health>) -> Style {
        match health {
            Some(Health::Good) => self.foreground(Color::Green),
            Some(Health::Degraded) => self.foreground(Color::Yellow).add_modifier(Modifier::BOLD),
            Some(Health::Failing) => self.foreground(Color::Red).add_modifier(Modifier::BOLD),
            None => self.faint(),
        }
    }

    /// Returns the style of an error in the title.
    pub(super) fn error(self) -> Style {
        self.health(Some(Health::Failing))
    }

    pub(super) fn title(self) -> Style {
        self.foreground(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    pub(super) fn heading(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
    }

    /// Returns the style of the column by which rows are sorted.
    pub(super) fn sorted(self) -> Style {
        self.heading().patch(self.foreground(Color::Cyan))
    }

    pub(super) fn trend(self) -> Style {
        self.foreground(Color::Blue)
    }

    pub(super) fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Returns the style of the selected row, which is the same in all columns.
    pub(super) fn selected(self) -> Style {
        Style::reset().add_modifier(Modifier::REVERSED)
    }

    /// Returns the style of the name of a key.
    pub(super) fn key(self) -> Style {
        self.foreground(Color::Cyan).add_modifier(Modifier::BOLD)
    }
}
