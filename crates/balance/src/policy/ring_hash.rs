//! `ring-hash`: consistent hashing on a ring, as libketama and Envoy build it.
//!
//! Each endpoint has points on the ring, in proportion to its weight: XXH64 of `key_0`, `key_1`, … A request goes to
//! the first point at or after its hash. The ring grows beyond `min`, but not beyond `max`, until the lightest endpoint
//! has a whole number of points.
//!
//! The shares vary: with p points per endpoint, by about 1/√p. The removal of an endpoint moves no other key as long as
//! p is unchanged. If few endpoints share the `min` points, p grows (from 256 for each of four to 342 for each of
//! three), and the new points take about a tenth of the keys of all others. `maglev` moves less than a hundredth;
//! prefer it, unless the ring has to be equal to Envoy's.

use super::Index;
use super::hashing::{Member, Table};
use crate::hash::hash_bytes;

/// Parameters of `ring-hash`.
///
/// # Defaults
///
/// * `min`: 1024
/// * `max`: 8388608
/// * `hash_balance_factor`: none (off)
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct RingHashParams {
    /// The minimum number of points on the ring, 1–8388608; at most `max`.
    pub min: u32,
    /// The maximum number of points, 1–8388608. With fewer points than endpoints, some endpoints get no traffic.
    pub max: u32,
    /// Bounded load: the maximum percentage of its fair share of outstanding requests that an endpoint gets,
    /// 100–100000; `None` = unlimited.
    pub hash_balance_factor: Option<u32>,
}

impl Default for RingHashParams {
    fn default() -> Self {
        Self {
            min: 1024,
            max: Self::LIMIT,
            hash_balance_factor: None,
        }
    }
}

impl RingHashParams {
    /// Envoy's limit on both sizes: 8 Mi points.
    pub(crate) const LIMIT: u32 = 8 << 20;

    /// Returns, if this `max` leaves some of the `endpoints` without a point, the smallest `max` that does not.
    #[must_use]
    pub fn wanted_max(&self, endpoints: usize) -> Option<u32> {
        let wanted = u32::try_from(endpoints)
            .unwrap_or(u32::MAX)
            .min(Self::LIMIT);
        (self.max < wanted).then_some(wanted)
    }
}

/// The minimum and maximum number of points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RingSize {
    pub(crate) min: u32,
    pub(crate) max: u32,
}

/// Points in ascending order, with their owners.
#[derive(Debug)]
pub(crate) struct Ring {
    points: Box<[u64]>,
    owners: Box<[Index]>,
}

impl Table for Ring {
    type Params = RingSize;

    fn build(members: &[Member], size: &RingSize) -> Self {
        let mut ring: Vec<(u64, Index)> = points(members, *size);
        // Two endpoints on one point: the first by key wins (the sort is stable).
        ring.sort_by_key(|&(point, _)| point);
        let (points, owners): (Vec<u64>, Vec<Index>) = ring.into_iter().unzip();
        Self {
            points: points.into_boxed_slice(),
            owners: owners.into_boxed_slice(),
        }
    }

    #[inline]
    fn len(&self) -> usize {
        self.points.len()
    }

    #[inline]
    fn slot(&self, hash: u64) -> usize {
        let slot = self.points.partition_point(|&point| point < hash);
        if slot == self.points.len() { 0 } else { slot }
    }

    #[inline]
    fn owner(&self, slot: usize) -> Index {
        self.owners[slot]
    }
}

fn points(members: &[Member], size: RingSize) -> Vec<(u64, Index)> {
    let total: f64 = members.iter().map(|m| m.weight).sum();
    let lightest = members.iter().map(|m| m.weight / total).fold(1.0, f64::min);
    let grown = (lightest * f64::from(size.min)).ceil() / lightest;
    let scale = grown.min(f64::from(size.max));
    let mut points = Vec::with_capacity(scale as usize + 1);
    let mut target = 0.0;
    let mut name = String::new();
    for member in members {
        // Fractions carry over to the next member, so that the sum is exact.
        target += scale * member.weight / total;
        let mut copy = 0_u32;
        // Half a thousandth of a point: the error of the sum must not add one.
        while (points.len() as f64) < target - 5e-4 {
            name.clear();
            name.push_str(&member.key);
            name.push('_');
            push_number(&mut name, copy);
            points.push((hash_bytes(name.as_bytes()), member.index));
            copy += 1;
        }
    }
    points
}

/// Appends `n` in decimal.
fn push_number(text: &mut String, n: u32) {
    use std::fmt::Write as _;
    let _ = write!(text, "{n}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(weights: &[f64], min: u32, max: u32) -> Vec<usize> {
        let members: Vec<Member> = weights
            .iter()
            .enumerate()
            .map(|(i, &weight)| Member {
                key: format!("h{i}").into(),
                index: Index::new(i),
                weight,
            })
            .collect();
        let ring = Ring::build(&members, &RingSize { min, max });
        assert!(ring.points.is_sorted());
        (0..weights.len())
            .map(|i| ring.owners.iter().filter(|o| o.get() == i).count())
            .collect()
    }

    #[test]
    fn the_ring_grows_to_whole_points() {
        assert_eq!(counts(&[1.0; 3], 1024, 1 << 20), [342; 3]);
        assert_eq!(counts(&[1.0; 1000], 1024, 1 << 20), [2; 1000]);
        assert_eq!(counts(&[1.0, 2.0, 5.0], 80, 1 << 20), [10, 20, 50]);
    }

    #[test]
    fn max_caps_the_ring() {
        assert_eq!(counts(&[1.0; 4], 1024, 8), [2; 4]);
        assert_eq!(counts(&[1.0; 4], 2, 2).iter().sum::<usize>(), 2);
    }

    #[test]
    fn a_hash_goes_to_the_next_point_around() {
        let ring = Ring {
            points: [10, 20, 30].into(),
            owners: [Index::new(0), Index::new(1), Index::new(2)].into(),
        };
        let owner = |hash| ring.owner(ring.slot(hash)).get();
        assert_eq!([0, 10, 11, 30, 31, u64::MAX].map(owner), [0, 0, 1, 2, 0, 0]);
    }
}
