//! Reproducible randomness.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the seed for a random test: `SEED` from the environment if it is set, else a new one.
///
/// Either way it is printed, and the test harness shows it when the test fails.
///
/// # Panics
///
/// If `SEED` is not a number.
#[must_use]
pub fn seed() -> u64 {
    let seed = match std::env::var("SEED") {
        Ok(seed) => seed.parse().expect("SEED is a number below 2^64"),
        Err(_) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = now.expect("the clock is past 1970");
            // Mixed, so that tests that start together get unrelated seeds.
            (now.as_nanos() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        }
    };
    println!("repeat with SEED={seed}");
    seed
}
