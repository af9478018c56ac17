//! Development tasks: test, demo, compare, conformance.

fn main() {}
