//! The access log: one line per request, buffered by the data path and written periodically by the control thread.

mod line;

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use maglor_config::{AccessLog as Settings, AccessLogField, AccessLogFormat, AccessLogKey};
use maglor_identity::SpiffeId;

use crate::telemetry::record::{Entry, millis, timestamp};

/// Number of buffered bytes above which lines are dropped and counted.
const MAX_WAITING: usize = 4 * 1024 * 1024;

/// A log and its buffered lines.
#[derive(Debug)]
pub(crate) struct AccessLog {
    settings: Settings,
    /// The keys of `format: json` if `fields` is not set.
    all: Vec<AccessLogKey>,
    waiting: Mutex<Waiting>,
    file: Mutex<File>,
    /// Whether the last write to the file failed.
    failing: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<u8>,
    dropped: u64,
}

impl AccessLog {
    /// Opens the log's file for appending.
    pub(crate) fn open(settings: &Settings) -> io::Result<Self> {
        let file = append(&settings.path)?;
        let settings = settings.clone();
        let all = AccessLogField::ALL.map(|field| AccessLogKey::new(field.name(), field));
        Ok(Self {
            settings,
            all: all.into(),
            waiting: Mutex::default(),
            file: Mutex::new(file),
            failing: AtomicBool::new(false),
        })
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Adds a line.
    pub(crate) fn write(&self, entry: &Entry<'_>) {
        let mut waiting = lock(&self.waiting);
        if waiting.lines.len() > MAX_WAITING {
            waiting.dropped += 1;
            return;
        }
        let out = &mut waiting.lines;
        match &self.settings.format {
            AccessLogFormat::Fields(keys) => line::json(out, keys, entry),
            AccessLogFormat::Json => line::json(out, &self.all, entry),
            AccessLogFormat::Template(parts) => line::template(out, parts, entry),
            AccessLogFormat::Text => text_line(out, entry),
        }
    }

    /// Writes the buffered lines. Returns the number of lines dropped since the last call, and the error of a failed
    /// write unless the previous write failed, too, so that a full disk is reported once.
    pub(crate) fn flush(&self) -> (u64, Option<io::Error>) {
        let Waiting { lines, dropped } = std::mem::take(&mut *lock(&self.waiting));
        if lines.is_empty() {
            return (dropped, None);
        }
        // Relaxed: only a single thread writes.
        match lock(&self.file).write_all(&lines) {
            Ok(()) => {
                self.failing.store(false, Ordering::Relaxed);
                (dropped, None)
            }
            Err(error) => {
                let lost = lines.iter().filter(|byte| **byte == b'\n').count();
                let known = self.failing.swap(true, Ordering::Relaxed);
                (dropped + lost as u64, (!known).then_some(error))
            }
        }
    }

    /// Reopens the file, after it was rotated.
    pub(crate) fn reopen(&self) -> io::Result<()> {
        *lock(&self.file) = append(&self.settings.path)?;
        Ok(())
    }
}

/// Returns the error if lines cannot be appentry. A missing file is created for the check and removed again.
pub(crate) fn unusable(path: &Path) -> Option<io::Error> {
    let existing = OpenOptions::new().append(true).open(path);
    let opened = match existing {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = OpenOptions::new().create_new(true).append(true).open(path);
            made.and_then(|_| std::fs::remove_file(path))
        }
        other => other.map(drop),
    };
    opened.err()
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Locks a mutex, even if it is poisoned: the data still consists of whole lines, since holders of the lock only
/// append.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn text_line(out: &mut Vec<u8>, entry: &Entry<'_>) {
    let upstream = entry.upstream.map(|(address, _)| address.to_string());
    let _ = writeln!(
        out,
        "{} {} \"{} {} {:?}\" {} {} {} {:.3} {} {} {} {}",
        timestamp(),
        entry.client,
        entry.method,
        entry.target.escape_ascii(),
        entry.version,
        entry.status.as_u16(),
        entry.flag,
        entry.response_bytes,
        millis(entry.took),
        upstream.as_deref().unwrap_or("-"),
        quoted(entry.host),
        quoted(entry.request_id),
        entry.peer.map_or("-", SpiffeId::as_str),
    );
}

