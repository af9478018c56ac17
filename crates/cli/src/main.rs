//! The maglor command line.

fn main() {}
