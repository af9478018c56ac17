//! The lifecycle of a proxy process: start, reload, drain and exit.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use maglor_config::{Config, Errors, Loaded};
use maglor_telemetry::admin::Limits;
use maglor_telemetry::logs::LogHandle;
use serde_json::json;
use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::last_read::{LastRead, Text, text_of};
use self::pending_reload::PendingReload;
use crate::control::admin::{self, Admin};
use crate::control::app::{self, App, ApplyError, SharedApp};
use crate::control::build::BuildError;
use crate::control::source::{self, Glance, Watch};
use crate::control::ticker;
use crate::control::tls_files::Files;
use crate::downstream::thread::all_drained;
use crate::net::own_connections;
use crate::os::service_manager::{self, State};
use crate::os::{descriptors, memory};
use crate::telemetry::access_log;

mod last_read;
mod pending_reload;

/// Interval at which the proxy checks for connected clients while it waits for its application to end.
const LOOK: Duration = Duration::from_millis(50);
/// Time before the deadline at which clients that are still connected are asked to disconnect.
const LAST_CALL: Duration = Duration::from_secs(2);
/// Maximum delay of an access log line, and interval at which memory use is compared with its budget.
const FLUSH: Duration = Duration::from_millis(200);

/// Settings of a proxy besides its configuration.
#[derive(Debug, Default)]
pub struct Options {
    /// Source file of the configuration, which is watched for changes; `None` if the configuration never changes.
    pub file: Option<PathBuf>,
    /// JSON file to which the bound addresses are written once the proxy is ready; `None` to write none.
    pub ready_file: Option<PathBuf>,
    /// Memory budget in bytes, which overrides that of the configuration; `None` to use the configuration's.
    pub memory_budget: Option<u64>,
    /// Handle that changes the log level at run time; `None` if the level is fixed.
    pub log: Option<LogHandle>,
}

/// Error when a proxy starts or ends.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The admin port is taken.
    #[error("admin: cannot bind {address}: {source}")]
    Admin {
        /// The admin server's address.
        address: SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The configuration cannot be applied.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The configuration names something that cannot be used on this machine.
    #[error(transparent)]
    Build(Box<BuildError>),
    /// The changed configuration is not valid.
    #[error("{0}")]
    Config(#[from] Errors),
    /// The ready file cannot be written.
    #[error("{path}: {source}")]
    ReadyFile {
        /// Path of the ready file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The runtime or a signal handler cannot be set up.
    #[error("runtime: {0}")]
    Runtime(#[from] io::Error),
}

impl From<BuildError> for RunError {
    fn from(error: BuildError) -> Self {
        Self::Build(Box::new(error))
    }
}

/// Returns an error if the access log of a configuration cannot be written on this machine.
#[must_use]
pub fn unusable_log(config: &Config) -> Option<RunError> {
    let path = &config.access_log.as_ref()?.path;
    let source = access_log::unusable(path)?;
    let path = path.clone();
    Some(ApplyError::AccessLog { path, source }.into())
}

/// Runs a proxy until `stop` resolves or a signal ends the process, then drains it.
///
/// # Errors
/// If the proxy cannot be started.
pub fn run(
    loaded: Loaded,
    options: Options,
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    memory::forget_start();
    descriptors::raise();
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())?;
    runtime.block_on(control(loaded, options, stop))
}

async fn control(
    loaded: Loaded,
    options: Options,
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let mut signals = Signals::new()?;
    // Before the start is reported, so that no later change is missed.
    let watch = watch(options.file.as_deref());
    let glance = options.file.as_deref().map(Glance::new);
    let files = Files::of(&loaded.config);
    let admin_settings = loaded.config.admin.clone();
    let mut app = App::start(&loaded.config, options.memory_budget)?;
    app.apply(loaded, false)?;
    count_reload(&app);
    let drain = Rc::new(Notify::new());
    let app: SharedApp = Rc::new(RefCell::new(app));
    let mut bound = None;
    if let Some(admin) = admin_settings {
        let address = admin.address;
        let failed = |source| RunError::Admin { address, source };
        let socket = admin::bind(address).await.map_err(failed)?;
        let local = socket.local_addr()?;
        bound = Some(local);
        own_connections::set_admin(local);
        tracing::info!(address = %local, "admin server listening");
        let (app, drain) = (Rc::clone(&app), Rc::clone(&drain));
        let opened = admin.opened;
        let admin = Admin {
            app,
            log: options.log.clone(),
            drain,
            probes: Rc::new(admin.probes),
        };
        tokio::task::spawn_local(admin::serve(socket, admin, opened, Limits::default()));
    }
    source::enrol::begin(&app, app::seed());
    discover(&app);
    if let Some(path) = &options.ready_file {
        write_ready_file(path, bound, &app.borrow())?;
    }
    service_manager::notify(State::Ready);
    memory::forget_start();
    let mut life = Life {
        app,
        files,
        watch,
        glance,
        file: options.file,
        last_read: LastRead::default(),
        pending: PendingReload::default(),
    };
    life.until_stopped(&mut signals, &drain, stop).await;
    life.end(&mut signals).await;
    Ok(())
}

/// Starts the discovery of hosts for workers, if a control plane is configured.
fn discover(app: &SharedApp) {
    let asks = app.borrow_mut().take_asks();
    let settings = app.borrow().config().control_plane.clone();
    if let (Some(asks), Some(settings)) = (asks, settings) {
        app.borrow().describe_workload(&settings.node_id);
        let source = source::xds::run(Rc::clone(app), settings, asks, app::seed());
        tokio::task::spawn_local(source);
    }
}

fn watch(file: Option<&Path>) -> Option<Watch> {
    let file = file?;
    Watch::new(file)
        .inspect_err(|error| {
            tracing::warn!(file = %file.display(), %error, "cannot watch the configuration file; send SIGHUP to reload it");
        })
        .ok()
}

/// Writes the ready file atomically, so that a reader never sees half of it.
fn write_ready_file(path: &Path, admin: Option<SocketAddr>, app: &App) -> Result<(), RunError> {
    let addresses = app.addresses();
    let pairs = addresses
        .into_iter()
        .map(|(name, bound)| (name.to_string(), json!(bound)));
    let listeners: serde_json::Map<_, _> = pairs.collect();
    let text = json!({ "admin": admin, "listeners": listeners }).to_string();
    let partial = path.with_extension("partial");
    std::fs::write(&partial, text)
        .and_then(|()| std::fs::rename(&partial, path))
        .map_err(|source| RunError::ReadyFile {
            path: path.to_owned(),
            source,
        })
}

/// Signals that a proxy handles.
struct Signals {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
    user1: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            user1: signal(SignalKind::user_defined1())?,
        })
    }
}