/// Quotes a value and escapes everything that could end the quotation or the line.
fn quoted(value: Option<&[u8]>) -> String {
    value.map_or_else(
        || "-".to_owned(),
        |value| format!("\"{}\"", value.escape_ascii()),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;
    use maglor_config::AccessLogPart;
    use serde_json::Value;

    use super::*;
    use crate::protocol::response_flag::ResponseFlag;

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_logged_once() {
        let settings = Settings {
            path: "/dev/full".into(),
            format: AccessLogFormat::Text,
        };
        let log = AccessLog::open(&settings).unwrap();
        let write = || {
            log.write(&Entry::example("GET", "/"));
        };
        write();
        write();
        let (dropped, why) = log.flush();
        assert_eq!(dropped, 2);
        assert_eq!(why.unwrap().kind(), io::ErrorKind::StorageFull);
        write();
        assert!(matches!(log.flush(), (1, None)));
        assert!(matches!(log.flush(), (0, None)));
    }

    fn line(format: AccessLogFormat) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let log = AccessLog::open(&Settings {
            path: path.clone(),
            format,
        })
        .unwrap();
        log.write(&Entry::example("GET", "/a\nb"));
        log.flush();
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_line_has_the_fields_that_are_wanted() {
        let field = |name: &str| name.parse::<AccessLogField>().unwrap();
        let keys = [
            ("code", "status"),
            ("a \"key\"", "method"),
            ("upstream", "upstream"),
            ("to", "target"),
        ];
        let keys = keys.map(|(key, name)| AccessLogKey::new(key, field(name)));
        assert_eq!(
            line(AccessLogFormat::Fields(keys.to_vec())),
            "{\"code\":200,\"a \\\"key\\\"\":\"GET\",\"upstream\":null,\"to\":\"/a\\nb\"}\n"
        );
        let text = |text: &str| AccessLogPart::Text(text.to_owned());
        let parts = vec![
            AccessLogPart::Field(field("client")),
            text(" ["),
            AccessLogPart::Field(field("target")),
            text("] "),
            AccessLogPart::Field(field("upstream")),
        ];
        assert_eq!(
            line(AccessLogFormat::Template(parts)),
            "10.0.0.1:4321 [/a\\nb] -\n"
        );
    }

    /// Returns the first cell of each line of the table between two marks of the documentation.
    fn documented(mark: &str) -> Vec<&'static str> {
        let text = include_str!("../../../docs/access-log.md");
        let (_, rest) = text.split_once(&format!("<!-- {mark} -->")).unwrap();
        let (table, _) = rest.split_once("<!-- end -->").unwrap();
        let cells = table
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        cells.collect()
    }

    #[test]
    fn the_documentation_has_every_field_and_every_flag() {
        let line: Value = serde_json::from_str(&line(AccessLogFormat::Json)).unwrap();
        let mut keys: Vec<_> = line
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let mut fields = documented("fields");
        assert_eq!(fields, AccessLogField::NAMES);
        keys.sort_unstable();
        fields.sort_unstable();
        assert_eq!(keys, fields);
        let source = include_str!("../protocol/response_flag.rs");
        let mut flags: Vec<_> = source.split('"').skip(1).step_by(2).collect();
        flags.sort_unstable();
        let mut known = documented("flags");
        known.sort_unstable();
        assert_eq!(known, flags);
    }

    /// Lines are written field by field, but must equal the JSON object that taps get.
    #[test]
    fn lines_of_json_are_the_described_request() {
        let mut entry = Entry::example("GET", "/\"\\\u{1}\u{7f}ü");
        entry.user_agent = Some(b"a\xff\tb\r\xc3");
        entry.referer = Some(b"https://shop.example/");
        entry.responded = Some(Duration::from_micros(700));
        entry.error = Some("refused");
        entry.attempts = 2;
        entry.status = StatusCode::BAD_GATEWAY;
        entry.flag = ResponseFlag::UpstreamClosed;
        entry.response_bytes = 1 << 40;
        entry.took = Duration::from_micros(1500);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let log = AccessLog::open(&Settings {
            path: path.clone(),
            format: AccessLogFormat::Json,
        });
        let log = log.unwrap();
        log.write(&entry);
        log.flush();
        let text = std::fs::read_to_string(path).unwrap();
        let mut read: Value = serde_json::from_str(&text).unwrap();
        let mut described = entry.describe();
        // The two times are a moment apart.
        read["time"].take();
        described["time"].take();
        assert_eq!(read, described);
        assert!(
            text.starts_with("{\"time\":"),
            "in the order of the documentation: {text}"
        );
    }

    #[test]
    fn hostile_values_stay_inside_their_quotes() {
        assert_eq!(quoted(Some(b"a\" b\\\t\xff")), r#""a\" b\\\t\xff""#);
    }
}
