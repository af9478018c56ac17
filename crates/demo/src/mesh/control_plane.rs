//! The control plane of the demo: a `maglor-controller` process that reads the resources from a folder, and serves the
//! page. It is killed when its handle is dropped.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::Error;
use super::manifests;
use super::services::Replica;
use super::sidecar::Program;
use super::watch::Watch;

/// The name of the program.
pub(super) const PROGRAM: &str = "maglor-controller";
const READY_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A running controller.
#[derive(Debug)]
pub(super) struct ControlPlane {
    child: Child,
    watch: Rc<Watch>,
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
    /// Starts a controller with resources, and waits until it serves. `proxies` are names and admin addresses, for the
    /// live requests of the page.
    pub(super) async fn start(
        program: &Program,
        folder: &Path,
        resources: &str,
        proxies: &[(String, SocketAddr)],
    ) -> Result<Self, Error> {
        let failed = Error::system("write the resources of the mesh");
        let files = folder.join("resources");
        fs::create_dir_all(&files)
            .and_then(|()| fs::write(files.join("mesh.yaml"), resources))
            .map_err(failed)?;
        let ready = folder.join("ready.json");
        let log = File::create(folder.join("log")).map_err(Error::system("write a log"))?;
        let mut command = Command::new(&program.path);
        for (name, admin) in proxies {
            command.args(["--dashboard-proxy", &format!("{name}={admin}")]);
        }
        let child = command
            .arg("--folder")
            .arg(&files)
            // Proxies authenticate each other by certificates of the demo; the controller is on loopback.
            .args(["--plain-text", "--listen", "127.0.0.1:0"])
            .args(["--dashboard", "127.0.0.1:0", "--load-interval", "2s"])
            .args(["--log-level", "warn"])
            .arg("--ready-file")
            .arg(&ready)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // Ctrl-C is handled by the demo.
            .process_group(0)
            .spawn()
            .map_err(|source| Error::Start {
                program: program.path.clone(),
                source,
            })?;
        program.watch.begins(child.id());
        let unknown = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut control_plane = Self {
            child,
            watch: Rc::clone(&program.watch),
            folder: files,
            address: unknown,
            page: unknown,
        };
        control_plane.ready(&ready).await?;
        Ok(control_plane)
    }

    async fn ready(&mut self, file: &Path) -> Result<(), Error> {
        let started = Instant::now();
        loop {
            let text = fs::read(file).unwrap_or_default();
            if let Ok(ready) = serde_json::from_slice::<Ready>(&text) {
                (self.address, self.page) = (ready.listen, ready.dashboard);
                return Ok(());
            }
            let ended = self.child.try_wait();
            if let Some(status) = ended.map_err(Error::system("wait for the controller"))? {
                let log = file.with_file_name("log");
                let log = fs::read_to_string(log).unwrap_or_default();
                let last = log.lines().rfind(|line| !line.trim().is_empty());
                return Err(Error::ControllerEnded {
                    status,
                    said: last.unwrap_or("it printed nothing").to_owned(),
                });
            }
            if started.elapsed() > READY_WITHIN {
                return Err(Error::ControllerNotReady(READY_WITHIN));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Publishes the endpoint of a replica, as a cluster does once a pod is ready.
    pub(super) fn add(&self, replica: Replica, inbound: SocketAddr) -> Result<(), Error> {
        let text = manifests::endpoint(replica, inbound);
        let file = self.file(replica);
        // Renamed into place, so that the controller never reads a part.
        let new = file.with_extension("new");
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &file));
        written.map_err(Error::system("write a resource"))
    }

    /// Removes the endpoint of a replica, as a cluster does when a pod fails.
    pub(super) fn remove(&self, replica: Replica) -> Result<(), Error> {
        match fs::remove_file(self.file(replica)) {
            // Killed twice.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(Error::system("remove a resource")),
        }
    }

    fn file(&self, replica: Replica) -> PathBuf {
        self.folder.join(format!("{replica}.yaml"))
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // A process that has terminated by itself cannot be killed, and is only waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.watch.ends(self.child.id());
    }
}
