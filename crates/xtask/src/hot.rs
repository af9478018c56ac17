//! `cargo xtask hot-functions`: finds the functions that serve requests, so that the linker can
//! place them together.
//!
//! Under callgrind a proxy without a mesh serves requests, then a mesh serves users, each counted
//! after its warm-up; then a sidecar starts, is configured with services and connects to them
//! (`proxy/tests/sidecar_memory.rs`). Functions executed by every request are placed closest
//! together, because for a single request neither their pages nor their cache lines are in the
//! processor ([`functions`] determines the order). The names are written to
//! `proxy/hot-functions.txt`, which `proxy/build.rs` passes to the linker. Names that the program
//! does not have are ignored, so an outdated file only loses its effect: a name changes with the
//! types in a function's signature, so the file should be regenerated after a change of the
//! compiler, of many dependencies or of the path of a request.

mod functions;
mod plain;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{fmt, fs, io, thread};

use self::functions::{Functions, in_order};
use crate::shell::{self, Cargo};
use crate::tools;

const LIST: &str = "proxy/hot-functions.txt";
const HEAD: &str = "\
# Functions that serve requests, the busiest first, then those that connect and start; written by
# `cargo xtask hot-functions`. The linker puts them in this order, so that a sidecar keeps few pages of code.
";
/// The number of proxies: one for the users, and one for each of the four services.
const PROXIES: usize = 5;
/// The time limit for a proxy to become ready, which takes long under callgrind.
const STARTED_WITHIN: Duration = Duration::from_secs(120);
/// The time from the start of the last proxy until its handshakes are over.
const WARM: Duration = Duration::from_secs(10);
const COUNTED: Duration = Duration::from_secs(40);

#[derive(Debug)]
pub(crate) enum Error {
    Failed(&'static str),
    NotStarted,
    Plain(io::Error),
    Nothing,
    File(PathBuf, io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(what) => write!(f, "{what} failed"),
            Self::NotStarted => write!(f, "the mesh did not start within {STARTED_WITHIN:?}"),
            Self::Plain(error) => write!(f, "measuring a proxy without a mesh: {error}"),
            Self::Nothing => f.write_str("callgrind has counted no functions"),
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for Error {}

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
    // Names are in the symbols, which a release has lost.
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
    let (plain, mesh, sidecar) = (plain(&folder)?, mesh(&folder)?, sidecar(&folder)?);
    let functions = in_order(&plain, &mesh, &sidecar);
    if functions.is_empty() {
        return Err(Error::Nothing);
    }
    let list = shell::root().join(LIST);
    fs::write(&list, format!("{HEAD}{}\n", functions.join("\n"))).map_err(file(&list))?;
    fs::remove_dir_all(&folder).map_err(file(&folder))?;
    Ok(functions.len())
}

/// Creates a program that runs the proxy under callgrind with these options; it writes `NAME.PID.N`
/// into the folder.
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

/// Returns the functions with which a proxy without a mesh serves HTTP/1.1.
fn plain(folder: &Path) -> Result<Functions, Error> {
    // A dump covers a few requests.
    let wrapper = wrapper(folder, "plain", "--instr-atstart=no --dump-every-bb=20000")?;
    plain::serve(&wrapper, STARTED_WITHIN, || {
        instrumentation("on").map_err(io::Error::other)
    })
    .map_err(Error::Plain)?;
    Functions::read(folder, "plain.")
}

/// Returns the functions with which the proxies of a mesh serve users.
fn mesh(folder: &Path) -> Result<Functions, Error> {
    // A dump covers some ten requests.
    let wrapper = wrapper(folder, "mesh", "--instr-atstart=no --dump-every-bb=100000")?;
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
    // It terminates by itself, and its proxies with it.
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
    thread::sleep(WARM);
    instrumentation("on")?;
    thread::sleep(COUNTED);
    // Functions needed only at termination serve no requests.
    instrumentation("off")
}

/// Switches counting in programs under callgrind.
fn instrumentation(state: &'static str) -> Result<(), Error> {
    let control = Cargo::program("callgrind_control", "callgrind_control").args(["-i", state]);
    let done = control.succeeds_quietly();
    done.then_some(()).ok_or(Error::Failed("callgrind_control"))
}

/// Returns the functions that a sidecar executes from its start until it has called some services.
fn sidecar(folder: &Path) -> Result<Functions, Error> {
    // Often, because it is killed in the end.
    let wrapper = wrapper(folder, "sidecar", "--dump-every-bb=4000000")?;
    let test =
        Cargo::new("test").args(["-p", "maglor-proxy", "--test", "main", "sidecar_memory::"]);
    let test = test
        .env("MAGLOR_PROXY", &wrapper)
        .env("MAGLOR_REQUESTS", "300");
    if !test.succeeds() {
        return Err(Error::Failed("the sidecar"));
    }
    Functions::read(folder, "sidecar.")
}

/// Returns the files that callgrind has written so far under this name.
fn dumps(folder: &Path, name: &str) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let paths: Vec<PathBuf> = entries.collect::<io::Result<_>>()?;
    let ours = |path: &PathBuf| {
        let file = path.file_name().and_then(|file| file.to_str());
        file.is_some_and(|file| file.starts_with(name))
    };
    Ok(paths.into_iter().filter(ours).collect())
}
