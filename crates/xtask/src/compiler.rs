//! One pass of compiling for everything that `cargo xtask test` wants of the source: object code, the warnings of
//! clippy, and those of rustdoc.
//!
//! `cargo clippy` and `cargo doc` each check all dependencies and packages again, since cargo shares nothing between
//! checking and building. So a copy of this program takes the compiler's place for the packages of the workspace: it
//! runs clippy's driver, which is the compiler and also produces object code, and then rustdoc with the same arguments.
//! Cargo keeps the warnings of both and repeats them in each later build.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::{Mutex, PoisonError};

use crate::shell::{Cargo, target};

/// The name of the copy, by which it takes the compiler's place.
const NAME: &str = "maglor-compile";

/// Settings for building everything, most of it for the first time: incremental compilation and line tables for all
/// programs of tests double the time. A panic names its file and line without them.
const WHOLE_BUILD: [&str; 2] = ["build.incremental=false", "profile.dev.debug=false"];

/// Returns whether this process runs as the compiler.
pub(crate) fn is_called() -> bool {
    let program = env::args_os().next().unwrap_or_default();
    Path::new(&program)
        .file_name()
        .is_some_and(|name| name == NAME)
}

/// Lets `command`, one of cargo's that builds, compile the packages of the workspace with clippy and rustdoc.
///
/// By arguments rather than variables: programs that `command` starts may call cargo, too.
pub(crate) fn with_warnings(command: Cargo) -> io::Result<Cargo> {
    let wrapper = format!("build.rustc-workspace-wrapper={:?}", copy()?);
    let mut arguments = vec!["--config", &wrapper];
    arguments.extend(WHOLE_BUILD.iter().flat_map(|one| ["--config", one]));
    Ok(command.args(arguments))
}

/// Returns a copy of this program, which is made once: the original is replaced while the workspace is being built.
fn copy() -> io::Result<PathBuf> {
    static COPY: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut copied = COPY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(copy) = &*copied {
        return Ok(copy.clone());
    }
    let folder = target().join("compiler");
    fs::create_dir_all(&folder)?;
    let new = folder.join(format!("{NAME}.{}", std::process::id()));
    fs::copy(env::current_exe()?, &new)?;
    let copy = folder.join(NAME);
    fs::rename(new, &copy)?;
    Ok(copied.insert(copy).clone())
}

/// Compiles: cargo passes the compiler's name, then its arguments.
pub(crate) fn run() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let compiled = succeeded(Command::new("clippy-driver").args(&arguments));
    if let (true, Some(arguments)) = (compiled, documentation(&arguments, &target().join("doc"))) {
        let documented = succeeded(Command::new("rustdoc").args(arguments));
        return exit_code(documented);
    }
    exit_code(compiled)
}

fn succeeded(command: &mut Command) -> bool {
    match command.status() {
        Ok(status) => ExitStatus::success(&status),
        Err(error) => {
            let program = command.get_program().display();
            eprintln!("error: {program}: {error}; `rustup component add clippy` installs it");
            false
        }
    }
}

fn exit_code(succeeded: bool) -> ExitCode {
    match succeeded {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Returns rustdoc's arguments for what the compiler is called for; `None` if that has no page: tests, build scripts,
/// and programs with the name of their library.
fn documentation(compiler: &[OsString], folder: &Path) -> Option<Vec<OsString>> {
    let arguments: Vec<_> = compiler.iter().skip(1).map(|it| it.to_str()).collect();
    let arguments: Vec<_> = arguments.into_iter().collect::<Option<_>>()?;
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| *argument == name)?;
        arguments.get(at + 1).copied()
    };
    let name = value("--crate-name")?;
    let is_program = match value("--crate-type")? {
        "lib" => false,
        "bin" => true,
        _ => return None,
    };
    let own_library = format!("{name}=");
    let without_page = |argument: &&str| {
        *argument == "--test"
            || argument.starts_with("--print")
            || argument.starts_with(&own_library)
    };
    if name == "build_script_build" || arguments.iter().any(without_page) {
        return None;
    }
    let mut documentation = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        // Reports of files that are written would be taken for the compiler's.
        let diagnostics_only = argument.replace(
            "diagnostic-rendered-ansi,artifacts",
            "diagnostic-rendered-ansi",
        );
        match *argument {
            // About object code, which rustdoc does not write.
            "-C" | "--out-dir" => drop(rest.next()),
            argument if argument.starts_with("--emit=") => {}
            _ => documentation.push(diagnostics_only),
        }
    }
    if is_program {
        // As cargo does.
        let private = [
            "--document-private-items",
            "-Arustdoc::private-intra-doc-links",
        ];
        documentation.extend(private.map(str::to_owned));
    }
    documentation.push(format!("--out-dir={}", folder.display()));
    Some(documentation.into_iter().map(OsString::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documented(line: &str) -> Option<String> {
        let compiler: Vec<_> = line.split(' ').map(OsString::from).collect();
        let arguments = documentation(&compiler, Path::new("/doc"))?;
        let arguments: Vec<_> = arguments.iter().map(|it| it.to_string_lossy()).collect();
        Some(arguments.join(" "))
    }

    #[test]
    fn libraries_and_programs_are_documented_with_the_arguments_of_the_compiler() {
        let library = "rustc --crate-name a --edition=2024 src/lib.rs --error-format=json \
            --json=diagnostic-rendered-ansi,artifacts,future-incompat --crate-type lib --emit=dep-info,metadata,link \
            -C opt-level=2 --warn=clippy::all -C metadata=1 --out-dir /t -L dependency=/t --extern b=/t/libb.rmeta";
        let expected = "--crate-name a --edition=2024 src/lib.rs --error-format=json \
            --json=diagnostic-rendered-ansi,future-incompat --crate-type lib \
            --warn=clippy::all -L dependency=/t --extern b=/t/libb.rmeta";
        assert_eq!(
            documented(library),
            Some(format!("{expected} --out-dir=/doc"))
        );
        let program = "rustc --crate-name a src/main.rs --crate-type bin --extern b=/t/libb.rmeta";
        let expected = "--crate-name a src/main.rs --crate-type bin --extern b=/t/libb.rmeta \
            --document-private-items -Arustdoc::private-intra-doc-links --out-dir=/doc";
        assert_eq!(documented(program).as_deref(), Some(expected));
    }

    #[test]
    fn what_has_no_page_is_only_compiled() {
        let without = [
            "rustc -vV",
            "rustc - --crate-name ___ --print=file-names --crate-type bin --crate-type lib",
            "rustc --crate-name a src/lib.rs --crate-type lib --test",
            "rustc --crate-name build_script_build build.rs --crate-type bin",
            "rustc --crate-name a src/main.rs --crate-type bin --extern a=/t/liba.rmeta",
            "rustc --crate-name a src/lib.rs --crate-type proc-macro",
        ];
        for line in without {
            assert_eq!(documented(line), None, "{line}");
        }
    }
}
