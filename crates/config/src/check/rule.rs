//! Validation rules that many blocks share: ranges, names, uniqueness, mutually exclusive fields.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use maglor_balance::guard::Percent;

use crate::hints::shapes;
use crate::raw::{Size, TimeSpan};
use crate::report::{At, Step};
use crate::{Address, UnixAddress, UnixAddressError};

pub(super) const MILLISECOND: Duration = Duration::from_millis(1);
pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const HOUR: Duration = Duration::from_secs(3600);
pub(super) const DAY: Duration = Duration::from_secs(86_400);

/// Validates a number against a range; returns its default if it is absent.
pub(super) fn number<T>(value: Option<T>, at: &At<'_>, default: T, range: RangeInclusive<T>) -> T
where
    T: PartialOrd + Display + Copy,
{
    let value = value.unwrap_or(default);
    if !range.contains(&value) {
        let (min, max) = (range.start(), range.end());
        let near = if value < *min { min } else { max };
        at.error(format!("{value} is out of range; valid: {min} to {max}"))
            .help(format!("the nearest valid value is {near}"));
        return default;
    }
    value
}

/// Validates a time against a range; returns its default if it is absent.
pub(super) fn time(
    value: Option<TimeSpan>,
    at: &At<'_>,
    default: Duration,
    range: RangeInclusive<Duration>,
) -> Duration {
    let value = value.map_or(default, |span| span.0);
    if !range.contains(&value) {
        at.error(not_within(value, &range)).help(format!(
            "remove the line to use the default, {}",
            TimeSpan(default)
        ));
        return default;
    }
    value
}

/// Validates a time against a range. There is no default: the presence of the field has a meaning.
pub(super) fn explicit_time(
    TimeSpan(value): TimeSpan,
    at: &At<'_>,
    range: RangeInclusive<Duration>,
) -> Duration {
    let near = value.clamp(*range.start(), *range.end());
    if near != value {
        at.error(not_within(value, &range))
            .help(format!("the nearest valid value is {}", TimeSpan(near)));
    }
    near
}

fn not_within(value: Duration, range: &RangeInclusive<Duration>) -> String {
    let (min, max) = (TimeSpan(*range.start()), TimeSpan(*range.end()));
    if value.is_zero() {
        return format!("0 is out of range; valid: {min} to {max}");
    }
    format!("{} is out of range; valid: {min} to {max}", TimeSpan(value))
}

/// Validates a percentage; returns its default if it is absent.
pub(super) fn percent(value: Option<f64>, at: &At<'_>, default: f64) -> Percent {
    // A number in range is a valid percentage.
    Percent::new(number(value, at, default, 0.0..=100.0)).unwrap_or_default()
}

/// Checks that the first of two times is not longer than the second; otherwise reports an error at the first.
pub(super) fn ordered((less, min): (&str, Duration), (more, max): (&str, Duration), at: &At<'_>) {
    if min > max {
        let (min, max) = (TimeSpan(min), TimeSpan(max));
        at.field(less)
            .error(format!("`{less}` ({min}) is above `{more}` ({max})"));
    }
}

/// Validates a size against a range; returns its default if it is absent.
pub(super) fn size(
    value: Option<Size>,
    at: &At<'_>,
    default: u64,
    range: RangeInclusive<u64>,
) -> usize {
    let value = value.map_or(default, |size| size.0);
    if !range.contains(&value) {
        let (min, max) = (Size(*range.start()), Size(*range.end()));
        let near = if value < *range.start() { min } else { max };
        at.error(format!(
            "{} is out of range; valid: {min} to {max}",
            Size(value)
        ))
        .help(format!("the nearest valid value is {near}"));
    }
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Returns a mandatory name.
pub(super) fn name(value: Option<&String>, at: &At<'_>, help: &str) -> Option<Arc<str>> {
    let Some(text) = value else {
        at.missing("name", help);
        return None;
    };
    well_formed(text, &at.field("name")).then(|| text.as_str().into())
}

/// Checks the characters of a name, because names become metric labels and path segments of the admin server.
pub(super) fn well_formed(text: &str, at: &At<'_>) -> bool {
    let good = |c: char| !c.is_whitespace() && !c.is_control();
    if text.is_empty() || text.len() > 253 || !text.chars().all(good) {
        at.error("a name must have 1 to 253 characters, without spaces")
            .maybe_help(suggested_name(text));
        return false;
    }
    true
}

fn suggested_name(text: &str) -> Option<String> {
    let name = text.split_whitespace().collect::<Vec<_>>().join("-");
    let good = !name.is_empty() && name.len() < 100 && !name.contains(char::is_control);
    good.then(|| format!("for example `{name}`"))
}

/// Parses an `IP:PORT` or a Unix socket to listen on, or reports an error.
pub(super) fn listen_address(value: Option<&String>, at: &At<'_>) -> Option<Address> {
    let Some(text) = value else {
        at.missing(
            "address",
            "write `address: IP:PORT`, for example `0.0.0.0:8080`, or `unix:/PATH`",
        );
        return None;
    };
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address.into());
    }
    if let Some(unix) = UnixAddress::parse(text.trim()) {
        return unix_address(unix, text, &at.field("address")).map(Address::Unix);
    }
    let text = text.trim();
    let out_of_range = text
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u64>().is_ok_and(|port| port > 65535));
    let help = match shapes::listen(text) {
        _ if text.starts_with(['/', '@']) => format!("write `unix:{text}`"),
        _ if out_of_range => "the port must be 0 to 65535".into(),
        Some(address) if address.starts_with("0.0.0.0:") => format!("write `{address}` for all interfaces"),
        Some(address) => format!("write `{address}`"),
        None => "a listener needs an IP address and a port, for example `0.0.0.0:8080` or `[::]:8080`; set host names in `domains`".into(),
    };
    at.field("address")
        .error(format!("`{}` is not `IP:PORT`", crate::yaml::short(text)))
        .help(help);
    None
}

