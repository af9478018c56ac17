//! Paths are made comparable before they are routed (RFC 3986 §6.2.2): a rule for `/admin` is not
//! passed by `/x/../admin` or `/%61dmin`, and the endpoint gets the path that the rule saw.

use std::borrow::Cow;

use maglor_config::listener::PathNormalization;

use crate::protocol::message::Request;

/// Normalizes a request's path as the listener is configured to.
pub(super) fn normalize(request: &mut Request, mode: PathNormalization) {
    if mode == PathNormalization::Off || !is_suspect(request.path(), mode) {
        return;
    }
    let new = normalized(request.path(), mode);
    if new == request.path() {
        return;
    }
    let target = super::rewrite::with_query(new, request.query());
    request.set_path_and_query(&target);
}

/// Whether a path may have to change: one look at each byte, for all the paths that need nothing.
fn is_suspect(path: &[u8], mode: PathNormalization) -> bool {
    let merge = mode >= PathNormalization::MergeSlashes;
    let mut before = 0;
    path.iter().any(|&byte| {
        let pair = before == b'/' && (byte == b'.' || (merge && byte == b'/'));
        before = byte;
        pair || matches!(byte, b'%' | b'\\')
    })
}

fn normalized(path: &[u8], mode: PathNormalization) -> Vec<u8> {
    let path = decoded(path, mode);
    let Some(rest) = path.strip_prefix(b"/") else {
        // `*` and the like are no paths.
        return path.into_owned();
    };
    let merge = mode >= PathNormalization::MergeSlashes;
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut segments = rest.split(|&byte| byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            b"." | b".." => {
                if segment == b".." {
                    kept.pop();
                }
                // What a dot segment at the end names is a folder.
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

/// Decodes what means the same decoded; a percent sign that begins no escape is escaped itself.
fn decoded(path: &[u8], mode: PathNormalization) -> Cow<'_, [u8]> {
    if !path.iter().any(|byte| matches!(byte, b'%' | b'\\')) {
        return Cow::Borrowed(path);
    }
    let slashes = mode == PathNormalization::DecodeAndMergeSlashes;
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, escaped(after)) {
            (b'\\', _) => out.push(b'/'),
            (b'%', Some(b'/' | b'\\')) if slashes => {
                out.push(b'/');
                rest = &after[2..];
            }
            (b'%', Some(byte)) if is_unreserved(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            // Kept alone it could become an escape with what is decoded behind it.
            (b'%', None) => out.extend_from_slice(b"%25"),
            _ => out.push(byte),
        }
    }
    Cow::Owned(out)
}

/// The byte of two hexadecimal digits after a percent sign.
fn escaped(after: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

/// RFC 3986 §2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

#[cfg(test)]
mod tests {
    use super::*;
    use PathNormalization::{Base, DecodeAndMergeSlashes, MergeSlashes};

    fn text(path: &str, mode: PathNormalization) -> String {
        let path = path.as_bytes();
        let new = normalized(path, mode);
        assert!(new == path || is_suspect(path, mode));
        assert_eq!(normalized(&new, mode), new, "twice is once");
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
            ("/%", "/%25"),
            ("/%6", "/%256"),
            ("/%+1", "/%25+1"),
            ("/%%361dmin", "/%2561dmin"),
        ] {
            assert_eq!(text(path, Base), expected, "{path}");
        }
    }

    #[test]
    fn slashes_are_merged_where_that_is_wanted() {
        assert_eq!(text("//a///b//", MergeSlashes), "/a/b/");
        assert_eq!(text("/a%2f..%5Cb", MergeSlashes), "/a%2f..%5Cb");
        assert_eq!(text("/a%2f..%5Cb", DecodeAndMergeSlashes), "/b");
    }
}
