//! `cargo xtask demo`: builds the proxy, the controller without Kubernetes, and the demo's program in one pass, and runs
//! the demo.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::shell::{Cargo, target};

/// The help text of the demo's program, which is needed before anything is built;
/// `crates/cli/tests/demo_help.rs` checks it.
const HELP: &str = include_str!("../../cli/src/demo/help.txt");
const HELP_OF_BALANCING: &str = include_str!("../../cli/src/demo/help-balancing.txt");

/// Builds the programs of the demo, and executes it in place of this process; or prints its help.
pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    if let Some(help) = help(arguments) {
        print!("{help}");
        return ExitCode::SUCCESS;
    }
    let folder = target().join("demo");
    let program = folder.join("maglor-demo");
    if !program.exists() {
        eprintln!(
            "Building the proxy, the controller and the demo, once: less than 5 minutes on two cores."
        );
    }
    // All in one build: common dependencies are built once, and the mesh finds the other programs in the directory of
    // the demo. Without its own feature, the demo's package does not depend on the controller, whose feature is that of
    // this command.
    let built = Cargo::new("build")
        .args(["--locked", "--profile", "demo", "--no-default-features"])
        .args(["-p", "maglor-proxy", "--bin", "maglor-proxy"])
        .args(["-p", "maglor-controller", "--bin", "maglor-controller"])
        .args(["-p", "maglor-cli", "--bin", "maglor-demo"])
        .succeeds();
    if !built {
        return ExitCode::FAILURE;
    }
    Cargo::program(program, "maglor-demo")
        .args(arguments)
        .become_it()
}

fn help(arguments: &[OsString]) -> Option<&'static str> {
    let is = |at: usize, word: &str| arguments.get(at).is_some_and(|it| it == word);
    let asked = is(0, "help") || arguments.iter().any(|one| one == "--help" || one == "-h");
    let of_balancing = is(0, "balancing") || is(0, "help") && is(1, "balancing");
    asked.then_some(match of_balancing {
        true => HELP_OF_BALANCING,
        false => HELP,
    })
}
