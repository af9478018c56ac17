//! `cargo xtask demo --help` prints stored texts, so that nothing has to be built: they equal the program's output.
//! `UPDATE=1 cargo test -p maglor-cli --test main demo_help` writes them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::path::Path;

use clap::{Args as _, Command};

#[test]
fn the_kept_help_is_what_the_program_says() {
    let command = Command::new("cargo xtask demo").bin_name("cargo xtask demo");
    let mut command = maglor_cli::demo::Options::augment_args(command).term_width(100);
    command.build();
    let whole = command.render_long_help().to_string();
    let balancing = command.find_subcommand_mut("balancing").unwrap();
    let balancing = balancing.clone().term_width(100).render_long_help();
    for (file, text) in [
        ("help.txt", whole),
        ("help-balancing.txt", balancing.to_string()),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("src/demo")
            .join(file);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap();
        assert_eq!(kept, text, "{file}: run again with UPDATE=1");
    }
}
