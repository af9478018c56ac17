//! Suggestions for the notation of values: addresses, times, sizes, rates, policies, domains.
//!
//! Suggestions appear only in messages: nothing is accepted because of them.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use maglor_balance as balance;

use crate::yaml::short;

/// Parses a port, 1 to 65535.
fn port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port > 0)
}

/// Splits a text that may be a URL into the host with the rest, and the port of its scheme.
fn without_scheme(text: &str) -> (&str, Option<u16>) {
    let (rest, port) = match text.split_once("://") {
        Some(("https" | "grpcs" | "wss", rest)) => (rest, Some(443)),
        Some((_, rest)) => (rest, Some(80)),
        None => (text, None),
    };
    let rest = rest.split(['/', '?']).next().unwrap_or_default();
    (rest, port)
}

/// Guesses the intended address of a listener: `8080`, `:8080`, `*:80`, `localhost:80`, `80 ssl`,
/// `http://0.0.0.0:80`, `tcp/:80`.
pub(crate) fn listen(text: &str) -> Option<String> {
    let first = text.split([' ', ';', ',']).find(|word| !word.is_empty())?;
    let first = first.strip_prefix("tcp/").unwrap_or(first);
    let (text, scheme) = without_scheme(first);
    if let Ok(address) = text.parse::<IpAddr>() {
        let port = scheme.unwrap_or(8080);
        return Some(match address {
            IpAddr::V4(address) => format!("{address}:{port}"),
            IpAddr::V6(address) => format!("\"[{address}]:{port}\""),
        });
    }
    if let Some(port) = port(text) {
        return Some(format!("0.0.0.0:{port}"));
    }
    let (host, tail) = text.rsplit_once(':').unwrap_or((text, ""));
    let number = match tail.is_empty() {
        true => scheme.unwrap_or(8080),
        false => port(tail)?,
    };
    match host {
        "" | "*" | "0.0.0.0" => Some(format!("0.0.0.0:{number}")),
        "localhost" => Some(format!("127.0.0.1:{number}")),
        _ => {
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            if let Ok(address) = bare.parse::<Ipv6Addr>() {
                return Some(format!("\"[{address}]:{number}\""));
            }
            let address: IpAddr = bare.parse().ok()?;
            Some(format!("{address}:{number}"))
        }
    }
}

/// Guesses the intended address of a server: `9001`, `http://app:9001/x`, `app.internal`, `:9001`,
/// `::1`.
pub(crate) fn endpoint(text: &str) -> Option<String> {
    let first = text.split([' ', ';', ',']).find(|word| !word.is_empty())?;
    let (text, scheme) = without_scheme(first);
    if text.is_empty() || text.contains(['$', '{', '@']) || text.starts_with("unix:") {
        return None;
    }
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Some(format!("\"[{address}]:{}\"", scheme.unwrap_or(80)));
    }
    if let Some(port) = port(text) {
        return Some(format!("127.0.0.1:{port}"));
    }
    match text.rsplit_once(':') {
        Some(("" | "*" | "0.0.0.0", tail)) => port(tail).map(|port| format!("127.0.0.1:{port}")),
        Some((host, tail)) if host.starts_with('[') => {
            port(tail).map(|port| format!("\"{host}:{port}\""))
        }
        Some((host, tail)) => port(tail).map(|port| format!("{host}:{port}")),
        None => Some(format!("{text}:{}", scheme.unwrap_or(80))),
    }
}

/// Suggests names for `domains`: `https://a.com/`, `a.com b.com`, `*.a.com`, `~^www`.
pub(crate) fn domains(text: &str) -> Option<String> {
    let words = text.split([' ', ',', ';']).filter(|word| !word.is_empty());
    let names: Vec<_> = words
        .map(|word| {
            let (host, _) = without_scheme(word);
            let host = if host == "_" { "*" } else { host };
            match host.contains(['*', '[', ':']) {
                true => format!("\"{host}\""),
                false => host.to_owned(),
            }
        })
        .filter(|name| !name.contains(['~', '^', '$', '(', '\\']))
        .collect();
    match names.as_slice() {
        [] => None,
        [one] => Some(short(one)),
        several => Some(short(&format!("[{}]", several.join(", ")))),
    }
}

/// Returns our policy for another program's name of it.
pub(crate) fn policy(name: &str) -> Option<String> {
    let first = name.split([' ', '(', ';']).next()?;
    match first.parse::<balance::PolicySpec>() {
        Ok(_) => Some(first.to_owned()),
        Err(balance::SpecError::UnknownPolicy { suggestion, .. }) => suggestion.map(str::to_owned),
        Err(_) => None,
    }
}

/// Splits a text into the number at its beginning, as written, and the following word.
fn number_and_word(text: &str) -> Option<(f64, String)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    let word = text[end..].trim().to_ascii_lowercase();
    Some((number, word)).filter(|_| (0.0..1e12).contains(&number))
}

/// Guesses the intended time: `1.5s`, `5 seconds`, `500 msec`, `1min`, `PT5S`, `none`.
pub(crate) fn time(text: &str) -> Option<Duration> {
    let plain = text.trim().to_ascii_lowercase();
    if [
        "none",
        "off",
        "never",
        "infinite",
        "infinity",
        "unlimited",
        "disabled",
        "false",
        "-1",
    ]
    .contains(&plain.as_str())
    {
        return Some(Duration::ZERO);
    }
    let plain = plain.strip_prefix("pt").unwrap_or(&plain);
    let (number, word) = number_and_word(plain)?;
    let seconds = match word.as_str() {
        "ms" | "msec" | "msecs" | "milli" | "millis" | "millisecond" | "milliseconds" => 0.001,
        "us" | "usec" | "µs" | "microsecond" | "microseconds" => 0.000_001,
        "" | "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3600.0,
        "d" | "day" | "days" => 86_400.0,
        "w" | "week" | "weeks" => 604_800.0,
        _ => return None,
    };
    let micros = (number * seconds * 1e6).round();
    // At most 10 years, which is far below what an integer holds.
    (micros <= 3.2e14).then(|| Duration::from_secs_f64(micros / 1e6))
}

