//! Parameters of a page.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Returns the parameters of a query: the name as it is written, and the decoded value, which is empty without `=`.
pub fn parameters(query: &str) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (name, percent_decode_str(value).decode_utf8_lossy())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_may_be_missing() {
        let found: Vec<_> = parameters("a%20b=c%2Fd&&full&x=1=2&bad=%zz").collect();
        let expected = [("a%20b", "c/d"), ("full", ""), ("x", "1=2"), ("bad", "%zz")];
        assert_eq!(
            found,
            expected.map(|(name, value)| (name, Cow::Borrowed(value)))
        );
    }
}
