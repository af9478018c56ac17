//! Distinguishes series by colour, and by marker or dash for readers who cannot distinguish
//! colours.
//!
//! The colours are those of Okabe and Ito ("Color Universal Design", 2008) and of Tol's muted set,
//! darkened on white and lightened on black until lines of two pixels are read easily on both.

/// One colour, for light and for dark backgrounds.
pub(super) struct Colour {
    pub(super) light: &'static str,
    pub(super) dark: &'static str,
}

/// In the order in which neighbours in a legend differ most.
pub(super) const COLOURS: [Colour; 8] = [
    colour("#0072b2", "#5ab0e8"),
    colour("#d55e00", "#f08a4b"),
    colour("#009e73", "#3cc9a0"),
    colour("#aa4499", "#dd8fcb"),
    colour("#c08a00", "#e8c14d"),
    colour("#3d3d3d", "#d0d0d0"),
    colour("#882255", "#e0679c"),
    colour("#3fa7dd", "#a6ddf7"),
];

const fn colour(light: &'static str, dark: &'static str) -> Colour {
    Colour { light, dark }
}

/// Dashes of lines; the first is none.
const DASHES: [&str; 4] = ["", "7 3", "2 3", "9 3 2 3"];

/// Shapes around the origin, as paths of SVG.
const MARKERS: [&str; 6] = [
    "M-4 0A4 4 0 1 1 4 0A4 4 0 1 1 -4 0Z",
    "M-3.6 -3.6H3.6V3.6H-3.6Z",
    "M0 -4.8L4.6 3.4H-4.6Z",
    "M0 -5L5 0L0 5L-5 0Z",
    "M0 4.8L4.6 -3.4H-4.6Z",
    "M-4.6 -1.5H-1.5V-4.6H1.5V-1.5H4.6V1.5H1.5V4.6H-1.5V1.5H-4.6Z",
];

pub(super) fn colour_of(series: usize) -> &'static Colour {
    &COLOURS[series % COLOURS.len()]
}

/// Returns the dash of the `nth` line without markers. It changes with each, unlike the colours'
/// cycle.
pub(super) fn dash(nth: usize) -> &'static str {
    DASHES[nth % DASHES.len()]
}

pub(super) fn marker(nth: usize) -> &'static str {
    MARKERS[nth % MARKERS.len()]
}
