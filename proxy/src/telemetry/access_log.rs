//! The access log: one line per request, buffered by the data path and written periodically by the control thread.

mod line;

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use http::{Method, StatusCode, Version};
use maglor_balance::guard::GrpcStatus;
use maglor_config::listener::TrafficDirection;
use maglor_config::{AccessLog as Settings, AccessLogField, AccessLogFormat, AccessLogKey};
use maglor_identity::SpiffeId;
use maglor_telemetry::trace_context::TraceId;
use serde_json::Value;
use tokio::time::Instant;

use crate::net::client_address::ClientAddress;
use crate::protocol::error::ProxyError;
use crate::protocol::fields::{Key, Known};
use crate::protocol::message::Request;
use crate::telemetry::traces::{RequestTrace, Served, Traced};
use maglor_config::Address;

/// Number of buffered bytes above which lines are dropped and counted.
const MAX_WAITING: usize = 4 * 1024 * 1024;

/// Logged properties of a request that are known before its response.
#[derive(Debug)]
pub(crate) struct Entry {
    listener: Arc<str>,
    direction: TrafficDirection,
    client: ClientAddress,
    /// Authenticated identity of the client; `None` if there is none.
    peer: Option<SpiffeId>,
    method: Method,
    target: Vec<u8>,
    version: Version,
    host: Option<Vec<u8>>,
    user_agent: Option<Vec<u8>>,
    referer: Option<Vec<u8>>,
    /// `x-forwarded-for` as the client sent it.
    forwarded_for: Option<Vec<u8>>,
    request_id: Option<Vec<u8>>,
    upstream: Option<(Address, Arc<str>)>,
    /// Number of attempts; 0 if the request was not forwarded.
    attempts: u32,
    /// Time until the response's head; `None` if there was no response.
    responded: Option<Duration>,
    error: Option<String>,
    /// The trace of the request, with tracing.
    traced: Option<Traced>,
}

impl Entry {
    pub(crate) fn new(
        request: &Request,
        (listener, direction): (&Arc<str>, TrafficDirection),
        client: ClientAddress,
        peer: Option<&SpiffeId>,
    ) -> Box<Self> {
        let field = |name| request.fields.get(name).map(<[u8]>::to_vec);
        Box::new(Self {
            listener: Arc::clone(listener),
            direction,
            client,
            peer: peer.cloned(),
            method: request.method.clone(),
            target: request.path_and_query().to_vec(),
            version: request.version,
            host: request.host().map(<[u8]>::to_vec),
            user_agent: field(Known::UserAgent),
            referer: request.fields.get(Key::new(b"referer")).map(<[u8]>::to_vec),
            forwarded_for: field(Known::XForwardedFor),
            request_id: field(Known::XRequestId),
            upstream: None,
            attempts: 0,
            responded: None,
            error: None,
            traced: None,
        })
    }

    /// Creates the entry of a request that could not be parsed.
    pub(crate) fn unread(
        version: Version,
        (listener, direction): (&Arc<str>, TrafficDirection),
        client: ClientAddress,
        peer: Option<&SpiffeId>,
    ) -> Self {
        Self {
            listener: Arc::clone(listener),
            direction,
            client,
            peer: peer.cloned(),
            method: Method::from_bytes(b"-").unwrap_or_default(),
            target: b"-".to_vec(),
            version,
            host: None,
            user_agent: None,
            referer: None,
            forwarded_for: None,
            request_id: None,
            upstream: None,
            attempts: 0,
            responded: None,
            error: None,
            traced: None,
        }
    }

    /// Sets the trace of the request; `None` = it has none.
    pub(crate) fn set_trace(&mut self, traced: Option<Traced>) {
        self.traced = traced;
    }

    pub(crate) fn trace(&self) -> Option<&Rc<RequestTrace>> {
        self.traced.as_ref().map(Traced::trace)
    }

    /// Ends the trace of the request, if it has one. Returns its identifier if it is exported.
    pub(crate) fn end_trace(
        &self,
        ended: Ended<'_>,
        now: Instant,
        shard: usize,
    ) -> Option<TraceId> {
        let traced = self.traced.as_ref()?;
        traced.end(&self.served(ended), now, shard)
    }

