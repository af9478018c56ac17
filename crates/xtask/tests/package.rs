//! `cargo xtask package`: its packages on a clean Debian, without a service manager and with systemd booted.
//!
//! Root, a network for Debian's archive, and `mmdebstrap` are needed; without them the tests skip themselves.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "package/clients.rs"]
mod clients;
#[path = "package/debian.rs"]
mod debian;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;

use clients::Clients;
use debian::{Booted, Root, TIMEOUT, run};

const CONFIGURATION: &str = "etc/maglor/proxy.yaml";
const VERSION: &str = "1.0";
const UNIT: &str = "usr/lib/systemd/system/maglor-proxy.service";
/// With the log, where it fails.
const RELOAD: &str =
    "systemctl reload maglor-proxy || { journalctl --no-pager -n 20 -u maglor-proxy; exit 1; }";
/// Requests between two changes.
const BETWEEN: usize = 200;

/// The folder with the packages, built once.
fn packages() -> &'static Path {
    static PACKAGES: OnceLock<PathBuf> = OnceLock::new();
    PACKAGES.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
        let package = |out: &Path| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_maglor-xtask"));
            command.args(["package", "--profile", "dev", "--version", VERSION]);
            run(command.arg("--out").arg(out));
            fs::read_to_string(out.join("SHA256SUMS")).unwrap()
        };
        let first = package(&out);
        assert_eq!(package(&out.join("again")), first, "reproducible");
        out
    })
}

/// A system with the package at `/srv/one.deb`, and a later one with another example at `/srv/two.deb`; if this machine
/// can have it.
fn debian() -> Option<Root> {
    let root = match Root::unpack() {
        Ok(root) => root,
        Err(reason) => {
            println!("skipped: {reason}");
            return None;
        }
    };
    let prefix = format!("maglor_{VERSION}_");
    let files = fs::read_dir(packages()).unwrap().flatten();
    let mut files = files.filter(|file| file.file_name().to_string_lossy().starts_with(&prefix));
    let package = files.next().expect("the package was written").path();
    fs::copy(package, root.path().join("srv/one.deb")).unwrap();
    root.chroot(&format!(
        "cd /srv; dpkg-deb -R one.deb new; echo '# new' >>new/{CONFIGURATION}\n\
         sed -i 's/^Version: .*/Version: 2.0/' new/DEBIAN/control\n\
         dpkg-deb -Znone -b new two.deb; rm -r new"
    ));
    Some(root)
}

/// Files that have our name, or are ours, anywhere but in the folders of the kernel.
const LEFT_OVER: &str =
    "find / -xdev -iname '*maglor*'; find /run -iname '*maglor*'; grep -rl maglor /etc || true";

#[test]
#[ignore = "a clean Debian: needs root and a network; cargo xtask e2e"]
fn installs_and_leaves_without_a_service_manager() {
    let Some(root) = debian() else { return };
    // As in a container without systemd.
    root.chroot("mv /usr/bin/systemctl /usr/bin/systemd-run /srv");
    root.chroot("dpkg -i /srv/one.deb");
    assert_eq!(root.chroot("dpkg --verify maglor"), "", "files are intact");
    let check = root.chroot(&format!("maglor check /{CONFIGURATION}"));
    assert!(check.contains("valid"), "{check}");
    for program in ["maglor", "maglor-controller", "maglor-proxy"] {
        let version = root.chroot(&format!("{program} --version"));
        assert!(version.starts_with(program), "{version}");
        root.chroot(&format!(
            "bash -n /usr/share/bash-completion/completions/{program}\n\
             test -s /usr/share/zsh/vendor-completions/_{program}\n\
             test -s /usr/share/fish/vendor_completions.d/{program}.fish\n\
             test -s /usr/share/doc/maglor/copyright"
        ));
    }
    let pages = root.chroot("zcat /usr/share/man/man8/maglor-proxy.8.gz");
    assert!(pages.contains("maglor\\-proxy"), "{pages}");
    root.chroot("dpkg -i /srv/two.deb");
    let example = fs::read_to_string(root.path().join(CONFIGURATION)).unwrap();
    assert!(example.contains("# new"), "an unchanged file is replaced");
    root.chroot("dpkg --remove maglor");
    assert!(root.path().join(CONFIGURATION).exists());
    root.chroot("dpkg --purge maglor");
    assert_eq!(root.chroot(LEFT_OVER), "", "nothing is left");
}

#[test]
#[ignore = "a clean Debian: needs root and a network; cargo xtask e2e"]
fn the_archive_is_the_same_without_dpkg() {
    let Some(root) = debian() else { return };
    run(Command::new("sha256sum")
        .args(["--check", "SHA256SUMS"])
        .current_dir(packages()));
    let name = format!("maglor-{VERSION}-{}-linux.tar.gz", std::env::consts::ARCH);
    fs::copy(
        packages().join(name),
        root.path().join("srv/archive.tar.gz"),
    )
    .unwrap();
    root.chroot("tar -C / --strip-components=1 -xzf /srv/archive.tar.gz");
    let check = root.chroot(&format!("maglor-proxy --check /{CONFIGURATION}"));
    assert!(check.contains("valid"), "{check}");
}

#[test]
#[ignore = "a clean Debian with systemd: needs root and a network; cargo xtask e2e"]
fn the_service_lives_from_installation_to_purge() {
    let Some(root) = debian() else { return };
    let system = match Booted::boot(&root) {
        Ok(booted) => Service(booted, &root),
        Err(reason) => {
            println!("skipped: {reason}");
            return;
        }
    };
    system.install();
    system.reload();
    system.refuse_errors();
    system.upgrade();
    system.remove();
}

