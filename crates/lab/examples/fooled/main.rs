//! Tables of balancing under attempts to mislead it:
//!
//! ```text
//! cargo run --release -p maglor-lab --example fooled -- adaptive | black-holes | ejection | good-shares | silent | best | better | weights
//! ```
//!
//! Each prints Markdown on standard output; the same tables come out on every machine.

mod adaptive;
mod best;
mod better;
mod black_holes;
mod silent;
mod table;
mod weights;

use std::process::ExitCode;

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let tables: [(&str, fn()); 8] = [
        ("adaptive", adaptive::print),
        ("black-holes", black_holes::print),
        ("ejection", black_holes::print_ejected),
        ("good-shares", black_holes::print_good),
        ("silent", silent::print),
        ("best", best::print),
        ("better", better::print),
        ("weights", weights::print),
    ];
    let known = |name: &String| tables.iter().any(|(table, _)| table == name);
    if names.is_empty() || !names.iter().all(known) {
        eprintln!(
            "usage: fooled {}...",
            tables.map(|(name, _)| name).join("|")
        );
        return ExitCode::FAILURE;
    }
    for (table, print) in tables {
        if names.iter().any(|name| name == table) {
            print();
        }
    }
    ExitCode::SUCCESS
}