    /// Returns the request in the terms of its span.
    fn served<'a>(&'a self, ended: Ended<'a>) -> Served<'a> {
        Served {
            listener: &self.listener,
            direction: direction_name(self.direction),
            client: self.client,
            peer: self.peer.as_ref(),
            method: &self.method,
            target: &self.target,
            version: self.version,
            host: self.host.as_deref(),
            user_agent: self.user_agent.as_deref(),
            request_id: self.request_id.as_deref(),
            status: ended.status,
            flag: ended.flag,
            response_bytes: ended.response_bytes,
            took: ended.took,
        }
    }

    /// Sets the identifier that the proxy has assigned to the request.
    pub(crate) fn request_id(&mut self, request: &Request) {
        self.request_id = request.fields.get(Known::XRequestId).map(<[u8]>::to_vec);
    }

    pub(crate) fn upstream(&mut self, address: &Address, cluster: &Arc<str>, attempts: u32) {
        self.upstream = Some((address.clone(), Arc::clone(cluster)));
        self.attempts = attempts;
    }

    /// Sets the time until the response's head.
    pub(crate) fn responded(&mut self, after: Duration) {
        self.responded = Some(after);
    }

    pub(crate) fn error(&mut self, error: &ProxyError) {
        self.error = Some(error.to_string());
        if let Some(trace) = self.trace() {
            trace.fail(GrpcStatus::new(error.verdict().grpc.into()));
        }
    }

    /// Returns the identifier of the trace, with tracing.
    fn trace_id(&self) -> Option<String> {
        self.trace().map(|trace| trace.id().to_string())
    }

    pub(crate) fn direction(&self) -> TrafficDirection {
        self.direction
    }

    pub(crate) fn method(&self) -> &Method {
        &self.method
    }

    /// Returns the authenticated identity of the client; `None` if there is none.
    pub(crate) fn peer(&self) -> Option<&str> {
        self.peer.as_ref().map(SpiffeId::as_str)
    }

    /// Returns the path and query as the client sent them.
    pub(crate) fn target(&self) -> &[u8] {
        &self.target
    }

    /// Returns the request as a JSON object, as used by taps.
    pub(crate) fn describe(&self, ended: Ended<'_>) -> Value {
        let text = |value: &Option<Vec<u8>>| {
            value
                .as_ref()
                .map(|value| String::from_utf8_lossy(value).into_owned())
        };
        let (upstream, cluster) = self
            .upstream
            .as_ref()
            .map_or((None, None), |(address, cluster)| {
                (Some(address.to_string()), Some(cluster.as_ref()))
            });
        serde_json::json!({
            "time": timestamp().to_string(),
            "listener": &*self.listener,
            "direction": direction_name(self.direction),
            "client": self.client.to_string(),
            "peer": self.peer(),
            "method": self.method.as_str(),
            "target": String::from_utf8_lossy(&self.target),
            "protocol": format!("{:?}", self.version),
            "host": text(&self.host),
            "user_agent": text(&self.user_agent),
            "referer": text(&self.referer),
            "forwarded_for": text(&self.forwarded_for),
            "request_id": text(&self.request_id),
            "trace_id": self.trace_id(),
            "status": ended.status.as_u16(),
            "flag": ended.flag,
            "response_bytes": ended.response_bytes,
            "duration_ms": millis(ended.took),
            "response_ms": self.responded.map(millis),
            "cluster": cluster,
            "upstream": upstream,
            "tries": self.attempts,
            "error": self.error,
        })
    }
}

/// Returns the name of a traffic direction in the configuration.
pub(crate) fn direction_name(direction: TrafficDirection) -> &'static str {
    match direction {
        TrafficDirection::Inbound => "inbound",
        TrafficDirection::Outbound => "outbound",
        TrafficDirection::Unspecified => "unspecified",
    }
}

