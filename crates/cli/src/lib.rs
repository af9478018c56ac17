//! What the programs `maglor` and `maglor-demo` have in common: the demo, which needs no cluster.
//!
//! `maglor` is built with the feature `kubernetes`, which is on by default. `cargo xtask demo` builds `maglor-demo`
//! without it, in a third of the time. No item depends on the feature: it selects programs and dependencies.

pub mod demo;
