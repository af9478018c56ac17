//! Stable hashing of request attributes and endpoint keys.
//!
//! Invariant: the values never change between versions or platforms, because every proxy in front of a service must
//! send a key to the same endpoint. The function is XXH64, as in Envoy's ring and Maglev tables. It is fast but not
//! keyed: a client that chooses its keys can direct its load to one endpoint, which bounded load
//! (`hash_balance_factor`) limits.

use xxhash_rust::xxh64::xxh64;

/// Returns XXH64 of `bytes` with seed 0.
#[must_use]
#[inline]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    xxh64(bytes, 0)
}

/// Combines `hash` with the hash of a further attribute; the order of the attributes matters.
///
/// The hash is rotated by one bit and combined by exclusive or, as Envoy combines several hash policies of one route.
#[must_use]
#[inline]
pub const fn combine(hash: u64, next: u64) -> u64 {
    hash.rotate_left(1) ^ next
}

/// Returns XXH64 of `bytes` with `seed`; Maglev needs two independent functions.
#[inline]
pub(crate) fn hash_seeded(bytes: &[u8], seed: u64) -> u64 {
    xxh64(bytes, seed)
}

/// Applies SplitMix64's finalizer (Stafford's variant 13): every input bit affects every output
/// bit.
#[inline]
pub(crate) const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_of_xxh64() {
        assert_eq!(hash_bytes(b""), 0xef46_db37_51d8_e999);
        assert_eq!(hash_bytes(b"a"), 0xd24e_c4f1_a98c_6e5b);
        assert_ne!(hash_seeded(b"a", 1), hash_bytes(b"a"));
    }

    #[test]
    fn combine_depends_on_the_order() {
        let (a, b) = (hash_bytes(b"a"), hash_bytes(b"b"));
        assert_ne!(combine(combine(0, a), b), combine(combine(0, b), a));
    }
}
