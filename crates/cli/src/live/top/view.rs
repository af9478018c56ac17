//! The positions of the parts of the `maglor top` screen.

use ratatui::layout::Rect;

use super::columns::{Column, Content, Fitted};

/// Number of lines besides rows: the title, the column titles, the details of the selected row, and the keys.
const AROUND: u16 = 4;

/// The positions of the parts of a screen.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) area: Rect,
    pub(super) columns: Vec<Fitted>,
}

impl View {
    /// Divides a screen into its parts.
    pub(super) fn new(area: Rect, content: &Content) -> Self {
        Self {
            area,
            columns: content.fit(usize::from(area.width)),
        }
    }

    /// Returns the number of rows that fit.
    pub(super) fn height(&self) -> u16 {
        self.area.height.saturating_sub(AROUND)
    }

    /// Returns the line of the column titles.
    pub(super) fn titles(&self) -> u16 {
        self.area.y + 1
    }

    /// Returns the line of the first row.
    pub(super) fn first(&self) -> u16 {
        self.area.y + 2
    }

    /// Returns the line of the selected row's details; `None` if the screen is too low for it.
    pub(super) fn detail(&self) -> Option<u16> {
        (self.area.height > AROUND).then(|| self.area.bottom() - 2)
    }

    /// Returns the line of the keys; `None` if the screen is too low for it.
    pub(super) fn keys(&self) -> Option<u16> {
        (self.area.height > 2).then(|| self.area.bottom() - 1)
    }

    /// Returns the position, from the top of the screen, of the row in a line; `None` if there is none.
    pub(super) fn row_at(&self, y: u16) -> Option<usize> {
        let place = y.checked_sub(self.first())?;
        (place < self.height()).then_some(usize::from(place))
    }

    /// Returns the column whose title is at a position; `None` if there is none.
    pub(super) fn title_at(&self, x: u16, y: u16) -> Option<Column> {
        if y != self.titles() {
            return None;
        }
        let mut end = usize::from(self.area.x);
        let mut columns = self.columns.iter();
        let found = columns.find(|one| {
            end += one.width + 1;
            usize::from(x) < end
        });
        found.map(|one| one.column)
    }
}
