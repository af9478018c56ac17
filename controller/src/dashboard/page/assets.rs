//! The page's files, embedded in the program: plain, and compressed at build time (`build.rs`).

/// A file of the page.
#[derive(Debug)]
pub(crate) struct Asset {
    /// The path of its URL.
    pub(crate) path: &'static str,
    pub(crate) content_type: &'static str,
    /// A hash of the content.
    pub(crate) hash: &'static str,
    pub(crate) plain: &'static [u8],
    /// The content, compressed with gzip.
    pub(crate) compressed: &'static [u8],
}

/// All files, ordered by path.
pub(crate) static ASSETS: &[Asset] = &include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// Returns the file of a path; `None` if there is none.
pub(crate) fn find(path: &str) -> Option<&'static Asset> {
    let path = if path == "/index.html" { "/" } else { path };
    ASSETS.iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maximum size of the page in bytes as transferred.
    const LIMIT: usize = 100_000;

    #[test]
    fn the_page_is_small() {
        assert!(find("/").is_some() && find("/index.html").is_some());
        let sizes = ASSETS
            .iter()
            .map(|asset| (asset.path, asset.compressed.len()));
        let total: usize = sizes.clone().map(|(_, size)| size).sum();
        assert!(total <= LIMIT, "{total}: {:?}", sizes.collect::<Vec<_>>());
    }

    #[test]
    fn no_file_names_another_host() {
        for asset in ASSETS {
            let text = String::from_utf8_lossy(asset.plain);
            for (at, _) in text.match_indices("//") {
                let before = &text[..at];
                let is_url = before.ends_with("http:") || before.ends_with("https:");
                // Names of XML vocabularies are not requested.
                let is_vocabulary = text[at..].starts_with("//www.w3.org/");
                assert!(
                    !is_url || is_vocabulary,
                    "{}: {}",
                    asset.path,
                    &text[at..].chars().take(60).collect::<String>()
                );
            }
        }
    }
}
