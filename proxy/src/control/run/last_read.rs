//! The content of the configuration file when it was last read, and whether it was applied.
//!
//! The file's directory is watched, and other files, such as a log, may be written in it. Therefore an event does not
//! imply that the file has changed.

use std::hash::{DefaultHasher, Hasher};
use std::path::Path;

/// Hash of a file's text; `None` if the file cannot be read.
pub(super) type Text = Option<u64>;

/// Returns the hash of the current text of `file`.
pub(super) fn text_of(file: &Path) -> Text {
    let text = std::fs::read(file).ok()?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&text);
    Some(hasher.finish())
}

/// The last reading of the configuration file.
#[derive(Debug, Default)]
pub(super) struct LastRead {
    /// Text of the current configuration; `None` until the file was read again.
    in_force: Text,
    /// Text that was last rejected, and the reason, which is logged once.
    refused: Option<(Text, String)>,
}

impl LastRead {
    /// Returns whether reading `text` would change nothing.
    pub(super) fn is_in_force(&self, text: Text) -> bool {
        text.is_some() && text == self.in_force && self.refused.is_none()
    }

    /// Records that the configuration of `text` was applied.
    pub(super) fn applied(&mut self, text: Text) {
        self.in_force = text;
        self.refused = None;
    }

    /// Records that `text` was rejected for `reason`. Returns whether the previous rejection had the same text and
    /// reason.
    pub(super) fn refused(&mut self, text: Text, reason: String) -> bool {
        let refused = Some((text, reason));
        let known = self.refused == refused;
        self.refused = refused;
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_again_until_it_is_in_force() {
        let mut last = LastRead::default();
        assert!(!last.is_in_force(None) && !last.is_in_force(Some(1)));
        last.applied(Some(1));
        assert!(last.is_in_force(Some(1)) && !last.is_in_force(Some(2)));
        assert!(!last.refused(Some(2), "a".into()));
        assert!(last.refused(Some(2), "a".into()));
        assert!(!last.refused(Some(2), "b".into()), "for another reason");
        // Files that the configuration names may exist by now, so that a rejected reload may succeed.
        assert!(!last.is_in_force(Some(1)) && !last.is_in_force(Some(2)));
    }
}