/// The system, and the folder of its files.
struct Service<'a>(Booted<'a>, &'a Root);

impl Service<'_> {
    fn run(&self, script: &str) -> String {
        self.0.run(script)
    }

    fn install(&self) {
        self.run("dpkg -i /srv/one.deb");
        self.answers("Maglor is installed.\n");
        assert_eq!(self.run("systemctl is-enabled maglor-proxy"), "enabled\n");
        let verdict = self.run(&format!("systemd-analyze verify --man=no /{UNIT} 2>&1"));
        assert_eq!(verdict, "", "the unit is as systemd expects it");
        let user = format!("/proc/{}/status", self.process());
        let status = self.run(&format!("cat {user}"));
        assert!(!status.contains("\nUid:\t0"), "{status}");
        let exposure = self.run("systemd-analyze security --no-pager maglor-proxy | tail -n 1");
        println!("installed and started; {}", exposure.trim());
    }

    /// Other responses under the load of clients, by the reload that the unit has.
    fn reload(&self) {
        let process = self.process();
        let clients = Clients::start(&self.0.network());
        let configurations = [
            ("direct", direct as fn(&str) -> String),
            ("forwarded", forwarded),
        ];
        for (round, (kind, configuration)) in configurations.iter().cycle().take(6).enumerate() {
            clients.wait_for(BETWEEN);
            let body = format!("{kind} {round}");
            self.configure(&configuration(&body));
            self.run(RELOAD);
            self.answers(&body);
        }
        clients.wait_for(BETWEEN);
        let answered = clients.stop();
        assert_eq!(self.process(), process, "the process is the same");
        println!("6 reloads: {answered} requests answered, 0 lost");
    }

    fn refuse_errors(&self) {
        let before = clients::body(&self.0.network()).unwrap();
        self.configure("listeners: none\n");
        let reload = self
            .0
            .inside("systemctl reload maglor-proxy")
            .output()
            .unwrap();
        assert!(!reload.status.success(), "a file with errors");
        self.answers(&before);
        println!("a file with errors: reload refused, service unchanged");
    }

    /// To a version whose example has changed, while the administrator's file has, too.
    fn upgrade(&self) {
        let kept = direct("kept");
        self.configure(&kept);
        let process = self.process();
        self.run("dpkg --force-confold -i /srv/two.deb");
        self.answers("kept");
        assert_eq!(self.file(CONFIGURATION), kept, "the administrator's");
        assert!(
            self.file(&format!("{CONFIGURATION}.dpkg-dist"))
                .contains("# new")
        );
        assert_ne!(self.process(), process, "the service was restarted");
        assert_eq!(
            self.run("dpkg-query --show --showformat '${Version}' maglor"),
            "2.0"
        );
        // What the administrator has disabled stays so.
        self.run("systemctl disable --quiet maglor-proxy; dpkg --force-confold -i /srv/two.deb");
        let enabled = self
            .0
            .inside("systemctl is-enabled maglor-proxy")
            .output()
            .unwrap();
        assert_eq!(enabled.stdout, b"disabled\n");
        println!("upgraded: service restarted, configuration kept; disabled, it stays so");
    }

    fn remove(&self) {
        self.run("dpkg --remove maglor");
        let active = self
            .0
            .inside("systemctl is-active maglor-proxy")
            .output()
            .unwrap();
        assert_eq!(active.stdout, b"inactive\n");
        assert_eq!(self.file(CONFIGURATION), direct("kept"));
        self.run("dpkg --purge maglor");
        assert_eq!(self.run(LEFT_OVER), "", "nothing is left");
        println!("removed and purged: nothing left");
    }

    fn process(&self) -> String {
        let process = self.run("systemctl show --value --property MainPID maglor-proxy");
        process.trim().to_owned()
    }

    fn file(&self, path: &str) -> String {
        fs::read_to_string(self.1.path().join(path)).unwrap()
    }

    fn configure(&self, text: &str) {
        fs::write(self.1.path().join(CONFIGURATION), text).unwrap();
    }

    /// Waits for this body.
    fn answers(&self, body: &str) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let answered = clients::body(&self.0.network());
            if answered.as_ref().is_ok_and(|answered| answered == body) {
                return;
            }
            let late = Instant::now() > deadline;
            let log = || self.run("systemctl status --no-pager maglor-proxy 2>&1 || true");
            assert!(!late, "{answered:?} instead of {body:?}:\n{}", log());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

fn direct(body: &str) -> String {
    listeners(
        &format!("direct_response: {{status: 200, body: \"{body}\"}}"),
        "",
    )
}

/// By way of a cluster, whose endpoint is another listener of the same proxy.
fn forwarded(body: &str) -> String {
    let endpoint = format!(
        "- name: endpoint\n  address: 127.0.0.1:9001\n  http:\n    virtual_hosts: [{{domains: [\"*\"], \
         routes: [{{direct_response: {{status: 200, body: \"{body}\"}}}}]}}]\n\
         clusters: [{{name: app, endpoints: [\"127.0.0.1:9001\"]}}]\n"
    );
    listeners("cluster: app", &endpoint)
}

fn listeners(action: &str, more: &str) -> String {
    format!(
        "listeners:\n- name: web\n  address: 127.0.0.1:8080\n  http:\n    \
         virtual_hosts: [{{domains: [\"*\"], routes: [{{{action}}}]}}]\n{more}"
    )
}
