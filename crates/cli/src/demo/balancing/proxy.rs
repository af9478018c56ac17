//! Runs the real proxy on separate threads, as `maglor-proxy --config` would.

use std::net::SocketAddr;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use maglor_proxy::{Options, RunError};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::Error;
use super::plan::Plan;

const READY_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A proxy that is ready.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) admin: SocketAddr,
    bound: Value,
    running: Running,
}

#[derive(Debug)]
struct Running {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), RunError>>,
    /// Holds the ready file.
    _folder: TempDir,
}

impl Proxy {
    /// Starts the proxy and waits until it accepts requests.
    pub(super) fn start(configuration: &str) -> Result<Self, Error> {
        let loaded = maglor_config::parse(configuration, "demo")?;
        let folder = TempDir::new().map_err(Error::system("make a temporary folder"))?;
        let ready_file = folder.path().join("ready.json");
        let options = Options {
            ready_file: Some(ready_file.clone()),
            ..Options::default()
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("proxy".into())
            .spawn(move || {
                maglor_proxy::run(loaded, options, async {
                    let _ = stopped.await;
                })
            })
            .map_err(Error::system("start a thread"))?;
        let running = Running {
            stop,
            thread,
            _folder: folder,
        };
        let started = Instant::now();
        while !ready_file.exists() {
            if running.thread.is_finished() {
                running.end()?;
                return Err(Error::NotReady(started.elapsed()));
            }
            if started.elapsed() > READY_WITHIN {
                return Err(Error::NotReady(READY_WITHIN));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let bound = read(&ready_file)?;
        let admin = address(&bound["admin"]).ok_or_else(|| odd(&ready_file, &bound))?;
        Ok(Self {
            admin,
            bound,
            running,
        })
    }

    /// Returns the address of the listener for the policy of this index.
    pub(super) fn listener(&self, index: usize) -> Option<SocketAddr> {
        address(&self.bound["listeners"][Plan::listener(index)])
    }

    /// Drains and stops the proxy.
    pub(super) fn stop(self) -> Result<(), Error> {
        self.running.end()
    }
}

impl Running {
    fn end(self) -> Result<(), Error> {
        // It may have stopped by itself, on the signal that ended the demo.
        let _ = self.stop.send(());
        let result = self.thread.join().map_err(|_| Error::ProxyPanicked)?;
        Ok(result?)
    }
}

fn read(path: &Path) -> Result<Value, Error> {
    let text = std::fs::read(path).map_err(Error::system("read the ready file"))?;
    serde_json::from_slice(&text).map_err(|_| odd(path, &Value::Null))
}

fn odd(path: &Path, found: &Value) -> Error {
    Error::ReadyFile {
        path: path.to_owned(),
        found: found.to_string(),
    }
}

fn address(value: &Value) -> Option<SocketAddr> {
    value.as_str()?.parse().ok()
}
