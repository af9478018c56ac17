//! Micro benchmarks and whole-process comparisons with peers.
