//! `maglor-proxy wait`: waits for a proxy on this host.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use maglor_config::raw::TimeSpan;

use super::member::time;

const HELP: &str = "\
It asks the admin server's /ready. As the `postStart` hook of a sidecar that is a plain container, listed
before the application's, it keeps the kubelet from starting the application until the sidecar serves:
  lifecycle: {postStart: {exec: {command: [maglor-proxy, wait]}}}

Exit codes: 0 the proxy is ready, 1 it was not in time, 2 the arguments make no sense.";

/// How often it asks.
const PERIOD: Duration = Duration::from_millis(100);
/// How long it waits for an answer.
const ANSWER: Duration = Duration::from_secs(1);

/// Wait until the proxy on this host, or in this pod, is ready.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(super) struct WaitArgs {
    /// Port of the proxy's admin server.
    #[arg(long, value_name = "PORT", default_value_t = 15020, value_parser = clap::value_parser!(u16).range(1..))]
    admin_port: u16,

    /// How long to wait at most.
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

/// Asks once; an error says what there is instead of a 200.
fn ready(port: u16) -> io::Result<()> {
    let both: [SocketAddr; 2] = [
        (Ipv4Addr::LOCALHOST, port).into(),
        (Ipv6Addr::LOCALHOST, port).into(),
    ];
    let mut socket = TcpStream::connect(&both[..])?;
    socket.set_read_timeout(Some(ANSWER))?;
    socket.write_all(b"GET /ready HTTP/1.0\r\nhost: localhost\r\n\r\n")?;
    let mut status = [0; 12];
    socket.read_exact(&mut status)?;
    match status.ends_with(b" 200") {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&status))),
    }
}
