//! `maglor tap`: streams the finished requests of proxies.

use std::process::ExitCode;
use std::time::Duration;

use maglor_config::raw::TimeSpan;
use maglor_telemetry::command_line::output;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use super::LiveError;
use super::access::{Instance, Pods, Target, Where};
use super::csv;
use super::served::short;
use super::table::{Format, serialized};

const EXAMPLES: &str = "\
Examples:
  Inbound and outbound requests of a workload:
    maglor tap deploy/productpage-v1
  The next ten failed calls to /reviews, in all namespaces:
    maglor tap -A --path /reviews --status 5xx --direction inbound --max 10
  Requests of one service account, as JSON:
    maglor tap reviews-v1 --peer ns/shop/sa/productpage -o json
  Without Kubernetes:
    maglor tap --proxy 127.0.0.1:15020

A proxy shows at most --rate requests per second, and the number of dropped ones. Requests are shown
when they have ended, without bodies, and without headers other than the host.";

/// The fields of a request that are columns of CSV. Further fields, from proxies of other versions, are included in
/// JSON only.
const CSV: [&str; 24] = [
    "time",
    "pod",
    "listener",
    "direction",
    "client",
    "peer",
    "method",
    "host",
    "target",
    "protocol",
    "user_agent",
    "referer",
    "forwarded_for",
    "request_id",
    "status",
    "flag",
    "response_bytes",
    "duration_ms",
    "response_ms",
    "cluster",
    "upstream",
    "tries",
    "error",
    "missed",
];

/// Capacity of the queue of lines to print, for all proxies together.
const WAITING: usize = 1024;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Pod or workload [default: all pods of the namespace].
    #[arg(value_name = "POD|WORKLOAD")]
    target: Option<Target>,

    /// Only requests with this method.
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,

    /// Only requests whose path starts with this.
    #[arg(long, value_name = "PREFIX")]
    path: Option<String>,

    /// Only requests with this status or status class.
    #[arg(long, value_name = "503|5xx")]
    status: Option<String>,

    /// Only requests of clients whose SPIFFE ID contains this.
    #[arg(long, value_name = "PART")]
    peer: Option<String>,

    /// Only inbound or only outbound requests.
    #[arg(long, value_parser = ["inbound", "outbound"])]
    direction: Option<String>,

    /// Maximum requests per second and proxy.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,

    /// Exit after this many requests.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max: Option<u64>,

    /// Exit after this time.
    #[arg(long = "for", value_name = "TIME")]
    length: Option<TimeSpan>,

    /// Output format; JSON is one object per line, YAML one document per request.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    pods: Pods,

    #[command(flatten)]
    place: Where,
}

/// A request, with the fields of a table row.
#[derive(Debug, Deserialize, Serialize)]
struct Request {
    time: String,
    direction: String,
    client: String,
    peer: Option<String>,
    method: String,
    target: String,
    host: Option<String>,
    status: u16,
    flag: String,
    duration_ms: f64,
    upstream: Option<String>,
    #[serde(rename = "tries")]
    attempts: u32,
    error: Option<String>,
    request_id: Option<String>,
    /// Number of requests dropped before this one.
    missed: Option<u64>,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    super::run(async {
        let (lines, mut received) = mpsc::channel(WAITING);
        let proxies = options
            .place
            .proxies(&options.pods, options.target.as_ref())
            .await?;
        let query = query(options);
        for proxy in &proxies {
            // Connected before the first line is printed, because an error in the filters is the same for all
            // proxies.
            let page = proxy.admin.lines(&query).await?;
            tokio::spawn(follow(proxy.clone(), page, lines.clone()));
        }
        drop(lines);
        if options.output == Format::Csv {
            output::print(&csv::record(CSV.map(str::to_owned)));
        }
        if options.output.is_table() {
            eprintln!("{} proxies; press Ctrl-C to stop", proxies.len());
        }
        let print = async {
            let mut count = 0;
            while let Some(line) = received.recv().await {
                line?.print(options.output);
                count += 1;
                if output::has_ended() || options.max.is_some_and(|max| count >= max) {
                    break;
                }
            }
            Ok(())
        };
        let length = options.length.map_or(Duration::MAX, |length| length.0);
        tokio::select! {
            done = print => done,
            // Durations beyond those that a timer supports are not limited.
            () = tokio::time::sleep(length.min(Duration::from_secs(1 << 32))) => Ok(()),
            _ = tokio::signal::ctrl_c() => Ok(()),
        }
    })
}

/// Returns the path of the admin page with the filters.
fn query(options: &Options) -> String {
    let mut query = format!("/tap?rate={}", options.rate);
    let filters = [
        ("direction", &options.direction),
        ("method", &options.method),
        ("path", &options.path),
        ("peer", &options.peer),
        ("status", &options.status),
    ];
    for (name, value) in filters {
        let Some(value) = value else { continue };
        query.push_str(&format!("&{name}={}", escaped(value)));
    }
    query
}

