//! Decodes header changes.

use maglor_config::header_format::{self, NotLiteral};
use maglor_config::raw::{HeaderRules, OneOrMany, Pairs};

use super::Fault;
use crate::proto::envoy::config::core::v3::{
    HeaderValueOption, header_value_option::HeaderAppendAction,
};

/// Returns the header changes: to set, to add and to remove; `None` if there are none.
pub(super) fn decode(
    field: &str,
    options: &[HeaderValueOption],
    remove: &[String],
) -> Result<Option<HeaderRules>, Fault> {
    let mut set: Vec<(String, String)> = Vec::new();
    let mut add: Vec<(String, OneOrMany)> = Vec::new();
    for (i, option) in options.iter().enumerate() {
        let place = |name: &str| format!("{field}_to_add[{i}].{name}");
        let Some(header) = &option.header else {
            return Err(Fault::new(place("header"), "the field is missing"));
        };
        // The deprecated field takes precedence, as in Envoy.
        let action = match option.append {
            Some(true) => HeaderAppendAction::AppendIfExistsOrAdd,
            Some(false) => HeaderAppendAction::OverwriteIfExistsOrAdd,
            None => HeaderAppendAction::try_from(option.append_action)
                .map_err(|_| Fault::unsupported(place("append_action")))?,
        };
        let value = header_format::unescape(&header.value).map_err(|what| {
            let reason = match what {
                NotLiteral::Command(command) => header_format::refusal(command),
                NotLiteral::Percent => "a percent sign must be written `%%`".to_owned(),
            };
            Fault::new(place("header.value"), reason)
        })?;
        let (name, value) = (header.key.clone(), value.into_owned());
        // As in Envoy, such a change has no effect.
        if value.is_empty() && !option.keep_empty_value {
            continue;
        }
        match action {
            HeaderAppendAction::OverwriteIfExistsOrAdd => set.push((name, value)),
            HeaderAppendAction::AppendIfExistsOrAdd => match add.last_mut() {
                Some((last, values)) if *last == name => values.0.push(value),
                _ => add.push((name, OneOrMany(vec![value]))),
            },
            HeaderAppendAction::AddIfAbsent | HeaderAppendAction::OverwriteIfExists => {
                return Err(Fault::unsupported(place("append_action")));
            }
        }
    }
    if set.is_empty() && add.is_empty() && remove.is_empty() {
        return Ok(None);
    }
    Ok(Some(HeaderRules {
        remove: (!remove.is_empty()).then(|| OneOrMany(remove.to_vec())),
        set: (!set.is_empty()).then_some(Pairs(set)),
        add: (!add.is_empty()).then_some(Pairs(add)),
    }))
}