/// Parses a Unix socket, or reports an error with the valid notation.
pub(super) fn unix_address(
    read: Result<UnixAddress, UnixAddressError>,
    text: &str,
    at: &At<'_>,
) -> Option<UnixAddress> {
    match read {
        Ok(address) => Some(address),
        Err(error) => {
            let text = crate::yaml::short(text);
            at.error(format!("`{text}` is not a Unix socket"))
                .help(error.to_string());
            None
        }
    }
}

/// Texts that may occur only once.
#[derive(Default)]
pub(super) struct Unique(HashMap<String, Vec<Step>>);

impl Unique {
    /// Returns whether `text` is new; if not, reports an error at `at` that refers to the first occurrence.
    pub(super) fn check(&mut self, text: &str, at: &At<'_>, what: &str) -> bool {
        if let Some(first) = self.0.get(text) {
            at.error(format!(
                "{what} `{}` is defined twice",
                crate::yaml::short(text)
            ))
            .other(first.clone(), "first defined");
            return false;
        }
        self.0.insert(text.to_owned(), at.path());
        true
    }
}

/// Returns which of the mutually exclusive fields is set; reports an error unless it is exactly one.
pub(super) fn exactly_one(set: &[(&'static str, bool)], at: &At<'_>) -> Option<&'static str> {
    let names: Vec<&str> = set.iter().map(|(name, _)| *name).collect();
    let mut present = set
        .iter()
        .filter(|(_, there)| *there)
        .map(|(name, _)| *name);
    match (present.next(), present.next()) {
        (Some(only), None) => Some(only),
        (None, _) => {
            at.error(format!(
                "one of {} is required",
                crate::suggest::one_of(&names)
            ))
            .when_readable();
            None
        }
        (Some(first), Some(second)) => {
            at.field(second)
                .error(format!("`{first}` and `{second}` are mutually exclusive"))
                .on_key()
                .help(format!("keep one of {}", crate::suggest::one_of(&names)));
            None
        }
    }
}
