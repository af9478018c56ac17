//! Normalization of paths (RFC 3986 §6.2.2).
//!
//! Paths are normalized before they are routed, so that a rule for `/admin` cannot be evaded by `/x/../admin` or
//! `/%61dmin`. Rules are checked with the same code, since a text that is never the result matches nothing.

use std::borrow::Cow;

use percent_encoding::percent_encode_byte;

use crate::listener::PathNormalization;

/// Which part of a path a text is compared with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Part {
    Whole,
    Beginning,
    End,
}

impl PathNormalization {
    /// Returns whether normalization may change this path, without its query. This is a single pass over the bytes,
    /// for the many paths that need none.
    #[must_use]
    pub fn may_change(self, path: &[u8]) -> bool {
        if self == Self::Off {
            return false;
        }
        let merge = self >= Self::MergeSlashes;
        let mut before = 0;
        path.iter().any(|&byte| {
            let pair = before == b'/' && (byte == b'.' || (merge && byte == b'/'));
            before = byte;
            pair || SUSPECT[usize::from(byte)]
        })
    }

    /// Returns the normal form of a path without its query.
    #[must_use]
    pub fn normalized(self, path: &[u8]) -> Vec<u8> {
        if self == Self::Off {
            return path.to_vec();
        }
        let path = self.decoded(path);
        let Some(rest) = path.strip_prefix(b"/") else {
            // `*` and similar targets are not paths.
            return path.into_owned();
        };
        let merge = self >= Self::MergeSlashes;
        let mut kept: Vec<&[u8]> = Vec::new();
        let mut segments = rest.split(|&byte| byte == b'/').peekable();
        while let Some(segment) = segments.next() {
            let last = segments.peek().is_none();
            match segment {
                b"." | b".." => {
                    if segment == b".." {
                        kept.pop();
                    }
                    // A dot segment at the end names a directory.
                    if last {
                        kept.push(b"");
                    }
                }
                b"" if merge && !last => {}
                _ => kept.push(segment),
            }
        }
        let mut out = Vec::with_capacity(path.len());
        for segment in kept {
            out.push(b'/');
            out.extend_from_slice(segment);
        }
        out
    }

    /// Decodes escapes whose decoded form is equivalent, writes the others in upper case, and escapes bytes that no URI
    /// contains, and a percent sign that does not begin an escape.
    fn decoded(self, path: &[u8]) -> Cow<'_, [u8]> {
        if !path.iter().any(|byte| SUSPECT[usize::from(*byte)]) {
            return Cow::Borrowed(path);
        }
        let slashes = self == Self::DecodeAndMergeSlashes;
        let mut out = Vec::with_capacity(path.len());
        let mut rest = path;
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            match (byte, escaped(after)) {
                (b'\\', _) => out.push(b'/'),
                (b'%', Some(escaped)) => {
                    match escaped {
                        b'/' | b'\\' if slashes => out.push(b'/'),
                        byte if is_unreserved(byte) => out.push(byte),
                        byte => out.extend_from_slice(percent_encode_byte(byte).as_bytes()),
                    }
                    rest = &after[2..];
                }
                // Without escaping, the percent sign could form an escape with the decoded bytes that follow.
                (b'%', None) => out.extend_from_slice(b"%25"),
                _ if !is_of_uri(byte) => {
                    out.extend_from_slice(percent_encode_byte(byte).as_bytes());
                }
                _ => out.push(byte),
            }
        }
        Cow::Owned(out)
    }

    /// Returns whether a text can be that part of a normalized path.
    pub(crate) fn can_yield(self, text: &str, part: Part) -> bool {
        // What a text may be cut off from: a segment, or the digits of an escape.
        let (before, after): (&[&str], &[&str]) = match part {
            Part::Whole => (&[""], &[""]),
            Part::Beginning => (&[""], &["", "x", "Fx", "2Fx", "0x", "Bx"]),
            Part::End => (&["", "/", "/x", "/%", "/%2"], &[""]),
        };
        let mut each = before
            .iter()
            .flat_map(|b| after.iter().map(move |a| (b, a)));
        each.any(|(before, after)| {
            let whole = format!("{before}{text}{after}");
            let normal = self.normalized(whole.as_bytes());
            match part {
                Part::Whole => normal == text.as_bytes(),
                Part::Beginning => normal.starts_with(text.as_bytes()),
                Part::End => normal.ends_with(text.as_bytes()),
            }
        })
    }
}

