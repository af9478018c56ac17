//! Since when servers have been there, for slow start.
//!
//! The host of a ledger knows it of those that it has seen joining. A host that has just started has seen none: to
//! it all are new, the one that is and those that are not. So each server's report says how long it has been there;
//! the host of a group is a member, and often the new one.

use std::time::Duration;

use super::Entry;
use crate::Time;

/// How long servers have been there. Of one that the host has not seen joining, which has been in its list for as long as any,
/// its own word counts, and where it says nothing it is taken for the oldest: slow start is for those that are
/// known to be new.
pub(super) fn ages(entries: &[Entry], now: Time) -> Vec<Duration> {
    let first = entries.iter().map(|entry| entry.joined).min();
    let listed = |entry: &Entry| now.saturating_since(entry.joined);
    let own = |entry: &Entry| {
        let said = entry.own_age(now)?;
        Some(said.max(listed(entry)))
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
    /// Takes in how old it says that it is; whether that is news, by more than `step`.
    pub(super) fn says(&mut self, age: Duration, step: Duration, now: Time) -> bool {
        let news = self.own_age(now).is_none_or(|known| age > known + step);
        if news {
            self.said = Some((age, now));
        }
        news
    }

    /// How old it is, as it has said itself.
    fn own_age(&self, now: Time) -> Option<Duration> {
        let (age, at) = self.said?;
        Some(age.saturating_add(now.saturating_since(at)))
    }
}
