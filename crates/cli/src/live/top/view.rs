//! Where things are on the screen of `maglor top`.

use ratatui::layout::Rect;

use super::columns::{Column, Content, Fitted};

/// The title, the titles of the columns, the selected row in full and the keys.
const AROUND: u16 = 4;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) area: Rect,
    pub(super) columns: Vec<Fitted>,
}

impl View {
    /// Divides a screen.
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

    /// Returns the line of the selected row in full; `None` if the screen is too low for it.
    pub(super) fn detail(&self) -> Option<u16> {
        (self.area.height > AROUND).then(|| self.area.bottom() - 2)
    }

    /// Returns the line of the keys; `None` if the screen is too low for it.
    pub(super) fn keys(&self) -> Option<u16> {
        (self.area.height > 2).then(|| self.area.bottom() - 1)
    }

    /// Returns the place, from the top of the screen, of the row in a line.
    pub(super) fn row_at(&self, y: u16) -> Option<usize> {
        let place = y.checked_sub(self.first())?;
        (place < self.height()).then_some(usize::from(place))
    }

    /// Returns the column whose title is at a position.
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
