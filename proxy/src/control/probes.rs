//! `/probe/NAME`: the admin server probes the application.
//!
//! A kubelet has no certificate, so ports with strict mutual TLS reject its probes. The kubelet probes the admin
//! server instead, which probes the application over loopback. The configuration lists the probes.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use http::{HeaderMap, HeaderName, StatusCode, header};
use maglor_config::{Probe, Question};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::control::health::{grpc_question, is_serving};
use crate::net::io::Io;
use crate::upstream::grpc::Connection;

/// Timeout of a probe. A kubelet disconnects earlier, after its own timeout.
const LONGEST: Duration = Duration::from_secs(60);
/// The method of `grpc.health.v1`; its response has one field of one byte.
const CHECK: &str = "/grpc.health.v1.Health/Check";
const LONGEST_ANSWER: usize = 1024;
/// Length of `HTTP/1.1 200`.
const STATUS_LINE: usize = 12;
/// Fields that are not forwarded: hop-by-hop fields (RFC 9110, 7.6.1), and fields about a body.
const LEFT_OUT: [HeaderName; 6] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::HOST,
];

/// Probes the application. Returns the status of the admin server's response, and a line that describes the result.
pub(crate) async fn ask(probe: &Probe, fields: &HeaderMap) -> (StatusCode, String) {
    let asked = timeout(LONGEST, question(probe, fields));
    match asked.await.unwrap_or_else(|_| Err("no answer".into())) {
        Ok(status) => (status, format!("{probe}: {status}\n")),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{probe}: {why}\n")),
    }
}

async fn question(probe: &Probe, fields: &HeaderMap) -> Result<StatusCode, String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, probe.port.get()));
    let connected = TcpStream::connect(address).await;
    let stream = connected.map_err(|error| error.to_string())?;
    match &probe.question {
        Question::Grpc { service } => grpc(stream, address, service).await,
        Question::Http { path } => http(stream, address, path, fields).await,
        Question::Tcp => Ok(StatusCode::OK),
    }
}

/// Sends one request over a raw connection: only the status of the response matters.
async fn http(
    mut stream: TcpStream,
    address: SocketAddr,
    path: &str,
    fields: &HeaderMap,
) -> Result<StatusCode, String> {
    let mut head = format!("GET {path} HTTP/1.1\r\nconnection: close\r\nhost: ").into_bytes();
    head.extend_from_slice(&host(address, fields));
    for (name, value) in fields.iter().filter(|(name, _)| !LEFT_OUT.contains(name)) {
        head.extend_from_slice(b"\r\n");
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
    }
    head.extend_from_slice(b"\r\n\r\n");
    let failed = |error: std::io::Error| error.to_string();
    stream.write_all(&head).await.map_err(failed)?;
    let mut line = [0; STATUS_LINE];
    stream.read_exact(&mut line).await.map_err(failed)?;
    let status = line.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..));
    let status = status.and_then(|digits| StatusCode::from_bytes(digits).ok());
    status.ok_or_else(|| "the response is not HTTP".to_owned())
}

/// Returns the `host` field to send. A kubelet without a configured host sends the probed address, which is that of
/// the admin server; it is replaced by the application's address.
fn host(address: SocketAddr, fields: &HeaderMap) -> Vec<u8> {
    let given = fields.get(header::HOST);
    let of_pod = given.and_then(|value| value.to_str().ok()?.parse::<SocketAddr>().ok());
    match (given, of_pod) {
        (Some(given), None) => given.as_bytes().to_vec(),
        (_, of_pod) => {
            let ip = of_pod.map_or(address.ip(), |pod| pod.ip());
            SocketAddr::new(ip, address.port()).to_string().into_bytes()
        }
    }
}

async fn grpc(stream: TcpStream, address: SocketAddr, service: &str) -> Result<StatusCode, String> {
    let connection = Connection::over(Io::Tcp(stream), address.to_string());
    let answer = connection.ask(CHECK, grpc_question(service), LONGEST_ANSWER);
    match is_serving(&answer.await.map_err(|error| error.to_string())?) {
        true => Ok(StatusCode::OK),
        false => Err("not serving".to_owned()),
    }
}