/// The bytes that normalization may change wherever they are.
const SUSPECT: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        #[expect(clippy::cast_possible_truncation, reason = "the table has 256 entries")]
        let this = byte as u8;
        table[byte] = this == b'%' || !is_of_uri(this);
        byte += 1;
    }
    table
};

/// Returns whether a path in a URI may contain the byte (RFC 3986 §3.3), or `#`, which no path contains.
const fn is_of_uri(byte: u8) -> bool {
    byte.is_ascii_graphic()
        && !matches!(
            byte,
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}'
        )
}

/// Returns the byte encoded by the two hexadecimal digits after a percent sign.
fn escaped(after: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

/// Returns whether a byte is unreserved (RFC 3986 §2.3).
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

#[cfg(test)]
mod tests {
    use super::*;
    use PathNormalization::{Base, DecodeAndMergeSlashes, MergeSlashes};

    fn text(path: &str, mode: PathNormalization) -> String {
        let path = path.as_bytes();
        let new = mode.normalized(path);
        assert!(new == path || mode.may_change(path));
        assert_eq!(mode.normalized(&new), new, "twice is once");
        String::from_utf8(new).unwrap()
    }

    #[test]
    fn dot_segments_go() {
        for (path, expected) in [
            ("/a/b/c/./../../g", "/a/g"),
            ("/x/../admin", "/admin"),
            ("/../../admin", "/admin"),
            ("/a/.", "/a/"),
            ("/a/..", "/"),
            ("/..", "/"),
            ("/", "/"),
            ("/a//b", "/a//b"),
            ("/a//../b", "/a/b"),
            ("/.well-known/x", "/.well-known/x"),
            ("/a/...", "/a/..."),
            ("*", "*"),
        ] {
            assert_eq!(text(path, Base), expected, "{path}");
        }
    }

    #[test]
    fn what_means_the_same_is_decoded() {
        for (path, expected) in [
            ("/%61dmin", "/admin"),
            ("/x/%2e%2E/admin", "/admin"),
            ("/x\\..\\admin", "/admin"),
            ("/a%2Fb%20c%25", "/a%2Fb%20c%25"),
            ("/a%2fb%c3%a9", "/a%2Fb%C3%A9"),
            ("/%", "/%25"),
            ("/%6", "/%256"),
            ("/%+1", "/%25+1"),
            ("/%%361dmin", "/%2561dmin"),
            ("/é|{x}\u{7f}", "/%C3%A9%7C%7Bx%7D%7F"),
        ] {
            assert_eq!(text(path, Base), expected, "{path}");
        }
    }

    #[test]
    fn slashes_are_merged_where_that_is_wanted() {
        assert_eq!(text("//a///b//", MergeSlashes), "/a/b/");
        assert_eq!(text("/a%2f..%5Cb", MergeSlashes), "/a%2F..%5Cb");
        assert_eq!(text("/a%2f..%5Cb", DecodeAndMergeSlashes), "/b");
    }

    #[test]
    fn texts_that_no_normal_path_contains_are_known() {
        let possible = [
            ("/admin", Part::Whole),
            ("/a%2Fb", Part::Whole),
            ("/a//b", Part::Whole),
            ("*", Part::Whole),
            ("/x/.", Part::Beginning),
            ("/x/..", Part::Beginning),
            ("/x/%", Part::Beginning),
            ("/x/%2", Part::Beginning),
            ("/x/%4", Part::Beginning),
            ("/x/%5", Part::Beginning),
            ("/x/%C3", Part::Beginning),
            (".html", Part::End),
            ("/", Part::End),
            ("2Fb", Part::End),
            ("./b", Part::End),
        ];
        let impossible = [
            ("/%61dmin", Part::Whole),
            ("/a%2fb", Part::Whole),
            ("/a/../b", Part::Whole),
            ("/a/.", Part::Whole),
            ("/a\\b", Part::Whole),
            ("/café", Part::Whole),
            ("/a b", Part::Beginning),
            ("/a/./b", Part::Beginning),
            ("/%61", Part::Beginning),
            ("/%2f", Part::Beginning),
            ("/../b", Part::End),
            ("%61dmin", Part::End),
        ];
        for (text, part) in possible {
            assert!(Base.can_yield(text, part), "{text} {part:?}");
        }
        for (text, part) in impossible {
            assert!(!Base.can_yield(text, part), "{text} {part:?}");
            assert!(PathNormalization::Off.can_yield(text, part));
        }
        assert!(!MergeSlashes.can_yield("/a//b", Part::Whole));
        assert!(!DecodeAndMergeSlashes.can_yield("/a%2Fb", Part::Whole));
    }
}
