//! The command line of `maglor-lab load`.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use maglor_testkit::load_generator::http::{Call, Protocol};

use super::arrivals::Intervals;
use super::tls::{self, Tls};
use crate::commands::format::Format;

/// The name of a protocol.
#[derive(Debug, Clone, Copy, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum ProtocolName {
    /// Unary calls of gRPC.
    Grpc,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, without TLS by prior knowledge.
    Http2,
}

/// A header of requests, `NAME: VALUE`.
#[derive(Debug, Clone)]
pub(crate) struct Header(HeaderName, HeaderValue);

impl std::str::FromStr for Header {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected NAME: VALUE, found {text:?}");
        let (name, value) = text.split_once(':').ok_or_else(wrong)?;
        let name = name.trim().parse().map_err(|_| wrong())?;
        let value = value.trim().parse().map_err(|_| wrong())?;
        Ok(Self(name, value))
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = super::EXAMPLES)]
pub(crate) struct Options {
    /// URL of the requests: http://HOST:PORT/PATH, with gRPC http://HOST:PORT/PACKAGE.SERVICE/METHOD; https:// for TLS.
    #[arg(value_name = "URL")]
    pub(crate) url: Uri,

    /// Number of users, each of which has one connection and one request at a time.
    #[arg(long, value_name = "N", default_value_t = 10, conflicts_with = "rate",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) users: u32,

    /// Pause of a user between a response and its next request, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 0, conflicts_with = "rate",
          value_parser = clap::value_parser!(u64).range(0..=3_600_000))]
    pub(crate) think_ms: u64,

    /// Requests per second of an open loop, instead of users.
    #[arg(long, value_name = "R", value_parser = rate)]
    pub(crate) rate: Option<f64>,

    /// Intervals between the requests of --rate.
    #[arg(
        long,
        value_name = "KIND",
        value_enum,
        default_value = "constant",
        requires = "rate"
    )]
    pub(crate) arrivals: Intervals,

    /// Connections that the requests of --rate use in turn, each with one request at a time.
    #[arg(long, value_name = "N", default_value_t = 64, requires = "rate",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) connections: u32,

    /// Seconds in which all users start, or in which the rate grows to --rate. They are not measured.
    #[arg(long, value_name = "S", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub(crate) ramp_s: u64,

    /// Measured seconds, after the ramp.
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) duration_s: u64,

    /// Protocol of the requests.
    #[arg(long, value_name = "NAME", value_enum, default_value = "http1")]
    pub(crate) protocol: ProtocolName,

    /// Method of the requests; gRPC always uses POST.
    #[arg(long, value_name = "NAME", default_value = "GET")]
    pub(crate) method: Method,

    /// Header of the requests; may be repeated.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<Header>,

    /// File with the body of the requests; with gRPC, the encoded message.
    #[arg(long, value_name = "PATH")]
    pub(crate) body: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) tls: Tls,

    /// Time limit of a request, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub(crate) timeout_ms: u64,

    /// Seed of random intervals.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Directory for seconds.csv, latency.svg and rate.svg; created if it does not exist.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Output format.
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        value_enum,
        default_value = "table"
    )]
    pub(crate) output: Format,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "expected a number".to_owned())?;
    match (0.001..=1_000_000.0).contains(&rate) {
        true => Ok(rate),
        false => Err("expected 0.001 to 1000000 requests per second".into()),
    }
}

impl Options {
    pub(super) fn ramp(&self) -> Duration {
        Duration::from_secs(self.ramp_s)
    }

    pub(super) fn think(&self) -> Duration {
        Duration::from_millis(self.think_ms)
    }

    /// The whole run.
    pub(super) fn length(&self) -> Duration {
        self.ramp() + Duration::from_secs(self.duration_s)
    }

    /// The request.
    pub(super) fn call(&self) -> Result<Call, String> {
        let mut headers = HeaderMap::new();
        for Header(name, value) in &self.headers {
            headers.append(name, value.clone());
        }
        let body = match &self.body {
            Some(path) => tls::read("--body", path)?,
            None => Vec::new(),
        };
        let protocol = match self.protocol {
            ProtocolName::Grpc => Protocol::Grpc,
            ProtocolName::Http1 => Protocol::Http1,
            ProtocolName::Http2 => Protocol::Http2,
        };
        let what = (self.method.clone(), self.url.clone());
        let timeout = Duration::from_millis(self.timeout_ms);
        let tls = self.tls.settings(&self.url)?;
        let call = Call::new(protocol, what, headers, body.into(), timeout, &tls);
        call.map_err(|error| format!("{}: {error}", self.url))
    }
}