/// A running proxy.
struct Life {
    app: SharedApp,
    file: Option<PathBuf>,
    watch: Option<Watch>,
    /// Finds file changes that the watch misses; `None` without a configuration file.
    glance: Option<Glance>,
    files: Files,
    last_read: LastRead,
    pending: PendingReload,
}

/// Reason for rereading the configuration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Why {
    /// The last attempt failed and is retried.
    Again,
    /// An operator requested it.
    Asked,
    /// Certificates, keys or roots have changed.
    Files,
    /// The configuration file or its directory has changed.
    Seen,
}

impl Life {
    async fn until_stopped(
        &mut self,
        signals: &mut Signals,
        drain: &Notify,
        stop: impl Future<Output = ()>,
    ) {
        let mut stop = std::pin::pin!(stop);
        let mut tick = ticker::every_second();
        let mut flush = tokio::time::interval(FLUSH);
        // A tick may not be needed for hours: missed ticks are skipped.
        flush.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = &mut stop => return,
                () = drain.notified() => return,
                _ = signals.terminate.recv() => return,
                _ = signals.interrupt.recv() => return,
                _ = signals.hangup.recv() => {
                    self.app.borrow().reopen_access_log();
                    service_manager::notify(State::Reloading);
                    self.reload(Why::Asked);
                    service_manager::notify(State::Ready);
                }
                _ = signals.user1.recv() => self.app.borrow().reopen_access_log(),
                () = changed(self.watch.as_mut()) => self.reload(Why::Seen),
                // Most proxies need neither, and wake-ups account for most of an idle proxy's CPU time.
                _ = flush.tick(), if self.app.borrow().is_to_be_flushed() => {
                    self.app.borrow().flush_access_log();
                    self.app.borrow().watch_memory();
                }
                _ = tick.tick() => {
                    self.app.borrow_mut().tick();
                    self.look();
                }
            }
        }
    }

    /// Reloads files that may have changed, and retries a failed reload.
    fn look(&mut self) {
        let (file, glance) = (self.file.as_deref(), self.glance.as_mut());
        let missed = file
            .zip(glance)
            .is_some_and(|(file, glance)| glance.missed(file));
        if self.files.changed() {
            tracing::info!("certificate files changed; reloading the configuration");
            self.reload(Why::Files);
        } else if missed {
            self.reload(Why::Seen);
        } else if self.pending.is_due(Instant::now()) {
            self.reload(Why::Again);
        }
    }

    /// Reloads the configuration file; on an error the current configuration stays.
    fn reload(&mut self, why: Why) {
        let Some(file) = &self.file else { return };
        if let Some(glance) = &mut self.glance {
            glance.read(file);
        }
        // Before the file is read: a change during the read causes another reload.
        let text = text_of(file);
        if why == Why::Seen && self.last_read.is_in_force(text) {
            return;
        }
        let files_changed = matches!(why, Why::Asked | Why::Files) || self.pending.files();
        let result = self.apply(file, files_changed, why);
        match result {
            Ok(Some(files)) => {
                count_reload(&self.app.borrow());
                self.files = files;
                self.last_read.applied(text);
                self.pending.settled();
                tracing::info!(file = %file.display(), "configuration applied");
            }
            Ok(None) => {
                self.last_read.applied(text);
                self.pending.settled();
                tracing::debug!("configuration unchanged");
            }
            Err(error) => self.refuse(text, &error, why, files_changed),
        }
    }

    /// Logs the error of a reload once, and schedules another attempt.
    fn refuse(&mut self, text: Text, error: &RunError, why: Why, files_changed: bool) {
        let Some(file) = &self.file else { return };
        self.pending
            .failed(files_changed, why == Why::Again, Instant::now());
        let known = self.last_read.refused(text, error.to_string());
        if matches!(why, Why::Again | Why::Seen) && known {
            return;
        }
        let app = self.app.borrow();
        app.shared().metrics.control.reloads_failed.add_shared(1);
        tracing::error!(
            file = %file.display(),
            "configuration rejected; keeping the last valid one:\n{error}"
        );
    }

    /// Applies the configuration file. Returns the state of the files that it names, taken before they were read, or
    /// `None` if nothing changed.
    fn apply(&self, file: &Path, files_changed: bool, why: Why) -> Result<Option<Files>, RunError> {
        let loaded = maglor_config::load(file)?;
        let mut app = self.app.borrow_mut();
        if !files_changed && app.is_of(&loaded) {
            return Ok(None);
        }
        // The previous attempt has already logged the warnings.
        if why != Why::Again {
            for warning in &loaded.warnings {
                tracing::warn!("{warning}");
            }
            warn_of_what_stays(app.config(), &loaded.config);
        }
        let files = Files::of(&loaded.config);
        app.apply(loaded, files_changed)?;
        Ok(Some(files))
    }

    /// Drains; a second signal ends the wait.
    async fn end(&mut self, signals: &mut Signals) {
        let limit = self.app.borrow().config().drain_timeout;
        let deadline = Instant::now() + limit;
        tracing::info!(timeout = ?limit, "draining");
        service_manager::notify(State::Stopping);
        if !self.drain_unless_interrupted(signals, deadline).await {
            tracing::warn!("drain incomplete; closing open connections");
        }
        self.stop().await;
        tracing::info!("stopped");
    }

    /// Stops the app, and sends the spans that still wait.
    async fn stop(&self) {
        let export = self.app.borrow_mut().stop();
        if let Some(export) = export {
            export.finish().await;
        }
    }

    /// Drains until the deadline or a signal; returns whether all connections have ended.
    async fn drain_unless_interrupted(&self, signals: &mut Signals, deadline: Instant) -> bool {
        tokio::select! {
            whole = self.drain(deadline) => whole,
            _ = signals.terminate.recv() => false,
            _ = signals.interrupt.recv() => false,
        }
    }
}

