//! `cargo xtask hot-functions`: which functions serve requests, for the linker to put them together.
//!
//! A mesh serves users under callgrind, which counts from when all of it is ready: these functions come first. Then
//! a sidecar starts, is told of services and connects to them (`proxy/tests/sidecar_memory.rs`): what that needs
//! comes next, and what only the start needs last. The names go to `proxy/hot-functions.txt`, which
//! `proxy/build.rs` gives to the linker. Names that the program does not have are ignored, so an old file costs
//! nothing but what it was for: after a change of the compiler or of many dependencies it is to be written anew.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{fmt, fs, io, thread};

use crate::shell::{self, Cargo};
use crate::tools;

const LIST: &str = "proxy/hot-functions.txt";
const HEAD: &str = "\
# Functions that serve requests, the busiest first, then those that connect and start; written by
# `cargo xtask hot-functions`. The linker puts them in this order, so that a sidecar keeps few pages of code.
";
/// One for the users, and one for each of the four services.
const PROXIES: usize = 5;
/// Under callgrind a proxy takes its time to become ready.
const STARTED_WITHIN: Duration = Duration::from_secs(120);
/// From the start of the last proxy to when its handshakes are over.
const WARM: Duration = Duration::from_secs(10);
const COUNTED: Duration = Duration::from_secs(40);

#[derive(Debug)]
pub(crate) enum Error {
    Failed(&'static str),
    NotStarted,
    Nothing,
    File(PathBuf, io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(what) => write!(f, "{what} failed"),
            Self::NotStarted => write!(f, "the mesh did not start within {STARTED_WITHIN:?}"),
            Self::Nothing => f.write_str("callgrind has counted nothing"),
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

pub(crate) fn run() -> ExitCode {
    match write() {
        Ok(functions) => {
            println!("{LIST}: {functions} functions");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write() -> Result<usize, Error> {
    tools::want_programs(&[("valgrind", "valgrind")]);
    // Names live in the symbols, which a release has lost.
    let proxy = ["--release", "-p", "maglor-proxy", "--bin", "maglor-proxy"];
    let built = Cargo::new("rustc")
        .args(proxy)
        .args(["--", "-C", "strip=none"]);
    if !built.succeeds() {
        return Err(Error::Failed("building the proxy"));
    }
    let cli = ["build", "-p", "maglor-cli", "--bin", "maglor"];
    if !Cargo::new(cli[0]).args(&cli[1..]).succeeds() {
        return Err(Error::Failed("building the command line"));
    }
    let folder = shell::target().join("hot-functions");
    let file = |path: &Path| {
        let path = path.to_owned();
        move |error| Error::File(path, error)
    };
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(file(&folder)(error)),
        _ => fs::create_dir_all(&folder).map_err(file(&folder))?,
    }
    let mesh = mesh(&folder)?;
    let sidecar = sidecar(&folder)?;
    let functions = in_order(&mesh, &sidecar);
    if functions.is_empty() {
        return Err(Error::Nothing);
    }
    let list = shell::root().join(LIST);
    fs::write(&list, format!("{HEAD}{}\n", functions.join("\n"))).map_err(file(&list))?;
    fs::remove_dir_all(&folder).map_err(file(&folder))?;
    Ok(functions.len())
}

/// A program that runs the proxy under callgrind with these options; it writes `NAME.PID.N` into the folder.
fn wrapper(folder: &Path, name: &str, options: &str) -> Result<PathBuf, Error> {
    let path = folder.join(format!("proxy-{name}"));
    let script = format!(
        "#!/bin/sh\nexec valgrind --tool=callgrind {options} --demangle=no --compress-strings=no --compress-pos=no \
         --callgrind-out-file='{}/{name}.%p' '{}' \"$@\"\n",
        folder.display(),
        shell::target().join("release/maglor-proxy").display()
    );
    let written = fs::write(&path, script)
        .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)));
    written.map_err(|error| Error::File(path.clone(), error))?;
    Ok(path)
}

/// What the proxies of a mesh execute to serve users.
fn mesh(folder: &Path) -> Result<Functions, Error> {
    let wrapper = wrapper(folder, "mesh", "--instr-atstart=no")?;
    let mut demo = Command::new(shell::target().join("debug/maglor"));
    demo.args([
        "demo",
        "--for",
        "90",
        "--rate",
        "20",
        "--fault",
        "ratings-1:heal@1",
    ]);
    for service in ["productpage", "details", "reviews", "ratings"] {
        demo.args(["--replicas", &format!("{service}=1")]);
    }
    let started = demo
        .arg("--proxy")
        .arg(&wrapper)
        .stdout(Stdio::null())
        .spawn();
    let mut demo = started.map_err(|_| Error::Failed("starting the mesh"))?;
    let counted = switch(folder);
    // It ends by itself, and its proxies with it.
    let ended = demo.wait();
    counted?;
    match ended {
        Ok(status) if status.success() => Functions::read(folder, "mesh."),
        _ => Err(Error::Failed("the mesh")),
    }
}

/// Counts for a while when all of the mesh runs.
fn switch(folder: &Path) -> Result<(), Error> {
    let begin = Instant::now();
    while dumps(folder, "mesh.").map_or(0, |paths| paths.len()) < PROXIES {
        if begin.elapsed() > STARTED_WITHIN {
            return Err(Error::NotStarted);
        }
        thread::sleep(Duration::from_millis(200));
    }
    let control = |arguments: &[&str]| {
        let control = Cargo::program("callgrind_control", "callgrind_control").args(arguments);
        let done = control.succeeds_quietly();
        done.then_some(()).ok_or(Error::Failed("callgrind_control"))
    };
    thread::sleep(WARM);
    control(&["-i", "on"])?;
    thread::sleep(COUNTED);
    control(&["-d"])
}

/// What a sidecar executes from its start until it has called some services.
fn sidecar(folder: &Path) -> Result<Functions, Error> {
    // Often, because it is killed in the end.
    let wrapper = wrapper(folder, "sidecar", "--dump-every-bb=4000000")?;
    let test = Cargo::new("test").args(["-p", "maglor-proxy", "--test", "sidecar_memory"]);
    let test = test
        .env("MAGLOR_PROXY", &wrapper)
        .env("MAGLOR_REQUESTS", "300");
    if !test.succeeds() {
        return Err(Error::Failed("the sidecar"));
    }
    Functions::read(folder, "sidecar.")
}

/// What callgrind has written so far under this name.
fn dumps(folder: &Path, name: &str) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let paths: Vec<PathBuf> = entries.collect::<io::Result<_>>()?;
    let ours = |path: &PathBuf| {
        let file = path.file_name().and_then(|file| file.to_str());
        file.is_some_and(|file| file.starts_with(name))
    };
    Ok(paths.into_iter().filter(ours).collect())
}

/// The program's functions that were executed.
#[derive(Debug, Default)]
struct Functions {
    of: HashMap<String, Executed>,
}

#[derive(Debug, Default)]
struct Executed {
    /// Instructions of its own.
    instructions: u64,
    /// In so many of callgrind's files.
    dumps: usize,
}

impl Functions {
    fn read(folder: &Path, name: &str) -> Result<Self, Error> {
        let mut functions = Self::default();
        let files = dumps(folder, name).map_err(|error| Error::File(folder.into(), error))?;
        for path in files {
            let text = fs::read(&path).map_err(|error| Error::File(path.clone(), error))?;
            functions.add(&String::from_utf8_lossy(&text));
        }
        Ok(functions)
    }

