//! The control plane of the demo: a `maglor-controller` process that reads the resources from a folder, and serves the
//! page.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::Error;
use super::manifests;
use super::process::{Process, Program};
use super::services::Replica;

/// The name of the program.
pub(super) const PROGRAM: &str = "maglor-controller";
const READY_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A running controller.
#[derive(Debug)]
pub(super) struct ControlPlane {
    /// Killed with this.
    _process: Process,
    folder: PathBuf,
    /// The address for proxies.
    pub(super) address: SocketAddr,
    /// The address of the page.
    pub(super) page: SocketAddr,
}

/// The content of the ready file.
#[derive(Debug, Deserialize)]
struct Ready {
    listen: SocketAddr,
    dashboard: SocketAddr,
}

impl ControlPlane {
    /// Starts a controller with resources and the endpoints of replicas, and waits until it serves: the first response
    /// to a proxy has all of them. `proxies` are names and admin addresses, for the live requests of the page.
    pub(super) async fn start(
        program: &Program,
        folder: &Path,
        (resources, endpoints): (&str, &[(Replica, SocketAddr)]),
        proxies: &[(String, SocketAddr)],
    ) -> Result<Self, Error> {
        let failed = Error::system("write the resources of the mesh");
        let files = folder.join("resources");
        fs::create_dir_all(&files)
            .and_then(|()| fs::write(files.join("mesh.yaml"), resources))
            .map_err(failed)?;
        for (replica, inbound) in endpoints {
            add(&files, *replica, *inbound)?;
        }
        let mut command = program.command();
        command
            .arg("--folder")
            .arg(&files)
            // Proxies authenticate each other by certificates of the demo; the controller is on loopback.
            .args(["--plain-text", "--listen", "127.0.0.1:0"])
            .args(["--dashboard", "127.0.0.1:0", "--load-interval", "2s"])
            .args(["--log-level", "warn"]);
        for (name, admin) in proxies {
            command.args(["--dashboard-proxy", &format!("{name}={admin}")]);
        }
        let mut process = program.start(command, folder)?;
        let ready = ready(&mut process).await?;
        Ok(Self {
            _process: process,
            folder: files,
            address: ready.listen,
            page: ready.dashboard,
        })
    }

    /// Publishes the endpoint of a replica, as a cluster does once a pod is ready.
    pub(super) fn add(&self, replica: Replica, inbound: SocketAddr) -> Result<(), Error> {
        add(&self.folder, replica, inbound)
    }

    /// Removes the endpoint of a replica, as a cluster does when a pod fails.
    pub(super) fn remove(&self, replica: Replica) -> Result<(), Error> {
        match fs::remove_file(file(&self.folder, replica)) {
            // Killed twice.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(Error::system("remove a resource")),
        }
    }
}

fn file(folder: &Path, replica: Replica) -> PathBuf {
    folder.join(format!("{replica}.yaml"))
}

fn add(folder: &Path, replica: Replica, inbound: SocketAddr) -> Result<(), Error> {
    let text = manifests::endpoint(replica, inbound);
    let file = file(folder, replica);
    // Renamed into place, so that the controller never reads a part.
    let new = file.with_extension("new");
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &file));
    written.map_err(Error::system("write a resource"))
}

/// Waits until a controller serves.
async fn ready(process: &mut Process) -> Result<Ready, Error> {
    let started = Instant::now();
    loop {
        let text = fs::read(process.ready_file()).unwrap_or_default();
        if let Ok(ready) = serde_json::from_slice(&text) {
            return Ok(ready);
        }
        if let Some(status) = process.ended("wait for the controller")? {
            return Err(Error::ControllerEnded {
                status,
                said: process.last_words(),
            });
        }
        if started.elapsed() > READY_WITHIN {
            return Err(Error::ControllerNotReady(READY_WITHIN));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