impl Life {
    /// Drains all listeners except outbound ones, then the outbound ones; returns whether all connections have ended
    /// by the deadline.
    async fn drain(&self, deadline: Instant) -> bool {
        if self.app.borrow().has_outbound() {
            self.app.borrow_mut().drain_all_but_outbound();
            self.application_ended(deadline).await;
            tracing::info!("draining outbound listeners");
        }
        let receivers = self.app.borrow_mut().drain();
        all_drained(receivers, deadline - Instant::now()).await
    }

    /// Waits until no client is connected, and for at least the grace period. The proxy is not notified when the
    /// application ends, but the application's connections end with it.
    async fn application_ended(&self, deadline: Instant) {
        let (limit, grace) = {
            let app = self.app.borrow();
            (app.config().drain_timeout, app.config().outbound_grace)
        };
        let grace = Instant::now() + grace;
        // Clients that are still connected at this time are asked to disconnect.
        let deadline = deadline - (limit / 4).min(LAST_CALL);
        let mut look = tokio::time::interval(LOOK);
        loop {
            let now = look.tick().await;
            self.app.borrow().flush_access_log();
            let ended = now >= grace && self.app.borrow().is_quiet();
            if ended || now >= deadline {
                return;
            }
        }
    }
}

/// Warns about changed settings that need a restart: the number of threads and the admin port.
fn warn_of_what_stays(now: &Config, wanted: &Config) {
    let admin = |config: &Config| {
        config
            .admin
            .as_ref()
            .map(|admin| (admin.address, admin.opened))
    };
    let stays = [
        (now.workers != wanted.workers, "the new number of workers"),
        (
            is_enrolled(now) != is_enrolled(wanted),
            "the new source of the identity",
        ),
        (
            now.control_plane != wanted.control_plane,
            "the new control plane",
        ),
        (
            admin(now) != admin(wanted),
            "the new address or access of the admin port",
        ),
        (
            now.log_level != wanted.log_level,
            "the new log level (which the admin port can set without a restart)",
        ),
    ];
    for (_, what) in stays.iter().filter(|(differs, _)| *differs) {
        tracing::warn!("{what} takes effect only after a restart");
    }
}

fn is_enrolled(config: &Config) -> bool {
    matches!(
        config.identity,
        Some(maglor_config::Identity::ControlPlane(_))
    )
}

async fn changed(watch: Option<&mut Watch>) {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}

fn count_reload(app: &App) {
    let control = &app.shared().metrics.control;
    control.reloads.add_shared(1);
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = since.unwrap_or_default().as_secs();
    let time = i64::try_from(seconds).unwrap_or(i64::MAX);
    control.reload_time.set(time);
}
