//! The findings of an experiment.

use crate::bar::Bar;
use crate::chart::Chart;

/// A section of a summary.
#[derive(Debug)]
pub(crate) struct Findings {
    pub(crate) title: String,
    /// In Markdown.
    pub(crate) text: String,
    pub(crate) bars: Vec<Bar>,
    pub(crate) charts: Vec<Chart>,
}
