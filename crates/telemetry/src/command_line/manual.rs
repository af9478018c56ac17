//! Writes the man pages and the completion scripts of a program, from the definition of its command line.
//!
//! The folders below the given one are those of `/usr/share` on Debian.

use std::path::Path;
use std::{fs, io};

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

/// Environment variable with the folder to write to, for programs without a subcommand for it.
pub const FOLDER: &str = "MAGLOR_MANUAL";

/// Completion scripts: the shell, the folder, and the file of the program `{}`.
const SCRIPTS: [(Shell, &str, &str); 3] = [
    (Shell::Bash, "bash-completion/completions", "{}"),
    (Shell::Fish, "fish/vendor_completions.d", "{}.fish"),
    (Shell::Zsh, "zsh/vendor-completions", "_{}"),
];

/// The section of a program's pages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Section {
    /// 8.
    Daemons,
    /// 1.
    UserCommands,
}

/// Writes the man pages of a program and its subcommands, and its completion scripts.
///
/// # Errors
///
/// The folder cannot be written to.
pub fn write(command: Command, section: Section, folder: &Path) -> io::Result<()> {
    let name = command.get_name().to_owned();
    for (shell, place, file) in SCRIPTS {
        let place = folder.join(place);
        fs::create_dir_all(&place)?;
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command.clone(), &name, &mut script);
        fs::write(place.join(file.replace("{}", &name)), script)?;
    }
    // The pages of `help` would have the same texts.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let section = match section {
        Section::Daemons => "8",
        Section::UserCommands => "1",
    };
    let pages = folder.join(format!("man/man{section}"));
    fs::create_dir_all(&pages)?;
    write_pages(&command, section, &pages)
}

fn write_pages(command: &Command, section: &str, folder: &Path) -> io::Result<()> {
    for inner in command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set())
    {
        write_pages(inner, section, folder)?;
    }
    let source = concat!("maglor ", env!("CARGO_PKG_VERSION"));
    let page = Man::new(command.clone()).section(section).source(source);
    page.generate_to(folder).map(drop)
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
        write(command, Section::Daemons, folder.path()).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(read("man/man8/program.8").contains(".TH program 8"));
        assert!(read("man/man8/program-inner.8").contains("Print something"));
        let pages = fs::read_dir(folder.path().join("man/man8")).unwrap();
        assert_eq!(pages.count(), 2, "neither `hidden` nor `help`");
        assert!(read("bash-completion/completions/program").contains("_program"));
        assert!(read("fish/vendor_completions.d/program.fish").contains("inner"));
        assert!(read("zsh/vendor-completions/_program").starts_with("#compdef program"));
    }
}
