//! Headers of requests.

use http::header::{HeaderMap, HeaderName};

/// Returns the elements of a list header, `accept` for example, of which a request may have several: joined by commas,
/// as RFC 9110 (section 5.3) defines. Values that are not text are omitted.
#[must_use]
pub fn list(headers: &HeaderMap, name: HeaderName) -> String {
    let values = headers.get_all(name);
    let values: Vec<_> = values
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    values.join(",")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::ACCEPT;

    use super::*;

    #[test]
    fn all_lines_are_one_list() {
        let mut headers = HeaderMap::new();
        assert_eq!(list(&headers, ACCEPT), "");
        headers.append(ACCEPT, HeaderValue::from_static("a/b;q=0.5"));
        headers.append(ACCEPT, HeaderValue::from_bytes(b"\xff").unwrap());
        headers.append(ACCEPT, HeaderValue::from_static("*/*"));
        assert_eq!(list(&headers, ACCEPT), "a/b;q=0.5,*/*");
    }
}
