//! The program as a process.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(60);

/// A controller, ended when it is dropped.
pub(crate) struct Controller {
    child: Child,
    log: PathBuf,
    pub(crate) listen: String,
    admin: String,
}

impl Controller {
    /// Starts one with these arguments, by default with an admin port on loopback, and waits until it serves.
    pub(crate) async fn start(ready: &Path, arguments: &[&str]) -> Self {
        Self::start_with(ready, arguments, &[]).await
    }

    /// The same with variables of its environment.
    pub(crate) async fn start_with(
        ready: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let mut controller = Self::spawn(ready, arguments, variables);
        controller.serves(ready).await;
        controller
    }

    /// The same, without waiting until it is ready: without its dependencies it does not serve.
    pub(crate) fn spawn(ready: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let log = ready.with_extension("log");
        let child = Command::new(program())
            .args(match arguments.contains(&"--admin") {
                true => &[][..],
                false => &["--admin", "127.0.0.1:0"],
            })
            .arg("--ready-file")
            .arg(ready)
            .args(arguments)
            .envs(variables.iter().copied())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self {
            child,
            log,
            listen: String::new(),
            admin: String::new(),
        }
    }

    /// Waits until it serves.
    pub(crate) async fn serves(&mut self, ready: &Path) {
        let started = Instant::now();
        while !ready.exists() {
            let ended = self.child.try_wait().unwrap();
            let late = started.elapsed() > LIMIT;
            assert!(ended.is_none() && !late, "{ended:?}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let text = std::fs::read_to_string(ready).unwrap();
        let addresses: Value = serde_json::from_str(&text).unwrap();
        let address = |name: &str| addresses[name].as_str().unwrap().to_owned();
        self.listen = address("listen");
        self.admin = address("admin");
    }

    /// Its log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Memory that it has now, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// The most memory that it has had, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.status("VmHWM:")
    }

    /// The time of processors that it has used: user and system, in ticks of 10 ms (proc_pid_stat(5), fields 14 and
    /// 15).
    pub(crate) fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        // The name of the program, in brackets, may have spaces.
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let fields = fields.split_whitespace().skip(11).take(2);
        let ticks: u32 = fields.map(|ticks| ticks.parse::<u32>().unwrap()).sum();
        Duration::from_millis(10) * ticks
    }

    /// A line of its status (proc_pid_status(5)), in bytes.
    fn status(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find(|line| line.starts_with(name));
        let kilobytes = line.unwrap().split_whitespace().nth(1).unwrap();
        kilobytes.parse::<u64>().unwrap() * 1024
    }

    /// Its admin port.
    pub(crate) fn admin_port(&self) -> u16 {
        let (_, port) = self.admin.rsplit_once(':').unwrap();
        port.parse().unwrap()
    }

    /// A page of its admin port.
    pub(crate) async fn json(&self, path: &'static str) -> Value {
        let admin = self.admin.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(admin).unwrap();
            write!(
                stream,
                "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
            )
            .unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        });
        let text = asked.await.unwrap();
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Waits until a page has the given content.
    pub(crate) async fn until(
        &self,
        what: &str,
        path: &'static str,
        holds: impl Fn(&Value) -> bool,
    ) {
        let started = Instant::now();
        loop {
            let page = self.json(path).await;
            if holds(&page) {
                return;
            }
            assert!(started.elapsed() < LIMIT, "{what}: {page}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The controller that was built together with this test, or the binary `MAGLOR_CONTROLLER`, such as a release build.
fn program() -> PathBuf {
    let other = std::env::var_os("MAGLOR_CONTROLLER").map(PathBuf::from);
    other.unwrap_or_else(|| env!("CARGO_BIN_EXE_maglor-controller").into())
}

impl Controller {
    /// Ends it as a power cut would.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Writes a file as a whole.
pub(crate) fn put(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, path).unwrap();
}
