//! What a client accepts: the headers `accept` and `accept-encoding` (RFC 9110, section 12).

use super::Format;

/// The media type of OpenMetrics.
const OPEN_METRICS: &str = "application/openmetrics-text";
/// The version in which OpenMetrics is written. An older one is not offered: those who know it know the text format.
const VERSION: &str = "1.0.0";

/// Returns the format that a client prefers: OpenMetrics if it names it, and no plain text with a higher quality.
pub(super) fn format(accept: &str) -> Format {
    let (mut open_metrics, mut text) = (0.0_f64, 0.0_f64);
    for item in accept.split(',').map(Item::of) {
        if item.name.eq_ignore_ascii_case(OPEN_METRICS) {
            if item.version.is_none_or(|version| version == VERSION) {
                open_metrics = open_metrics.max(item.quality);
            }
        } else if item.name.eq_ignore_ascii_case("text/plain") {
            text = text.max(item.quality);
        }
    }
    match open_metrics > 0.0 && open_metrics >= text {
        true => Format::OpenMetrics,
        false => Format::Text,
    }
}

/// Returns whether a client accepts gzip.
pub(super) fn accepts_gzip(encodings: &str) -> bool {
    let (mut named, mut any) = (None, None);
    for item in encodings.split(',').map(Item::of) {
        let accepted = Some(item.quality > 0.0);
        match item.name {
            "*" => any = accepted,
            name if name.eq_ignore_ascii_case("gzip") => named = accepted,
            _ => {}
        }
    }
    named.or(any).unwrap_or(false)
}

/// An element of such a header.
struct Item<'a> {
    name: &'a str,
    version: Option<&'a str>,
    /// From 0 (not acceptable) to 1.
    quality: f64,
}

impl<'a> Item<'a> {
    fn of(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let mut item = Self {
            name: parts.next().unwrap_or_default(),
            version: None,
            quality: 1.0,
        };
        for (name, value) in parts.filter_map(|parameter| parameter.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim_end() {
                "q" | "Q" => item.quality = value.parse().unwrap_or(0.0),
                "version" => item.version = Some(value),
                _ => {}
            }
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_what_it_prefers() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
             application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,*/*;q=0.1";
        for accept in [
            prometheus,
            "application/openmetrics-text",
            "Application/OpenMetrics-Text; version=\"1.0.0\"",
            "text/plain, application/openmetrics-text",
            "application/openmetrics-text; q = 0.5 , */*",
        ] {
            assert_eq!(format(accept), Format::OpenMetrics, "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "text/plain",
            "text/html,application/xml;q=0.9,*/*;q=0.8",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=many",
            "application/openmetrics-text;version=0.0.1",
            "application/openmetrics-text;version=2.0.0",
            "application/openmetrics-text;q=0.2,text/plain;q=0.3",
            ";;;=,q=1",
        ] {
            assert_eq!(format(accept), Format::Text, "{accept}");
        }
    }

    #[test]
    fn gzip_is_used_only_on_request() {
        for encodings in ["gzip", "deflate, GZIP;q=0.5", "*", "br;q=1, *;q=0.1"] {
            assert!(accepts_gzip(encodings), "{encodings}");
        }
        for encodings in ["", "identity", "gzip;q=0", "gzip;q=0, *", "*;q=0", "zgzip"] {
            assert!(!accepts_gzip(encodings), "{encodings}");
        }
    }
}
