//! `maglor-proxy wait`: waits until the proxy on this host is ready.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use maglor_config::raw::TimeSpan;

use super::member::time;

const HELP: &str = "\
Polls /ready of the admin server. As the `postStart` hook of a sidecar that is a plain container, listed
before the application's, it delays the start of the application until the sidecar is ready:
  lifecycle: {postStart: {exec: {command: [maglor-proxy, wait]}}}

Exit codes: 0 ready, 1 timeout, 2 invalid arguments.";

/// Poll interval.
const PERIOD: Duration = Duration::from_millis(100);
/// Timeout for one response of the admin server.
const ANSWER: Duration = Duration::from_secs(1);
/// Maximum size of a response in bytes; the rest is not read.
const LONGEST: usize = 4096;

/// Wait until the proxy on this host, or in this pod, is ready.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(super) struct WaitArgs {
    /// Port of the proxy's admin server.
    #[arg(long, value_name = "PORT", default_value_t = 15020, value_parser = clap::value_parser!(u16).range(1..))]
    admin_port: u16,

    /// Timeout.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time)]
    timeout: TimeSpan,
}

impl WaitArgs {
    pub(super) fn run(&self) -> ExitCode {
        let begun = Instant::now();
        loop {
            let error = match ready(self.admin_port) {
                Ok(()) => return ExitCode::SUCCESS,
                Err(error) => error,
            };
            if begun.elapsed() >= self.timeout.0 {
                eprintln!(
                    "the proxy with admin port {} is not ready: {error}",
                    self.admin_port
                );
                return ExitCode::FAILURE;
            }
            sleep(PERIOD);
        }
    }
}

/// Requests `/ready` once; any response other than 200 is an error that describes the response.
fn ready(port: u16) -> io::Result<()> {
    let both: [SocketAddr; 2] = [
        (Ipv4Addr::LOCALHOST, port).into(),
        (Ipv6Addr::LOCALHOST, port).into(),
    ];
    let until = Instant::now() + ANSWER;
    let mut socket = TcpStream::connect(&both[..])?;
    socket.write_all(b"GET /ready HTTP/1.0\r\nhost: localhost\r\n\r\n")?;
    let mut answer = Vec::new();
    while read_some(&mut socket, &mut answer, until)? {
        if status(&answer).is_some_and(|status| status.ends_with(b" 200")) {
            return Ok(());
        }
    }
    Err(io::Error::other(reason(&answer)))
}

/// Reads more of a response; returns false at its end.
fn read_some(socket: &mut TcpStream, answer: &mut Vec<u8>, until: Instant) -> io::Result<bool> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, "it does not answer");
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(late());
    }
    socket.set_read_timeout(Some(left))?;
    let mut bytes = [0; 256];
    let length = match socket.read(&mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(late()),
        length => length?,
    };
    answer.extend_from_slice(&bytes[..length]);
    Ok(length > 0 && answer.len() < LONGEST)
}

/// Returns the beginning of the status line, such as `HTTP/1.1 503`.
fn status(answer: &[u8]) -> Option<&[u8]> {
    answer.get(..12)
}

/// Returns the status and the reason that the proxy reports.
fn reason(answer: &[u8]) -> String {
    if answer.is_empty() {
        return "it closes the connection".to_owned();
    }
    let status = status(answer).unwrap_or(answer);
    let text = String::from_utf8_lossy(answer);
    let said = text.split_once("\r\n\r\n").map_or("", |(_, said)| said);
    format!("{}: {}", String::from_utf8_lossy(status), said.trim())
}
