//! Encodes header changes.

use maglor_config::header_format;
use maglor_config::raw::HeaderRules;

use crate::proto::envoy::config::core::v3::{
    HeaderValue, HeaderValueOption, header_value_option::HeaderAppendAction,
};

/// Returns the headers to set and to add, and the names of those to remove.
pub(super) fn encode(rules: Option<&HeaderRules>) -> (Vec<HeaderValueOption>, Vec<String>) {
    let Some(rules) = rules else {
        return Default::default();
    };
    let option = |key: &str, value: &str, action: HeaderAppendAction| HeaderValueOption {
        header: Some(HeaderValue {
            key: key.to_owned(),
            value: header_format::escape(value).into_owned(),
        }),
        append: None,
        append_action: action.into(),
        // Without it, Envoy ignores a change to an empty value.
        keep_empty_value: value.is_empty(),
    };
    let set = rules.set.iter().flat_map(|pairs| &pairs.0);
    let set =
        set.map(|(name, value)| option(name, value, HeaderAppendAction::OverwriteIfExistsOrAdd));
    let add = rules.add.iter().flat_map(|pairs| &pairs.0);
    let add = add.flat_map(|(name, values)| {
        let add = HeaderAppendAction::AppendIfExistsOrAdd;
        values.0.iter().map(move |value| option(name, value, add))
    });
    let remove = rules.remove.iter().flat_map(|names| &names.0);
    (set.chain(add).collect(), remove.cloned().collect())
}