    /// Adds one of callgrind's files.
    fn add(&mut self, text: &str) {
        let (mut ours, mut of_a_call, mut function) = (false, false, "");
        let mut here: HashMap<&str, u64> = HashMap::new();
        for line in text.lines() {
            if let Some(object) = line.strip_prefix("ob=") {
                ours = object.ends_with("/maglor-proxy");
            } else if let Some(name) = line.strip_prefix("fn=") {
                // A function that calls itself is listed again as NAME'2.
                function = name.split('\'').next().unwrap_or(name);
            } else if line.starts_with("calls=") {
                of_a_call = true;
            } else if line.starts_with(|c: char| c.is_ascii_digit()) {
                let own = !std::mem::take(&mut of_a_call) && ours;
                let instructions = line.split_ascii_whitespace().nth(1).map(str::parse::<u64>);
                if let (true, Some(Ok(instructions))) = (own, instructions) {
                    *here.entry(function).or_default() += instructions;
                }
            }
        }
        for (name, instructions) in here {
            let executed = self.of.entry(name.to_owned()).or_default();
            executed.instructions += instructions;
            executed.dumps += 1;
        }
    }

    fn sorted<K: Ord>(&self, key: impl Fn(&Executed) -> K) -> Vec<&str> {
        let mut names: Vec<_> = self
            .of
            .iter()
            .map(|(name, seen)| (key(seen), &**name))
            .collect();
        names.sort();
        names.into_iter().map(|(_, name)| name).collect()
    }
}

/// What serves requests, by instructions; then what is used again and again, then what is used once.
fn in_order<'a>(mesh: &'a Functions, sidecar: &'a Functions) -> Vec<&'a str> {
    let mut names = mesh.sorted(|seen| Reverse(seen.instructions));
    let rest = sidecar.sorted(|seen| (Reverse(seen.dumps), Reverse(seen.instructions)));
    names.extend(rest.into_iter().filter(|name| !mesh.of.contains_key(*name)));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_the_program_are_put_in_order() {
        let text = "\
version: 1
events: Ir

ob=/x/maglor-proxy
fl=???
fn=serve
0 5
cob=/lib/libc.so.6
cfn=memcpy
calls=3 0
0 1000
0 2

fn=serve'2
0 10

fn=handle
0 40

ob=/lib/libc.so.6
fn=memcpy
0 1000
";
        let mut functions = Functions::default();
        functions.add(text);
        assert_eq!(functions.of.len(), 2);
        assert_eq!(functions.of["serve"].instructions, 17);
        let once = format!("{text}ob=/x/maglor-proxy\nfn=start\n0 900\n");
        let mut sidecar = Functions::default();
        sidecar.add(&once);
        sidecar.add(text);
        sidecar.add("ob=/x/maglor-proxy\nfn=connect\n0 1\n");
        sidecar.add("ob=/x/maglor-proxy\nfn=connect\n0 1\n");
        assert_eq!(
            in_order(&functions, &sidecar),
            ["handle", "serve", "connect", "start"]
        );
    }
}
