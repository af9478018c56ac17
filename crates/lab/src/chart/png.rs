//! Renders the SVG of a figure as PNG.

use std::sync::{Arc, LazyLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::Database;
use resvg::usvg::{Options, Tree};

use super::Figure;
use super::svg::{HEIGHT, WIDTH, svg};

/// The number of pixels for each unit of the SVG: sharp on screens with twice the usual density.
const DENSITY: f32 = 2.0;

/// The font Roboto, reduced to the characters that charts use; see `assets/README.md`.
static FONT: &[u8] = include_bytes!("../../assets/Roboto-Latin.ttf");

static FONTS: LazyLock<Arc<Database>> = LazyLock::new(|| {
    let mut fonts = Database::new();
    fonts.load_font_data(FONT.to_vec());
    fonts.set_sans_serif_family("Roboto");
    Arc::new(fonts)
});

/// The reason why a figure could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum PngError {
    /// The pixels could not be compressed.
    #[error("the picture cannot be written as PNG: {0}")]
    Encode(String),
    /// There is not enough memory for the pixels.
    #[error("not enough memory for the picture")]
    Memory,
    /// The SVG is not well-formed.
    #[error("the figure's SVG cannot be read: {0}")]
    Svg(#[from] resvg::usvg::Error),
}

/// Renders the figure on a white background.
pub fn png(figure: &Figure) -> Result<Vec<u8>, PngError> {
    let options = Options {
        fontdb: Arc::clone(&FONTS),
        font_family: "Roboto".to_owned(),
        ..Options::default()
    };
    let tree = Tree::from_str(&svg(figure), &options)?;
    let pixels = |length: f64| (length as f32 * DENSITY) as u32;
    let mut picture = Pixmap::new(pixels(WIDTH), pixels(HEIGHT)).ok_or(PngError::Memory)?;
    let transform = Transform::from_scale(DENSITY, DENSITY);
    resvg::render(&tree, transform, &mut picture.as_mut());
    picture
        .encode_png()
        .map_err(|error| PngError::Encode(error.to_string()))
}
