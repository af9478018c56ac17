//! Logs: `tracing` events on standard error, with a level that can change at run time.
//!
//! A filter is a list of directives, separated by commas. A directive is a level (`off`, `error`, `warn`, `info`,
//! `debug`, `trace`), which applies to all events, or `TARGET=LEVEL`, which applies to a module and those below it. The
//! longest matching target wins: `info,maglor_proxy::http=trace`.
//!
//! The filter is a table of prefixes, not `EnvFilter`, so that the binary has no regular expressions, and a disabled
//! event costs one load.

use std::io;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

/// The format of log lines; both formats have one line per event.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Format {
    /// A JSON object with `timestamp`, `level`, `target`, and the fields of the event at the same level.
    Json,
    /// Human-readable text.
    #[default]
    Text,
}

/// An error of setting up or changing the logger.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LogError {
    /// The process already has a logger.
    #[error("logging is already initialized in this process")]
    AlreadySet,
    /// A directive of the filter is invalid; the previous filter stays in use.
    #[error("log filter: `{directive}`: {reason}")]
    Directive {
        /// The directive as written.
        directive: String,
        /// The reason why the directive is invalid.
        reason: &'static str,
    },
    /// The filter contains no directive.
    #[error("log filter: empty, expected for example `info` or `info,maglor_proxy=debug`")]
    Empty,
    /// There is no format with this name.
    #[error("log format `{0}`: expected `text` or `json`")]
    Format(String),
    /// The subscriber that the handle belongs to no longer exists.
    #[error("this logger was replaced")]
    Gone,
}

impl FromStr for Format {
    type Err = LogError;

    fn from_str(name: &str) -> Result<Self, LogError> {
        match name {
            "json" => Ok(Self::Json),
            "text" => Ok(Self::Text),
            _ => Err(LogError::Format(name.to_owned())),
        }
    }
}

/// A handle that changes the filter at run time. Clones refer to the same logger.
#[derive(Clone, Debug)]
pub struct LogHandle {
    filter: reload::Handle<Targets, Registry>,
    /// The present filter, as written.
    directives: Arc<Mutex<String>>,
}

impl LogHandle {
    /// Replaces the filter. After an error, the previous filter stays in use.
    ///
    /// # Errors
    ///
    /// [`LogError`] if a directive cannot be parsed, or the subscriber no longer exists.
    pub fn set(&self, directives: &str) -> Result<(), LogError> {
        let targets = parse(directives)?;
        let mut current = self
            .directives
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.filter.reload(targets).map_err(|_| LogError::Gone)?;
        directives.clone_into(&mut current);
        Ok(())
    }

    /// Returns the present filter, as written.
    #[must_use]
    pub fn directives(&self) -> String {
        self.directives
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Sets up the logger of the process, which filters events by `directives` and writes to standard error.
///
/// # Errors
///
/// [`LogError`] if a directive cannot be parsed, or the process already has a logger.
pub fn init(directives: &str, format: Format) -> Result<LogHandle, LogError> {
    let (subscriber, handle) = subscriber(directives, format, io::stderr)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::AlreadySet)?;
    Ok(handle)
}

/// Creates a logger with another destination without installing it: for tests.
///
/// ```
/// use maglor_telemetry::logs::{Format, subscriber};
///
/// let (subscriber, handle) = subscriber("info", Format::Text, std::io::sink)?;
/// tracing::subscriber::with_default(subscriber, || {
///     tracing::debug!("not seen");
///     handle.set("warn,maglor_proxy::http=trace").map(|()| handle.directives())
/// })?;
/// let error = handle.set("inof").unwrap_err();
/// assert!(error.to_string().contains("`inof`"));
/// # Ok::<(), maglor_telemetry::logs::LogError>(())
/// ```
///
/// # Errors
///
/// [`LogError`] if a directive cannot be parsed.
pub fn subscriber<W>(
    directives: &str,
    format: Format,
    writer: W,
) -> Result<(impl Subscriber + Send + Sync + use<W>, LogHandle), LogError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let (filter, reload) = reload::Layer::new(parse(directives)?);
    let layer = fmt::layer()
        .with_writer(writer)
        .with_ansi(false)
        // A closed standard error must not stop the process.
        .log_internal_errors(false);
    let layer = match format {
        Format::Json => layer
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .boxed(),
        Format::Text => layer.boxed(),
    };
    let handle = LogHandle {
        filter: reload,
        directives: Arc::new(Mutex::new(directives.to_owned())),
    };
    Ok((Registry::default().with(filter).with(layer), handle))
}

fn parse(directives: &str) -> Result<Targets, LogError> {
    let mut targets = Targets::new();
    let mut any = false;
    let parts = directives.split(',').map(str::trim);
    for directive in parts.filter(|part| !part.is_empty()) {
        let wrong = |reason| LogError::Directive {
            directive: directive.to_owned(),
            reason,
        };
        any = true;
        targets = match directive.split_once('=') {
            Some((target, level)) => {
                let target = target.trim();
                if !is_target(target) {
                    return Err(wrong("expected a module path before `=`"));
                }
                let level = parse_level(level.trim()).ok_or_else(|| {
                    wrong("expected off, error, warn, info, debug or trace after `=`")
                })?;
                targets.with_target(target, level)
            }
            None => targets.with_default(parse_level(directive).ok_or_else(|| {
                wrong("expected off, error, warn, info, debug, trace or TARGET=LEVEL")
            })?),
        };
    }
    if any {
        Ok(targets)
    } else {
        Err(LogError::Empty)
    }
}

fn parse_level(name: &str) -> Option<LevelFilter> {
    const LEVELS: [(&str, LevelFilter); 6] = [
        ("off", LevelFilter::OFF),
        ("error", LevelFilter::ERROR),
        ("warn", LevelFilter::WARN),
        ("info", LevelFilter::INFO),
        ("debug", LevelFilter::DEBUG),
        ("trace", LevelFilter::TRACE),
    ];
    LEVELS
        .iter()
        .find(|(level, _)| level.eq_ignore_ascii_case(name))
        .map(|&(_, filter)| filter)
}

fn is_target(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '-' | '.');
    !name.is_empty() && name.chars().all(is_part)
}

#[cfg(test)]
mod tests;
