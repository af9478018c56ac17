//! Mistakes on the command line of `maglor-proxy`, and in files and addresses that a configuration names: the
//! messages, and that `--check` and the start agree.

use std::fs::Permissions;
use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use maglor_testkit::TIMEOUT;
use maglor_testkit::certs::Authority;

/// Runs to the end; returns exit code and standard error. A process that keeps running has started.
fn run(args: &[&str], folder: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_maglor-proxy"));
    command.args(args).current_dir(folder);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).unwrap();
        text
    });
    let deadline = Instant::now() + TIMEOUT;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{args:?} is running:\n{}", reader.join().unwrap());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    (status.code(), reader.join().unwrap())
}

/// (arguments, expected parts of the message).
const COMMAND_LINES: &[(&str, &[&str])] = &[
    (
        "",
        &["maglor-proxy FILE", "--listen 127.0.0.1:8080 --upstream"],
    ),
    ("--listen 8080", &["--upstream 127.0.0.1:9001"]),
    ("--upstream 127.0.0.1:9001", &["--listen 127.0.0.1:8080"]),
    (
        "--listen localhost:8080 --upstream 127.0.0.1:1",
        &["--listen", "write `127.0.0.1:8080`"],
    ),
    (
        "--listen *:80 --upstream 127.0.0.1:1",
        &["--listen", "write `0.0.0.0:80`"],
    ),
    (
        "--listen 0.0.0.0 --upstream 127.0.0.1:1",
        &["--listen", "write `0.0.0.0:8080`"],
    ),
    (
        "--listen http://0.0.0.0:80 --upstream 127.0.0.1:1",
        &["--listen", "write `0.0.0.0:80`"],
    ),
    (
        "--listen 127.0.0.1:99999 --upstream 127.0.0.1:1",
        &["--listen", "65535"],
    ),
    (
        "--listen 8080 --upstream http://127.0.0.1:9001",
        &["--upstream", "write `127.0.0.1:9001`"],
    ),
    (
        "--listen 8080 --upstream 9001",
        &["--upstream 9001", "write `127.0.0.1:9001`"],
    ),
    (
        "--listen 8080 --upstream app",
        &["--upstream app", "write `app:80`"],
    ),
    (
        "--listen 8080 --upstream 127.0.0.1:1,wieght=2",
        &["--upstream", "ADDR,weight=N"],
    ),
    (
        "--listen 8080 --upstream 127.0.0.1:1,weight=x",
        &["--upstream", "1 to 1000000"],
    ),
    (
        "--listen 8080 --upstream 127.0.0.1:1 --policy leastconn",
        &["--policy", "lor(choices=all)"],
    ),
    (
        "--listen 8080 --upstream 127.0.0.1:1 --policy maglev(table_size=100)",
        &["--policy", "101"],
    ),
    (
        "--listen 8080 --upstream 127.0.0.1:1 --admin localhost",
        &["--admin", "127.0.0.1:"],
    ),
    (
        "--listen 8080 --upstream 127.0.0.1:1 --workers auto",
        &["--workers", "number of threads"],
    ),
    (
        "--listen 8080 --upstream 127.0.0.1:1 --workers 0",
        &["--workers", "1 to 256"],
    ),
    (
        "--listen 8080 --upstream 127.0.0.1:1 --log-level loud",
        &["--log-level", "debug"],
    ),
    (
        "--listen 8080 --upstream 127.0.0.1:1 --log-format xml",
        &["--log-format", "json"],
    ),
    (
        "--listen 8080 --upstream 127.0.0.1:1 --memory-budget 64MB",
        &["--memory-budget", "64MiB"],
    ),
    ("--port 8080", &["`--port`", "--listen ADDR:PORT"]),
    (
        "--listen 8080 --backend 127.0.0.1:9001",
        &["`--backend`", "--upstream ADDR:PORT"],
    ),
    ("--config-file maglor.yaml", &["--config"]),
    ("-f maglor.yaml", &["`-f`", "--config FILE"]),
    ("-t -c maglor.yaml", &["`-t`", "--check"]),
    ("--chekc maglor.yaml", &["--check"]),
    ("--config", &["--config", "value is required"]),
    (
        "check maglor.yaml",
        &["`check`", "maglor-proxy --check FILE"],
    ),
    ("run --config maglor.yaml", &["`run`", "maglor-proxy FILE"]),
    ("serve", &["`serve`", "maglor-proxy FILE"]),
    ("reload", &["`reload`", "kill -HUP"]),
    ("version", &["--version"]),
    (
        "mgalor.yaml",
        &["mgalor.yaml", "did you mean `maglor.yaml`?"],
    ),
    ("other.conf", &["other.conf", "no such file", "maglor.yaml"]),
    (".", &["the path is a directory", "maglor.yaml"]),
    (
        "maglor.yaml --listen 8080 --upstream 127.0.0.1:1",
        &["cannot be used with a configuration file", "--listen"],
    ),
    ("-c maglor.yaml other.yaml", &["one configuration file"]),
    ("sidecar", &["POD_NAMESPACE", "--pod-namespace"]),
];

