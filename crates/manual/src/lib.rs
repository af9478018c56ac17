//! Writes the man pages and the completion scripts of a program, from the definition of its command line.
//!
//! The folders below the given one are those of `/usr/share` on Debian.

use std::path::Path;
use std::{fs, io};

use clap::Command;
use clap_complete::Shell;

/// Environment variable with the folder to write to, for programs without a subcommand for it.
pub const FOLDER: &str = "MAGLOR_MANUAL";

/// Completion scripts: the shell, the folder, and the file of the program `{}`.
const SCRIPTS: [(Shell, &str, &str); 3] = [
    (Shell::Bash, "bash-completion/completions", "{}"),
    (Shell::Fish, "fish/vendor_completions.d", "{}.fish"),
    (Shell::Zsh, "zsh/vendor-completions", "_{}"),
];

/// Writes the man pages of a program and its subcommands, and its completion scripts.
///
/// # Errors
///
/// The folder cannot be written to.
pub fn write(mut command: Command, folder: &Path) -> io::Result<()> {
    let name = command.get_name().to_owned();
    for (shell, place, file) in SCRIPTS {
        let place = folder.join(place);
        fs::create_dir_all(&place)?;
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command, &name, &mut script);
        fs::write(place.join(file.replace("{}", &name)), script)?;
    }
    let pages = folder.join("man/man1");
    fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(command, pages)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn each_subcommand_has_a_page_and_each_shell_a_script() {
        let folder = tempfile::tempdir().unwrap();
        let inner = Command::new("inner").about("Print something");
        let hidden = Command::new("hidden").hide(true);
        let command = Command::new("program").subcommand(inner).subcommand(hidden);
        write(command, folder.path()).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(read("man/man1/program.1").contains(".TH program 1"));
        assert!(read("man/man1/program-inner.1").contains("Print something"));
        assert!(!folder.path().join("man/man1/program-hidden.1").exists());
        assert!(read("bash-completion/completions/program").contains("_program"));
        assert!(read("fish/vendor_completions.d/program.fish").contains("inner"));
        assert!(read("zsh/vendor-completions/_program").starts_with("#compdef program"));
    }
}