/// Escapes a value for a query (RFC 3986, section 3.4).
fn escaped(value: &str) -> String {
    let sign = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    value.bytes().map(sign).collect()
}

type Received = Result<Line, LiveError>;

/// A finished request of a proxy.
struct Line {
    pod: String,
    value: Value,
}

async fn follow(proxy: Instance, mut page: super::access::Lines, lines: mpsc::Sender<Received>) {
    loop {
        let received = match page.next().await {
            Ok(Some(line)) => match serde_json::from_slice(&line) {
                Ok(value) => Ok(Line {
                    pod: proxy.name.clone(),
                    value,
                }),
                Err(source) => Err(LiveError::Answer {
                    whom: proxy.name.clone(),
                    path: "/tap".to_owned(),
                    source,
                }),
            },
            // One of several pods has terminated; the others continue.
            Ok(None) | Err(_) => {
                eprintln!("{}: stream ended", proxy.name);
                return;
            }
        };
        if lines.send(received).await.is_err() {
            return;
        }
    }
}

impl Line {
    fn print(mut self, format: Format) {
        let text = match format {
            Format::Csv | Format::Json | Format::Yaml => {
                self.value["pod"] = self.pod.into();
                match format {
                    Format::Csv => csv::record(CSV.map(|name| csv::field(self.value.get(name)))),
                    Format::Yaml => format!("---\n{}", serialized(&self.value, format)),
                    _ => format!("{}\n", self.value),
                }
            }
            Format::Table | Format::Wide => match serde_json::from_value(self.value) {
                Ok(request) => text(&self.pod, &request, format == Format::Wide),
                Err(error) => format!("{}: {error}\n", self.pod),
            },
        };
        output::print(&text);
    }
}

/// Formats a line such as `18:01:02.123 web-0 in GET cart/api 200 3.1 ms ns/shop/sa/web → 10.1.0.1:80`.
fn text(pod: &str, request: &Request, wide: bool) -> String {
    let clock = request.time.split('T').nth(1).unwrap_or(&request.time);
    let direction = match request.direction.as_str() {
        "inbound" => "in ",
        "outbound" => "out",
        _ => "-  ",
    };
    // A workload of the mesh is shown by its namespace and service account.
    let peer = request.peer.as_deref().map(|peer| {
        let path = peer
            .strip_prefix("spiffe://")
            .and_then(|rest| rest.split_once('/'));
        path.map_or(peer, |(_, path)| path).to_owned()
    });
    let mut text = format!(
        "{} {pod} {direction} {} {}{} {} {:.1} ms {} → {}",
        clock.trim_end_matches('Z'),
        request.method,
        short(request.host.as_deref().unwrap_or_default()),
        request.target,
        request.status,
        request.duration_ms,
        peer.unwrap_or_else(|| request.client.clone()),
        request.upstream.as_deref().unwrap_or("-"),
    );
    if request.flag != "-" {
        text.push_str(&format!(" {}", request.flag));
    }
    if request.attempts > 1 {
        text.push_str(&format!(" tries={}", request.attempts));
    }
    if wide {
        let id = request.request_id.as_deref().unwrap_or("-");
        text.push_str(&format!(" client={} id={id}", request.client));
    }
    if let Some(error) = &request.error {
        text.push_str(&format!(" ({error})"));
    }
    if let Some(missed) = request.missed {
        text.push_str(&format!(" [{missed} dropped before]"));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_escaped() {
        assert_eq!(escaped("/a b&c=ü"), "/a%20b%26c%3D%C3%BC");
    }

    #[test]
    fn a_request_is_a_line() {
        let request: Request = serde_json::from_str(
            r#"{"time": "2026-11-21T18:01:02.123Z", "listener": "inbound", "direction": "inbound",
            "client": "10.1.0.9:4000", "peer": "spiffe://cluster.local/ns/shop/sa/web", "method": "GET",
            "target": "/api?x=1", "protocol": "HTTP/1.1", "host": "cart.shop.svc.cluster.local",
            "user_agent": null, "request_id": null, "status": 503, "flag": "UF", "response_bytes": 0,
            "duration_ms": 3.14, "cluster": "cart", "upstream": "127.0.0.1:80", "tries": 2,
            "error": "refused", "missed": 4}"#,
        )
        .unwrap();
        assert_eq!(
            text("cart-0", &request, false),
            "18:01:02.123 cart-0 in  GET cart.shop/api?x=1 503 3.1 ms ns/shop/sa/web → 127.0.0.1:80 UF \
             tries=2 (refused) [4 dropped before]\n"
        );
    }
}
