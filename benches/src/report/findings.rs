//! The findings of an experiment.

use maglor_lab::chart::Figure;

use crate::bar::Bar;

/// A section of a summary.
#[derive(Debug)]
pub(crate) struct Findings {
    pub(crate) title: String,
    /// In Markdown.
    pub(crate) text: String,
    pub(crate) bars: Vec<Bar>,
    pub(crate) charts: Vec<Figure>,
}
