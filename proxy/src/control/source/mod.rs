//! Sources of configuration: a watched file, and a control plane ([`xds`]), which also issues the proxy's
//! identity ([`enrol`]).

pub(crate) mod enrol;
pub(crate) mod xds;

use std::path::{Path, PathBuf};
use std::time::Duration;

use maglor_identity::Fingerprint;
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, timeout_at};

/// Time without further events before an event is reported: editors and ConfigMap updates change a directory several
/// times.
const SETTLE: Duration = Duration::from_millis(100);
/// Maximum delay of a report in a directory with continuous events, for example one that contains a log.
const AT_LATEST: Duration = Duration::from_secs(1);

/// Reports possible changes of a file.
#[derive(Debug)]
pub(crate) struct Watch {
    _watcher: RecommendedWatcher,
    events: UnboundedReceiver<()>,
    /// After the first event: when to stop waiting for further ones, by [`SETTLE`] and by [`AT_LATEST`].
    settled: Option<(Instant, Instant)>,
}

impl Watch {
    /// Watches the directory of `path`, not the file itself: editors replace files, and Kubernetes swaps the symlink
    /// `..data` through which a ConfigMap's files are reached.
    ///
    /// # Errors
    /// If the system's limit of watches is reached.
    pub(crate) fn new(path: &Path) -> notify::Result<Self> {
        let (sender, events) = unbounded_channel();
        let mut watcher =
            notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
                // An error may mean lost events: report a change.
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

    /// Waits until a change is complete. Cancel safe: the next call continues a dropped wait.
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

/// Finds changes of a file that its [`Watch`] misses: a directory on the path is a symlink that was swapped; the file
/// is a link to a file elsewhere; the system's limit of watches is reached.
#[derive(Debug)]
pub(crate) struct Glance {
    /// Fingerprint of the file when it was read.
    read: Fingerprint,
    /// Fingerprint at the last poll.
    last: Fingerprint,
}

impl Glance {
    /// Creates the record of a file that is being read for the first time.
    pub(crate) fn new(path: &Path) -> Self {
        let now = look(path);
        Self {
            read: now.clone(),
            last: now,
        }
    }

    /// Records that the file is about to be read.
    pub(crate) fn read(&mut self, path: &Path) {
        self.read = look(path);
    }

    /// Returns whether the file differs from what was read and has not changed since the last poll, so that the write
    /// is complete.
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
