//! The grammar of policies: `name [ "(" [ parameter "=" value { "," … } ] ")" ]`, with spaces allowed
//! anywhere between.

use super::SpecError;
use super::spelling::shorten;

/// The parameters of a policy, in the order in which they are written.
pub type WrittenParameters = Vec<(String, String)>;

/// Returns the name and the parameters of a policy as written.
///
/// # Errors
///
/// The text is not of this form.
pub fn named(text: &str) -> Result<(&str, WrittenParameters), SpecError> {
    let syntax = |reason| SpecError::Syntax {
        text: shorten(text),
        reason,
    };
    let trimmed = text.trim();
    let (name, list) = match trimmed.split_once('(') {
        None if trimmed.contains(')') => return Err(syntax("`)` without `(`")),
        None => (trimmed, ""),
        Some((name, rest)) => {
            let list = rest
                .strip_suffix(')')
                .ok_or_else(|| syntax("`)` is missing at the end"))?;
            (name.trim_end(), list)
        }
    };
    if name.is_empty() {
        return Err(syntax("the name is missing"));
    }
    if list.contains(['(', ')']) {
        return Err(syntax("parentheses inside the parameters"));
    }
    let mut given = Vec::new();
    for part in list.split(',').map(str::trim) {
        if part.is_empty() && list.trim().is_empty() {
            continue;
        }
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| syntax("a parameter without `=`"))?;
        given.push((key.trim().to_owned(), value.trim().to_owned()));
    }
    Ok((name, given))
}
