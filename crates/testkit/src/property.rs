//! Property tests with reproducible cases.

use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Returns a runner of `cases` with the seed in `SEED`, or with `fallback`; it is printed, so that
/// a failure can be reproduced.
#[must_use]
pub fn runner(fallback: u64, cases: u32) -> TestRunner {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let seed: u64 = seed.unwrap_or(fallback);
    println!("SEED={seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new_with_rng(config, rng)
}
