//! Validates names of Kubernetes objects from untrusted input before they become part of an API server path.

/// Returns whether a text is an RFC 1123 label, the form of namespace names: 1 to 63 of `a-z 0-9 -`, with no hyphen
/// at either end.
pub(crate) fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

/// Returns whether a text is an RFC 1123 subdomain as Kubernetes defines it, the form of most other names: parts like
/// labels, separated by dots, with up to 253 bytes in total. The length of a single part is not limited.
pub(crate) fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

fn is_part(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(inside) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_segment_of_a_path() {
        for name in ["a", "shop-1", "0", &"a".repeat(63)] {
            assert!(is_label(name) && is_subdomain(name), "{name}");
        }
        for name in ["a.b", "web-7d9f.v1", &"a".repeat(64), &"a".repeat(253)] {
            assert!(!is_label(name) && is_subdomain(name), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "../a",
            "a?b",
            "a#b",
            "a%2fb",
            "A",
            "a b",
            "a\0",
            "-a",
            "a-",
            "a..b",
            "é",
            &"a".repeat(254),
        ] {
            assert!(!is_label(name) && !is_subdomain(name), "{name}");
        }
    }
}