/// Properties of a request that are known when the response has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended<'a> {
    pub(crate) status: StatusCode,
    pub(crate) flag: &'a str,
    pub(crate) response_bytes: u64,
    pub(crate) took: Duration,
}

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
    pub(crate) fn write(&self, entry: &Entry, ended: Ended<'_>) {
        let mut waiting = lock(&self.waiting);
        if waiting.lines.len() > MAX_WAITING {
            waiting.dropped += 1;
            return;
        }
        let out = &mut waiting.lines;
        match &self.settings.format {
            AccessLogFormat::Fields(keys) => line::json(out, keys, entry, ended),
            AccessLogFormat::Json => line::json(out, &self.all, entry, ended),
            AccessLogFormat::Template(parts) => line::template(out, parts, entry, ended),
            AccessLogFormat::Text => text_line(out, entry, ended),
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

/// Returns the error if lines cannot be appended. A missing file is created for the check and removed again.
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

fn text_line(out: &mut Vec<u8>, entry: &Entry, ended: Ended<'_>) {
    let upstream = entry
        .upstream
        .as_ref()
        .map(|(address, _)| address.to_string());
    let _ = writeln!(
        out,
        "{} {} \"{} {} {:?}\" {} {} {} {:.3} {} {} {} {}",
        timestamp(),
        entry.client,
        entry.method,
        entry.target.escape_ascii(),
        entry.version,
        ended.status.as_u16(),
        ended.flag,
        ended.response_bytes,
        millis(ended.took),
        upstream.as_deref().unwrap_or("-"),
        quoted(entry.host.as_deref()),
        quoted(entry.request_id.as_deref()),
        entry.peer.as_ref().map_or("-", SpiffeId::as_str),
    );
}

/// Quotes a value and escapes everything that could end the quotation or the line.
fn quoted(value: Option<&[u8]>) -> String {
    value.map_or_else(
        || "-".to_owned(),
        |value| format!("\"{}\"", value.escape_ascii()),
    )
}

fn millis(took: Duration) -> f64 {
    (took.as_secs_f64() * 1e6).round() / 1e3
}

/// Formats the current time in UTC by RFC 3339, with milliseconds.
fn timestamp() -> impl std::fmt::Display {
    humantime::format_rfc3339_millis(SystemTime::now())
}

#[cfg(test)]
impl Entry {
    /// A call to another service by a member of the mesh.
    pub(crate) fn example(method: &str, target: &str) -> Self {
        Self {
            listener: "outbound".into(),
            direction: TrafficDirection::Outbound,
            client: std::net::SocketAddr::from(([10, 0, 0, 1], 4321)).into(),
            peer: Some("spiffe://mesh.example/ns/shop/sa/web".parse().unwrap()),
            method: method.parse().unwrap(),
            target: target.into(),
            version: Version::HTTP_11,
            host: Some(b"cart".to_vec()),
            user_agent: None,
            referer: None,
            forwarded_for: None,
            request_id: None,
            upstream: None,
            attempts: 0,
            responded: None,
            error: None,
            traced: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use maglor_config::AccessLogPart;

    use super::*;

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_logged_once() {
        let settings = Settings {
            path: "/dev/full".into(),
            format: AccessLogFormat::Text,
        };
        let log = AccessLog::open(&settings).unwrap();
        let write = || {
            let ended = Ended {
                status: StatusCode::OK,
                flag: "-",
                response_bytes: 2,
                took: Duration::from_millis(1),
            };
            log.write(&Entry::example("GET", "/"), ended);
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
        let ended = Ended {
            status: StatusCode::OK,
            flag: "-",
            response_bytes: 2,
            took: Duration::from_millis(1),
        };
        log.write(&Entry::example("GET", "/a\nb"), ended);
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
        let source = include_str!("../protocol/error.rs");
        let (source, _) = source.split_once("#[cfg(test)]").unwrap_or((source, ""));
        let flags = source.split('"').skip(1).step_by(2);
        let is_flag = |text: &&str| {
            (2..=4).contains(&text.len()) && text.chars().all(|c| c.is_ascii_uppercase())
        };
        let mut flags: Vec<_> = flags.filter(is_flag).collect();
        flags.push("-");
        flags.sort_unstable();
        flags.dedup();
        let mut known = documented("flags");
        known.sort_unstable();
        assert_eq!(known, flags);
    }

    /// Lines are written field by field, but must equal the JSON object that taps get.
    #[test]
    fn lines_of_json_are_the_described_request() {
        let mut entry = Entry::example("GET", "/\"\\\u{1}\u{7f}ü");
        entry.user_agent = Some(b"a\xff\tb\r\xc3".to_vec());
        entry.referer = Some(b"https://shop.example/".to_vec());
        entry.responded(Duration::from_micros(700));
        entry.error = Some("refused".to_owned());
        entry.attempts = 2;
        let ended = Ended {
            status: StatusCode::BAD_GATEWAY,
            flag: "UC",
            response_bytes: 1 << 40,
            took: Duration::from_micros(1500),
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let log = AccessLog::open(&Settings {
            path: path.clone(),
            format: AccessLogFormat::Json,
        });
        let log = log.unwrap();
        log.write(&entry, ended);
        log.flush();
        let text = std::fs::read_to_string(path).unwrap();
        let mut read: Value = serde_json::from_str(&text).unwrap();
        let mut described = entry.describe(ended);
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
