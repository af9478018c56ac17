//! Conditions on the values of header fields that the empty value satisfies: in Envoy, an absent field may count as empty.

use crate::proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;

/// Returns whether the empty value satisfies a condition.
pub(crate) fn matches_empty(pattern: &MatchPattern) -> bool {
    match pattern {
        MatchPattern::Exact(text)
        | MatchPattern::Prefix(text)
        | MatchPattern::Suffix(text)
        | MatchPattern::Contains(text) => text.is_empty(),
        // An invalid expression is rejected later.
        MatchPattern::SafeRegex(matcher) => maglor_config::matches_empty(&matcher.regex),
    }
}
