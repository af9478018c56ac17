//! `tracestate`: vendor-specific data of a trace, which is validated and forwarded, but never interpreted.

/// The maximum number of entries of a list.
const MAX_ENTRIES: usize = 32;

/// Combines the lists of all `tracestate` headers of a request into one value, in their order.
///
/// Empty entries are left out, as is the white space around entries. `None` if there is nothing to
/// forward: no entry, or a list that breaks the rules (§3.3 of the specification: syntax of keys
/// and values, each key once, at most 32 entries) and must be dropped as a whole. Keys may start
/// with a digit, as level 2 allows.
///
/// Only to be used together with a valid `traceparent`.
///
/// ```
/// use maglor_telemetry::trace_context::tracestate::combine;
///
/// let values: [&[u8]; 2] = [b"rojo=00f067aa0ba902b7 ,", b"congo=t61rcWkgMzE"];
/// assert_eq!(combine(values).unwrap(), "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE");
/// assert_eq!(combine([&b"rojo=1,rojo=2"[..]]), None);
/// ```
pub fn combine<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<String> {
    let mut list = String::new();
    let mut keys: Vec<&str> = Vec::new();
    for value in values {
        let value = std::str::from_utf8(value).ok()?;
        let entries = value
            .split(',')
            .map(|entry| entry.trim_matches([' ', '\t']));
        for entry in entries.filter(|entry| !entry.is_empty()) {
            let (key, text) = entry.split_once('=')?;
            if !is_key(key) || !is_value(text) || keys.contains(&key) {
                return None;
            }
            if keys.len() == MAX_ENTRIES {
                return None;
            }
            keys.push(key);
            if !list.is_empty() {
                list.push(',');
            }
            list.push_str(entry);
        }
    }
    (!list.is_empty()).then_some(list)
}

/// Returns whether a key is the name of a vendor, or `TENANT@VENDOR`.
fn is_key(key: &str) -> bool {
    match key.split_once('@') {
        None => is_name(key, 256),
        Some((tenant, vendor)) => {
            is_name(tenant, 241)
                && is_name(vendor, 14)
                && vendor.starts_with(|c: char| c.is_ascii_lowercase())
        }
    }
}

fn is_name(name: &str, longest: usize) -> bool {
    let first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let other = |byte| first(byte) || matches!(byte, b'_' | b'-' | b'*' | b'/');
    let bytes = name.as_bytes();
    bytes.len() <= longest
        && bytes.first().is_some_and(|&byte| first(byte))
        && bytes.iter().all(|&byte| other(byte))
}

/// Returns whether a value is printable ASCII without `,` and `=`. White space at its end was trimmed with the entry.
fn is_value(value: &str) -> bool {
    (1..=256).contains(&value.len())
        && value
            .bytes()
            .all(|byte| matches!(byte, 0x20..=0x7e) && byte != b',' && byte != b'=')
}
