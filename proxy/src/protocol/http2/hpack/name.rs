//! Classification of field names, and the bytes that are allowed in names and values (RFC 9113, section 8.2.1).

use crate::protocol::fields::Known;

/// Class of a field name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Name {
    /// `:authority`.
    Authority,
    /// A regular header field.
    Field(Known),
    /// An invalid name, or an unknown pseudo-header field.
    Malformed,
    /// `:method`.
    Method,
    /// `:path`.
    Path,
    /// `:scheme`.
    Scheme,
    /// `:status`.
    Status,
}

impl Name {
    pub(super) fn of(name: &[u8]) -> Self {
        match name {
            b":authority" => Self::Authority,
            b":method" => Self::Method,
            b":path" => Self::Path,
            b":scheme" => Self::Scheme,
            b":status" => Self::Status,
            [_, ..]
                if name
                    .iter()
                    .all(|byte| CLASSES[usize::from(*byte)] & TOKEN != 0) =>
            {
                Self::Field(Known::of(name))
            }
            _ => Self::Malformed,
        }
    }
}

/// Class of bytes allowed in a name: those of a token (RFC 9110, section 5.6.2) without capital letters.
const TOKEN: u8 = 1;
/// Class of bytes allowed in a value: all except control characters and DEL; tabs are allowed.
const VALUE: u8 = 2;

static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < classes.len() {
        let token = matches!(
            byte as u8,
            b'a'..=b'z' | b'0'..=b'9' | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'
            | b'_' | b'`' | b'|' | b'~'
        );
        let value = byte == 0x09 || (byte >= 0x20 && byte != 0x7f);
        classes[byte] = if token { TOKEN } else { 0 } | if value { VALUE } else { 0 };
        byte += 1;
    }
    classes
};

/// Returns whether a value has only allowed bytes, and no whitespace at its ends.
pub(in crate::protocol::http2) fn is_value(value: &[u8]) -> bool {
    let blank = |end: Option<&u8>| matches!(end, Some(b' ' | b'\t'));
    // There is no early exit, so that this is one pass without branches.
    let all = value
        .iter()
        .fold(VALUE, |all, byte| all & CLASSES[usize::from(*byte)]);
    all != 0 && !blank(value.first()) && !blank(value.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_tokens() {
        assert_eq!(Name::of(b"host"), Name::Field(Known::Host));
        assert_eq!(Name::of(b"x-1_~!"), Name::Field(Known::Other));
        for bad in [
            "", "X", "xY", "x y", " x", "x ", "x:", ":x", ":Method", ":", "x\0", "x\u{7f}",
            "x\u{e9}",
        ] {
            assert_eq!(Name::of(bad.as_bytes()), Name::Malformed, "{bad:?}");
        }
    }

    #[test]
    fn values_have_no_control_characters_and_no_blank_ends() {
        for good in ["", "x", "a b", "a\tb", "\u{e9}", "a:b,c;d\"e\""] {
            assert!(is_value(good.as_bytes()), "{good:?}");
        }
        for bad in [
            "\0", "a\rb", "a\nb", "\u{1}", "\u{1b}", "\u{7f}", " a", "a ", "\ta", "a\t", " ",
        ] {
            assert!(!is_value(bad.as_bytes()), "{bad:?}");
        }
    }
}
