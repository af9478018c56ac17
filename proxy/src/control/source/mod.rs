//! Where configurations come from: a file that is watched, and a control plane ([`xds`]), which also says
//! who the proxy is ([`enrol`]).

pub(crate) mod enrol;
pub(crate) mod xds;

use std::path::{Path, PathBuf};
use std::time::Duration;

use maglor_identity::Fingerprint;
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, timeout_at};

/// Editors and ConfigMap updates touch a folder several times; wait for the end.
const SETTLE: Duration = Duration::from_millis(100);
/// Where a folder never comes to rest (a log is written there, say), look this often.
const AT_LATEST: Duration = Duration::from_secs(1);

/// Tells when a file may have changed.
#[derive(Debug)]
pub(crate) struct Watch {
    _watcher: RecommendedWatcher,
    events: UnboundedReceiver<()>,
    /// After the first event: when to stop waiting for another one, and for any.
    settled: Option<(Instant, Instant)>,
}

impl Watch {
    /// Watches the folder of `path`, not the file: editors replace files, and Kubernetes swaps the
    /// symlink `..data` that a ConfigMap's files lead through.
    ///
    /// # Errors
    /// When the system has no watch left.
    pub(crate) fn new(path: &Path) -> notify::Result<Self> {
        let (sender, events) = unbounded_channel();
        let mut watcher =
            notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
                // An error may mean lost events: look at the file.
                if event.is_err() || event.is_ok_and(|event| changes(&event.kind)) {
                    let _ = sender.send(());
                }
            })?;
        watcher.watch(&folder(path), RecursiveMode::NonRecursive)?;
        Ok(Self {
            _watcher: watcher,
            events,
            settled: None,
        })
    }

    /// Waits for a change, and for it to be over. A wait that is dropped is taken up by the next.
    pub(crate) async fn changed(&mut self) {
        loop {
            let event = match self.settled {
                None => self.events.recv().await,
                Some((quiet, latest)) => {
                    match timeout_at(quiet.min(latest), self.events.recv()).await {
                        Ok(event) => event,
                        Err(_) => {
                            self.settled = None;
                            return;
                        }
                    }
                }
            };
            if event.is_none() {
                std::future::pending::<()>().await;
            }
            let now = Instant::now();
            let latest = self.settled.map_or(now + AT_LATEST, |(_, latest)| latest);
            self.settled = Some((now + SETTLE, latest));
        }
    }
}

/// Sees changes of a file that its [`Watch`] does not: a folder that is another one all at once, because a symlink
/// on the way was swapped; a link to a file elsewhere; a system that has no watch left.
#[derive(Debug)]
pub(crate) struct Glance {
    /// How the file looked when it was read.
    read: Fingerprint,
    /// The same at the last look.
    last: Fingerprint,
}

impl Glance {
    /// The file is about to be read for the first time, or was.
    pub(crate) fn new(path: &Path) -> Self {
        let now = look(path);
        Self {
            read: now.clone(),
            last: now,
        }
    }

    /// The file is about to be read.
    pub(crate) fn read(&mut self, path: &Path) {
        self.read = look(path);
    }

    /// Whether it looks different from when it was read, and twice alike: who writes it has finished, and nobody
    /// else has seen that.
    pub(crate) fn missed(&mut self, path: &Path) -> bool {
        let now = look(path);
        let rests = now == self.last;
        self.last = now;
        rests && self.last != self.read
    }
}

fn look(path: &Path) -> Fingerprint {
    Fingerprint::of([path].into_iter())
}

fn changes(kind: &EventKind) -> bool {
    !matches!(kind, EventKind::Access(_))
}

fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