#[test]
fn a_command_line_that_makes_no_sense_gets_one_that_does() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("maglor.yaml"), "listeners: []").unwrap();
    let mut wrong = Vec::new();
    for (line, pieces) in COMMAND_LINES {
        let args: Vec<_> = line.split_whitespace().collect();
        let (code, said) = run(&args, folder.path());
        let good = code == Some(2) && pieces.iter().all(|piece| said.contains(piece));
        if std::env::var_os("PRINT").is_some() {
            println!("$ maglor-proxy {line}\n{said}");
        }
        if !good {
            wrong.push(format!(
                "$ maglor-proxy {line}\n{said}{code:?}, expected {pieces:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Asserts that check and start report the same, with the same exit code.
#[track_caller]
fn agree(file: &str, folder: &Path) -> (Option<i32>, String) {
    let checked = run(&["--check", file], folder);
    let started = run(&[file], folder);
    let lines = |said: &str| {
        // The start also writes a log.
        let lines = said
            .lines()
            .filter(|line| !line.contains(" INFO ") && !line.contains(" WARN "));
        lines.collect::<Vec<_>>().join("\n")
    };
    assert_eq!(checked.0, started.0, "{file}: {}\n{}", checked.1, started.1);
    let (check, start) = (lines(&checked.1), lines(&started.1));
    // A check reports all errors, a start the first.
    assert!(
        check.contains(start.trim_end()),
        "{file}:\n{check}\nstart:\n{start}"
    );
    checked
}

#[test]
fn a_check_refuses_what_a_start_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let bad = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/config/tests/bad");
    let mut count = 0;
    for entry in std::fs::read_dir(bad).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "yaml") {
            let (code, said) = agree(path.to_str().unwrap(), folder.path());
            assert_eq!(code, Some(2), "{said}");
            count += 1;
        }
    }
    assert!(count > 30, "{count}");
}

/// A configuration with one unusable part, and the expected message.
struct Unusable {
    name: &'static str,
    yaml: String,
    pieces: Vec<String>,
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn unusable(folder: &Path, taken: &str) -> Vec<Unusable> {
    let put = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    let authority = Authority::new();
    let (one, other) = (
        authority.issue(&["a.example"]),
        authority.issue(&["b.example"]),
    );
    put("good.pem", &one.cert_pem);
    put("good.key", &one.key_pem);
    put("other.key", &other.key_pem);
    put("empty.pem", "");
    put("secret.key", &one.key_pem);
    let with = |listener: &str, top: &str, cluster: &str| {
        format!(
            "{top}\nlisteners:\n- name: web\n  address: 127.0.0.1:0\n{listener}\n  http:\n    virtual_hosts:\n    \
             - {{domains: ['*'], routes: [{{cluster: app}}]}}\nclusters:\n- name: app\n  endpoints: ['127.0.0.1:1']\n{cluster}\n"
        )
    };
    let tls = |certificate: &str, key: &str| {
        with(
            &format!("  tls: {{certificate: {certificate}, private_key: {key}}}"),
            "",
            "",
        )
    };
    let case = |name, yaml: String, pieces: &[&str]| Unusable {
        name,
        yaml,
        pieces: pieces.iter().map(|piece| (*piece).to_owned()).collect(),
    };
    vec![
        case(
            "no certificate",
            tls("no.pem", "good.key"),
            &[":5:", "tls.certificate", "no.pem", "working directory"],
        ),
        case(
            "no key",
            tls("good.pem", "no.key"),
            &[":5:", "tls.private_key", "no.key", "working directory"],
        ),
        case(
            "another key",
            tls("good.pem", "other.key"),
            &[":5:", "does not belong to the certificate"],
        ),
        case(
            "an empty certificate",
            tls("empty.pem", "good.key"),
            &[":5:", "tls.certificate", "no certificate"],
        ),
        case(
            "key and certificate swapped",
            tls("good.key", "good.pem"),
            &[":5:", "no certificate"],
        ),
        case("a folder", tls(".", "good.key"), &["directory"]),
        case(
            "no roots",
            with("", "", "  tls: {ca: no-roots.pem}"),
            &["tls.ca", "no-roots.pem"],
        ),
        case(
            "no identity",
            with(
                "",
                "identity: {certificate: no.pem, private_key: no.key, trust_bundle: no.bundle}",
                "  tls: mesh",
            ),
            &[":1:", "no."],
        ),
        case(
            "a port that is taken",
            with("", "", "").replace("127.0.0.1:0", taken),
            &[":4:", "listeners[0].address", taken, "in use", "ss -ltnp"],
        ),
        case(
            "an admin port that is taken",
            with("", &format!("admin: {{address: '{taken}'}}"), ""),
            &[":1:", "admin.address", taken, "in use"],
        ),
        case(
            "an address of another host",
            with("", "", "").replace("127.0.0.1:0", "203.0.113.1:80"),
            &[":4:", "listeners[0].address", "ip address"],
        ),
        case(
            "a log in no folder",
            with("", "access_log: {path: none/access.log}", ""),
            &[":1:", "access_log.path", "none/access.log"],
        ),
        case(
            "a log that is a folder",
            with("", "access_log: {path: ./}", ""),
            &["directory"],
        ),
    ]
}

#[test]
fn a_check_finds_what_would_keep_a_start_from_starting_here() {
    let folder = tempfile::tempdir().unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = socket.local_addr().unwrap().to_string();
    let mut cases = unusable(folder.path(), &taken);
    let secret = folder.path().join("secret.key");
    std::fs::set_permissions(&secret, Permissions::from_mode(0o0)).unwrap();
    // Root can read it nevertheless.
    if std::fs::read(&secret).is_err() {
        cases.push(Unusable {
            name: "a key of another user",
            yaml: cases[0]
                .yaml
                .replace("no.pem", "good.pem")
                .replace("good.key", "secret.key"),
            pieces: vec!["private_key".into(), "owner and mode".into()],
        });
    }
    for case in cases {
        std::fs::write(folder.path().join("maglor.yaml"), &case.yaml).unwrap();
        let (code, said) = agree("maglor.yaml", folder.path());
        if std::env::var_os("PRINT").is_some() {
            println!("== {}\n{said}", case.name);
        }
        assert_eq!(code, Some(1), "{}: {said}", case.name);
        for piece in &case.pieces {
            assert!(
                said.contains(piece),
                "{}: no `{piece}` in\n{said}",
                case.name
            );
        }
        assert!(said.starts_with("maglor.yaml:"), "{}: {said}", case.name);
    }
}

/// A valid configuration: the check succeeds, and leaves nothing behind.
#[test]
fn a_check_of_a_good_configuration_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let yaml = "access_log: {path: access.log}\nlisteners: [{name: a, address: '127.0.0.1:0', tcp: {cluster: b}}]\n\
                clusters: [{name: b, endpoints: ['no-such-name.invalid:1']}]\n";
    std::fs::write(folder.path().join("maglor.yaml"), yaml).unwrap();
    let (code, said) = run(&["--check", "maglor.yaml"], folder.path());
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(!folder.path().join("access.log").exists());
}