/// Guesses the intended size in bytes: `64k`, `1.5MiB`, `10 MB`.
pub(crate) fn size(text: &str) -> Option<u64> {
    let (number, word) = number_and_word(text)?;
    let factor = match word.trim_end_matches("ytes").trim_end_matches("yte") {
        "" | "b" => 1.0,
        "k" | "kb" | "kib" | "ki" => 1024.0,
        "m" | "mb" | "mib" | "mi" => 1024.0 * 1024.0,
        "g" | "gb" | "gib" | "gi" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let bytes = (number * factor).round();
    // Below 2^53, where every whole number is exact.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative and below 2^53"
    )]
    (bytes < 9e15).then_some(bytes as u64)
}

/// Guesses the intended rate: `10r/s`, `100 per second`, `100rps`, `100/sec`, `100`.
pub(crate) fn rate(text: &str) -> Option<String> {
    let (number, word) = number_and_word(text)?;
    if number.fract() != 0.0 || number < 1.0 {
        return None;
    }
    let unit = word
        .rsplit(['/', ' '])
        .next()
        .unwrap_or_default()
        .trim_start_matches("req")
        .trim_start_matches("rp")
        .trim_start_matches("per");
    let unit = match unit.trim_end_matches('s') {
        "" | "sec" | "second" | "r" => "s",
        "m" | "min" | "minute" => "m",
        "h" | "hour" => "h",
        "d" | "day" => "24h",
        _ => return None,
    };
    Some(format!("{number:.0}/{unit}"))
}

/// Matches a percentage such as `90%`; returns the number.
pub(crate) fn percent(text: &str) -> Option<&str> {
    let number = text.trim().strip_suffix('%')?.trim_end();
    number.parse::<f64>().ok().map(|_| number)
}

/// Returns the help for a text with placeholders of a template engine.
pub(crate) fn template(text: &str) -> Option<String> {
    let marks = text.contains("{{") || text.contains("<%");
    let is_name = |rest: &str| {
        let rest = rest.strip_prefix('{').unwrap_or(rest);
        rest.starts_with(|c: char| c.is_ascii_uppercase())
            && rest
                .chars()
                .take_while(|c| c.is_ascii_uppercase() || *c == '_')
                .count()
                > 1
    };
    let variable = text.split('$').skip(1).any(is_name);
    if marks {
        return Some("templates are not expanded: render the file first".into());
    }
    variable.then(|| {
        "environment variables are not expanded: render the file first, for example with `envsubst`"
            .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::{Size, TimeSpan};

    #[test]
    fn addresses_are_guessed() {
        for (text, address) in [
            ("8080", "0.0.0.0:8080"),
            (":80", "0.0.0.0:80"),
            ("*:80", "0.0.0.0:80"),
            ("80 default_server", "0.0.0.0:80"),
            ("[::]:443 ssl", "\"[::]:443\""),
            ("localhost:8080", "127.0.0.1:8080"),
            ("https://0.0.0.0", "0.0.0.0:443"),
            ("::1", "\"[::1]:8080\""),
        ] {
            assert_eq!(listen(text).as_deref(), Some(address), "{text}");
        }
        assert_eq!(listen("example.com:80"), None);
        assert_eq!(listen("1:99999"), None);
        for (text, address) in [
            ("9001", "127.0.0.1:9001"),
            ("http://app:9001/x", "app:9001"),
            ("https://api.example.com", "api.example.com:443"),
            ("app.internal", "app.internal:80"),
            ("127.0.0.1:9001 weight=2", "127.0.0.1:9001"),
        ] {
            assert_eq!(endpoint(text).as_deref(), Some(address), "{text}");
        }
    }

    #[test]
    fn times_sizes_and_rates_are_guessed() {
        for (text, expected) in [
            ("1.5s", "1s500ms"),
            ("5 seconds", "5s"),
            ("1min", "1m"),
            ("0.25", "250ms"),
            ("none", "0s"),
            ("2 weeks", "14d"),
        ] {
            assert_eq!(
                TimeSpan(time(text).unwrap()).to_string(),
                expected,
                "{text}"
            );
        }
        assert!(time("soon").is_none());
        assert_eq!(Size(size("1.5MiB").unwrap()).to_string(), "1536KiB");
        assert_eq!(Size(size("10 mb").unwrap()).to_string(), "10MiB");
        for (text, expected) in [
            ("10r/s", "10/s"),
            ("100 per second", "100/s"),
            ("100rps", "100/s"),
            ("60/min", "60/m"),
            ("100", "100/s"),
            ("5 requests per minute", "5/m"),
        ] {
            assert_eq!(rate(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn templates_are_distinguished_from_plain_text() {
        for text in ["${PORT}", "0.0.0.0:$PORT", "{{ .Values.x }}"] {
            assert!(template(text).is_some(), "{text}");
        }
        for text in ["a", "$1", "100$", "$x", "${name}"] {
            assert!(template(text).is_none(), "{text}");
        }
    }
}
