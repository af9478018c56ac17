//! Ages of servers, for slow start.
//!
//! The host of a ledger knows the age of a server that has joined since the host started. For a host that has just
//! started, all servers look new. So each server's report contains the server's age. The host of a group is a member of
//! it, and often the new one.

use std::time::Duration;

use super::Entry;
use crate::Time;

/// Returns the age of each server. A server that has been in the host's list for as long as any other may be older: its
/// reported age counts, and without a reported age it is treated as the oldest, because slow start is for servers that
/// are known to be new.
pub(super) fn ages(entries: &[Entry], now: Time) -> Vec<Duration> {
    let first = entries.iter().map(|entry| entry.joined).min();
    let listed = |entry: &Entry| now.saturating_since(entry.joined);
    let own = |entry: &Entry| {
        let reported = entry.own_age(now)?;
        Some(reported.max(listed(entry)))
    };
    let oldest = |entry: &Entry| own(entry).unwrap_or_else(|| listed(entry));
    let oldest = entries.iter().map(oldest).max().unwrap_or_default();
    let age = |entry: &Entry| {
        if Some(entry.joined) == first {
            own(entry).unwrap_or(oldest)
        } else {
            listed(entry)
        }
    };
    entries.iter().map(age).collect()
}

impl Entry {
    /// Records the age in a report. Returns whether the server is older than known by more than `step`.
    pub(super) fn takes_age(&mut self, age: Duration, step: Duration, now: Time) -> bool {
        let news = self.own_age(now).is_none_or(|known| age > known + step);
        if news {
            self.reported_age = Some((age, now));
        }
        news
    }

    /// Returns the server's age according to its reports; `None` if none contained an age.
    fn own_age(&self, now: Time) -> Option<Duration> {
        let (age, at) = self.reported_age?;
        Some(age.saturating_add(now.saturating_since(at)))
    }
}
