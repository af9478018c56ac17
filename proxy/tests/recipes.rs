//! The pages of docs/recipes, executed as they are: files are written, commands are run, and their output is
//! compared. Only the ports are replaced, so that pages can run in parallel.
//!
//! A block whose first line is `# NAME` is a file. A block `sh` is run, with `&` for background processes. A
//! block `console` contains commands after `$ ` and their output. Blocks of other kinds are not executed.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use maglor_testkit::TIMEOUT;
use rustix::process::{Pid, Signal, kill_process_group};

/// Ports that the pages use.
const PORTS: &[&str] = &["8080", "8443", "8888", "9001", "9002", "9003", "9901"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/recipes")
}

/// A part of a page.
enum Block {
    Console(Vec<(String, String)>),
    File(String, String),
    Shell(String),
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    for block in page.split("\n```").skip(1).step_by(2) {
        let (kind, text) = block.split_once('\n').unwrap_or((block, ""));
        let text = format!("{text}\n");
        let name = text.lines().next().and_then(|line| line.strip_prefix("# "));
        match kind {
            "sh" => blocks.push(Block::Shell(text)),
            "console" => blocks.push(Block::Console(commands(&text))),
            _ => {
                if let Some(name) = name.filter(|name| name.contains('.') && !name.contains(' ')) {
                    blocks.push(Block::File(name.to_owned(), text.clone()));
                }
            }
        }
    }
    blocks
}

/// Parses commands and the output of each.
fn commands(text: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_owned(), String::new())),
            (None, Some((_, printed))) => printed.push_str(&format!("{line}\n")),
            (None, None) => panic!("`{line}` before a command"),
        }
    }
    commands
}

/// A page being executed in a separate folder.
struct Run {
    folder: tempfile::TempDir,
    groups: Vec<u32>,
    path: String,
}

impl Drop for Run {
    fn drop(&mut self) {
        for group in &self.groups {
            let group = i32::try_from(*group).ok().and_then(Pid::from_raw);
            if let Some(group) = group {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
    }
}

impl Run {
    fn new() -> Self {
        let proxy = Path::new(env!("CARGO_BIN_EXE_maglor-proxy"));
        let path = std::env::var("PATH").unwrap_or_default();
        Self {
            folder: tempfile::tempdir().unwrap(),
            groups: Vec::new(),
            path: format!("{}:{path}", proxy.parent().unwrap().display()),
        }
    }

    fn bash(&self, text: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-e", "-o", "pipefail", "-c", text]);
        command
            .current_dir(self.folder.path())
            .env("PATH", &self.path);
        command.stdin(Stdio::null()).process_group(0);
        command
    }

    fn shell(&mut self, text: &str) {
        let mut log = std::fs::File::options();
        let path = self.folder.path().join("shell.log");
        let log = log.create(true).append(true).open(path).unwrap();
        let mut command = self.bash(text);
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let mut child = command.spawn().unwrap();
        self.groups.push(child.id());
        let status = child.wait().unwrap();
        assert!(status.success(), "{text}\n{}", self.log());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("shell.log")).unwrap_or_default()
    }

    /// Repeats a command until its output is as expected: earlier background processes may not serve yet.
    fn prints(&self, command: &str, expected: &str) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let output = self.bash(command).stderr(Stdio::null()).output().unwrap();
            let printed = String::from_utf8_lossy(&output.stdout).into_owned();
            if printed.trim_end() == expected.trim_end() {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "$ {command}\n{printed}instead of\n{expected}\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn page(&mut self, page: &str) {
        for block in blocks(page) {
            match block {
                Block::Console(commands) => {
                    for (command, expected) in commands {
                        self.prints(&command, &expected);
                    }
                }
                Block::File(name, text) => {
                    std::fs::write(self.folder.path().join(name), text).unwrap();
                }
                Block::Shell(text) => self.shell(&text),
            }
        }
    }
}

/// Replaces the ports of the pages by free ones.
fn with_free_ports(text: &str, ports: &BTreeMap<&str, String>) -> String {
    ports
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

fn free_ports() -> BTreeMap<&'static str, String> {
    // All at once, so that they differ.
    let sockets: Vec<_> = PORTS
        .iter()
        .map(|port| (*port, TcpListener::bind("127.0.0.1:0").unwrap()))
        .collect();
    let port = |socket: &TcpListener| socket.local_addr().unwrap().port().to_string();
    sockets
        .iter()
        .map(|(name, socket)| (*name, port(socket)))
        .collect()
}

fn has(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output();
    found.is_ok_and(|output| output.status.success())
}

/// Executes a page after the servers of the index, whose file it may use.
fn recipe(name: &str) {
    for program in ["bash", "curl", "openssl", "python3"] {
        if !has(program) {
            eprintln!("skipped: there is no {program}");
            return;
        }
    }
    let read = |name: &str| std::fs::read_to_string(folder().join(name)).unwrap();
    let ports = free_ports();
    let mut run = Run::new();
    let index = with_free_ports(&read("README.md"), &ports);
    for block in blocks(&index) {
        if let Block::File(name, text) = block {
            std::fs::write(run.folder.path().join(name), text).unwrap();
        }
    }
    run.page(&with_free_ports(&read(name), &ports));
}

macro_rules! recipes {
    ($($test:ident: $page:literal,)*) => {
        $(#[test]
        fn $test() {
            recipe($page);
        })*

        /// Every page is executed.
        #[test]
        fn every_page_is_a_test() {
            let mut pages: Vec<_> = std::fs::read_dir(folder())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            pages.sort();
            let mut run = vec![$($page),*];
            run.sort_unstable();
            assert_eq!(pages, run);
        }
    };
}

recipes! {
    the_index: "README.md",
    acme: "acme.md",
    canary: "canary.md",
    container: "container.md",
    grpc: "grpc.md",
    kubernetes: "kubernetes.md",
    migration: "migration.md",
    sticky_sessions: "sticky-sessions.md",
    systemd: "systemd.md",
    tls_and_hosts: "tls-and-hosts.md",
    websocket: "websocket.md",
}

/// Pages without commands to run here still have valid configurations, and a unit that systemd accepts.
#[test]
fn files_of_pages_are_valid() {
    for entry in std::fs::read_dir(folder()).unwrap() {
        let page = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for block in blocks(&page) {
            let Block::File(name, text) = block else {
                continue;
            };
            if name.ends_with(".yaml") {
                maglor_config::parse(&text, &name).unwrap_or_else(|errors| panic!("{errors}"));
            }
            if name.ends_with(".service") && has("systemd-analyze") {
                let run = Run::new();
                // The program is not installed on this machine.
                let text = text.replace("/usr/bin/maglor-proxy", "/bin/true");
                std::fs::write(run.folder.path().join(&name), text).unwrap();
                let output = run
                    .bash(&format!("systemd-analyze verify ./{name}"))
                    .output()
                    .unwrap();
                let said = String::from_utf8_lossy(&output.stderr);
                let old = said.contains("notify-reload");
                assert!(output.status.success() || old, "{said}");
                assert!(
                    said.trim().is_empty() || old || !said.contains(&name),
                    "{said}"
                );
            }
        }
    }
}

/// The quick start of the README: its file answers the requests that follow it.
#[test]
fn the_readme_keeps_its_word() {
    let text = std::fs::read_to_string(folder().join("../../README.md")).unwrap();
    let (_, rest) = text.split_once("<!-- recipe -->").unwrap();
    let (part, _) = rest.split_once("<!-- end recipe -->").unwrap();
    if !has("curl") {
        return;
    }
    let ports = free_ports();
    let mut run = Run::new();
    run.page(&with_free_ports(part, &ports));
}
