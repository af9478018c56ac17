//! A real Chromium, driven over the DevTools protocol by its own WebSocket.
//!
//! Not by a crate: chromiumoxide brings a second tungstenite and 5 MB of generated code, of which a test of one page
//! needs ten commands.

mod connection;
mod page;

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs};

use serde_json::json;
use tempfile::TempDir;

use self::connection::Connection;
pub use self::page::{Device, Page, RoundTrip};
use crate::{TIMEOUT, wait};

/// The names of the program, by distribution.
const NAMES: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// A browser without windows, with a new profile; it ends when it is dropped.
#[derive(Debug)]
pub struct Browser {
    process: Child,
    connection: Arc<Connection>,
    // Removed after the process has ended.
    _profile: TempDir,
}

impl Browser {
    /// Returns the path of an installed browser.
    #[must_use]
    pub fn installed() -> Option<PathBuf> {
        let path = env::var_os("PATH")?;
        let mut all =
            env::split_paths(&path).flat_map(|folder| NAMES.map(|name| folder.join(name)));
        all.find(|program| program.is_file())
    }

    /// Starts a browser.
    pub async fn start(program: &Path) -> Self {
        let profile = tempfile::tempdir().expect("a folder for the profile");
        let process = Command::new(program)
            .args([
                "--headless=new",
                "--remote-debugging-port=0",
                "--no-first-run",
            ])
            // Root has no sandbox; containers have neither a GPU nor a large /dev/shm.
            .args(["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            // The browser's own requests would not be those of the page.
            .args([
                "--disable-background-networking",
                "--disable-component-update",
            ])
            .args([
                "--disable-sync",
                "--no-default-browser-check",
                "--hide-scrollbars",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            // All its processes are of one group, by which their time is counted.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the browser starts");
        // The file with the port and the path of the WebSocket is complete when it has its second line.
        let file = profile.path().join("DevToolsActivePort");
        let (port, path) = wait::until(3 * TIMEOUT, "the port of the browser", || {
            let text = fs::read_to_string(&file).ok()?;
            let (port, path) = text.split_once('\n')?;
            let path = path.trim();
            Some((port.parse().ok()?, path.to_owned())).filter(|_| path.starts_with("/devtools/"))
        });
        Self {
            process,
            connection: Arc::new(Connection::open(port, &path).await),
            _profile: profile,
        }
    }

    /// Returns the processor time that all processes of the browser have used.
    #[must_use]
    pub fn processor_time(&self) -> Duration {
        let group = self.process.id().to_string();
        let processes = fs::read_dir("/proc").expect("/proc").flatten();
        let ticks = processes.filter_map(|process| {
            let text = fs::read_to_string(process.path().join("stat")).ok()?;
            // The name, in parentheses, may contain spaces. Then: state, parent, group; utime and stime are 9 fields later.
            let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
            let [user, system] = [fields.get(11)?, fields.get(12)?];
            let used = user.parse::<u64>().ok()? + system.parse::<u64>().ok()?;
            (*fields.get(2)? == group).then_some(used)
        });
        // USER_HZ is 100 on all architectures that Chromium runs on.
        Duration::from_millis(10 * ticks.sum::<u64>())
    }

    /// Opens an empty page in its own window, because hidden pages stop their work.
    pub async fn page(&self) -> Page {
        let target = self
            .connection
            .call(
                "",
                "Target.createTarget",
                json!({"url": "about:blank", "newWindow": true}),
            )
            .await;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = self
            .connection
            .call("", "Target.attachToTarget", attach)
            .await;
        let session = attached["sessionId"].as_str().expect("a session");
        Page::new(Arc::clone(&self.connection), session).await
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its children end when their parent does. A process that has ended by itself cannot be killed.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
