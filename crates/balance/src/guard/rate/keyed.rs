//! A token bucket for each value of a header, or for each client, within a bound on memory.
//!
//! Buckets are kept in two generations. A bucket moves into the young generation when it is used; when the young
//! generation has reached half of its share of `max_keys`, the old one is dropped and the young one becomes the old
//! one. So between about `max_keys / 2` and `max_keys` of the last keys are remembered, and no sweep is needed. A
//! dropped key begins again with a full bucket, which most dropped keys would have by then.
//!
//! The table is split into parts by key, each with its own lock, which is held for one look-up. So threads contend only
//! for keys in the same part at the same moment.
//!
//! Memory: an entry takes at most 40 bytes (16 of its own in a table that is at least 7/16 full), so 10 000 keys take
//! 400 kB when all are in use; an unused table takes almost none.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::PoisonError;

use super::{RateParams, Verdict};
use crate::hash::mix;
use crate::sync::Mutex;
use crate::{Rng, Time};

/// The number of parts of the table; a power of two.
const PARTS: usize = 16;

/// A token bucket for each key, shared by all threads.
#[derive(Debug)]
pub struct KeyedBuckets {
    params: RateParams,
    /// A secret that is mixed into keys, so that no client can choose keys that share a bucket.
    secret: u64,
    young_limit: usize,
    parts: Box<[Mutex<Generations>]>,
}

/// Maps a key to the time at which its bucket will be full, in the unit of [`TokenBucket`](super::TokenBucket).
type Table = HashMap<u64, u64, BuildHasherDefault<Mixed>>;

#[derive(Debug, Default)]
struct Generations {
    young: Table,
    old: Table,
}

impl KeyedBuckets {
    /// Creates buckets with these parameters for at most `max_keys` keys (at least 32).
    #[must_use]
    pub fn new(params: RateParams, max_keys: usize, rng: &mut Rng) -> Self {
        Self {
            params,
            secret: rng.next_u64(),
            young_limit: (max_keys / (2 * PARTS)).max(1),
            parts: (0..PARTS)
                .map(|_| Mutex::new(Generations::default()))
                .collect(),
        }
    }

    /// Returns the parameters of each bucket.
    #[must_use]
    pub fn params(&self) -> &RateParams {
        &self.params
    }

    /// Takes a token from the bucket of a key, given by its [hash](crate::hash_bytes). Keys with the
    /// same hash share a bucket.
    pub fn take(&self, key: u64, now: Time) -> Verdict {
        let key = mix(key ^ self.secret);
        let part = &self.parts[key as usize % PARTS];
        // No code panics while it is held; the table would be consistent anyway.
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        let full = part.get(key);
        let (next, verdict) = self.params.take(full.unwrap_or(0), now);
        // A rejected client is remembered, too.
        if let Some(full) = next.or(full) {
            part.set(key, full, self.young_limit);
        }
        verdict
    }

    /// Returns the number of remembered keys.
    #[must_use]
    pub fn len(&self) -> usize {
        let count = |part: &Mutex<Generations>| {
            let part = part.lock().unwrap_or_else(PoisonError::into_inner);
            part.young.len() + part.old.len()
        };
        self.parts.iter().map(count).sum()
    }

    /// Returns whether no key is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Generations {
    fn get(&self, key: u64) -> Option<u64> {
        self.young.get(&key).or_else(|| self.old.get(&key)).copied()
    }

    fn set(&mut self, key: u64, full: u64, limit: usize) {
        if let Some(known) = self.young.get_mut(&key) {
            *known = full;
            return;
        }
        self.old.remove(&key);
        if self.young.len() >= limit {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, full);
    }
}

/// A hasher for keys that are already mixed: each is its own hash, rotated because the lower bits have chosen the part.
#[derive(Debug, Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = mix(self.0 ^ u64::from(byte));
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key.rotate_right(PARTS.trailing_zeros());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn buckets(max_keys: usize) -> KeyedBuckets {
        let params = RateParams {
            requests: 1,
            per: Duration::from_secs(1),
            burst: 2,
        };
        KeyedBuckets::new(params, max_keys, &mut Rng::seed(1))
    }

    #[test]
    fn keys_have_buckets_of_their_own() {
        let buckets = buckets(1000);
        for key in 0..100 {
            let passed = (0..5).filter(|_| buckets.take(key, Time::ZERO).allowed);
            assert_eq!(passed.count(), 2);
        }
        assert_eq!(buckets.len(), 100);
        assert!(buckets.take(7, Time::from_nanos(1_000_000_000)).allowed);
        assert!(!buckets.take(7, Time::from_nanos(1_000_000_001)).allowed);
    }

    #[test]
    fn memory_is_bounded_and_the_busy_are_remembered() {
        let buckets = buckets(1000);
        let now = Time::from_nanos(1);
        assert!(buckets.take(u64::MAX, now).allowed && buckets.take(u64::MAX, now).allowed);
        for key in 0..100_000 {
            let _ = buckets.take(key, now);
            // A client that goes on does not get rid of its bucket by crowding the table.
            if key % 50 == 0 {
                assert!(!buckets.take(u64::MAX, now).allowed, "{key}");
            }
            assert!(key % 1000 != 0 || buckets.len() <= 1000);
        }
        assert!(buckets.len() > 250, "{}", buckets.len());
    }
}
