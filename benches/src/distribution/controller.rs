//! The controller that is measured.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use maglor_testkit::cluster::Kubectl;
use serde_json::Value;

use super::members::NAMESPACE;
use crate::error::{Doing, Error, Result};
use crate::http;
use crate::procfs::{self, CpuTime, Memory};

const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// A running controller. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Controller {
    child: Child,
    admin: SocketAddr,
    /// The time from its start until it served proxies.
    pub(super) ready_after: Duration,
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Controller {
    /// Starts one that serves at `listen`, and waits until it does.
    pub(super) async fn start(
        binary: &Path,
        kubectl: &Kubectl,
        folder: &Path,
        listen: SocketAddr,
    ) -> Result<Self> {
        let ready = folder.join("ready.json");
        let _ = fs::remove_file(&ready);
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.join("controller.log"))
            .doing("open the controller's log")?;
        let started = Instant::now();
        let child = Command::new(binary)
            .env("KUBECONFIG", kubectl.kubeconfig())
            .args(["--namespace", NAMESPACE, "--admin", "127.0.0.1:0"])
            .args(["--listen", &listen.to_string(), "--ready-file"])
            .arg(&ready)
            .stderr(log.try_clone().doing("open the controller's log")?)
            .stdout(log)
            .stdin(Stdio::null())
            .spawn();
        let mut child = child.doing(format!("start {}", binary.display()))?;
        while !ready.exists() {
            let ended = child.try_wait().doing("look after the controller")?;
            if ended.is_some() || started.elapsed() > PATIENCE {
                let log = fs::read_to_string(folder.join("controller.log")).unwrap_or_default();
                let _ = child.kill();
                let last = log.lines().last().unwrap_or_default();
                return Err(Error::late("maglor-controller", started, last));
            }
            tokio::time::sleep(POLL).await;
        }
        let ready_after = started.elapsed();
        let text = fs::read_to_string(&ready).doing("read the controller's addresses")?;
        let addresses: Value = serde_json::from_str(&text).unwrap_or_default();
        let admin = addresses["admin"]
            .as_str()
            .and_then(|text| text.parse().ok());
        let admin = admin.ok_or_else(|| Error::parse("the controller's addresses", text))?;
        Ok(Self {
            child,
            admin,
            ready_after,
        })
    }

    /// Returns the number of connected clients.
    pub(super) async fn sessions(&self) -> Result<u32> {
        let text = http::text(self.admin, "GET", "/metrics", String::new()).await?;
        let counts = text.lines().filter_map(|line| {
            let line = line.strip_prefix("maglor_controller_sessions{")?;
            line.rsplit(' ').next()?.parse::<u32>().ok()
        });
        Ok(counts.sum())
    }

    /// Returns its memory and processor time.
    pub(super) fn usage(&self) -> Result<(Memory, CpuTime)> {
        let pid = self.child.id();
        Ok((procfs::memory(pid)?, procfs::cpu(&[pid])?))
    }
}
