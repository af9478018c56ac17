//! `kubectl port-forward`: a port of a pod, reached over loopback inside the pod.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::cluster::Kubectl;
use crate::cluster::error::ClusterError;

/// The timeout of a connection.
const LIMIT: Duration = Duration::from_secs(10);

/// A forwarded port. Forwarding ends when the value is dropped.
#[derive(Debug)]
pub struct Forward {
    child: Child,
    address: SocketAddr,
    /// The thread that reads the output of `kubectl`, which has one line per connection, to its end.
    reader: Option<JoinHandle<()>>,
}

impl Kubectl {
    /// Forwards a port of a pod to a port of this machine's loopback interface.
    ///
    /// # Errors
    ///
    /// There is no such pod, or it is not running.
    pub fn forward(&self, namespace: &str, pod: &str, port: u16) -> Result<Forward, ClusterError> {
        let target = format!("pod/{pod}");
        let ports = format!(":{port}");
        let arguments = ["port-forward", "-n", namespace, &target, &ports];
        let failed = |detail: String| ClusterError::Command {
            command: format!("kubectl {}", arguments.join(" ")),
            detail,
        };
        let spawned = self
            .command()
            .args(arguments)
            .args(["--address", "127.0.0.1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = spawned.map_err(|error| failed(error.to_string()))?;
        let mut line = String::new();
        let reader = child.stdout.take().map(|output| {
            let mut output = BufReader::new(output);
            // If it cannot be read, the line contains no address.
            let _ = output.read_line(&mut line);
            std::thread::spawn(move || drop(std::io::copy(&mut output, &mut std::io::sink())))
        });
        match address(&line) {
            Some(address) => Ok(Forward {
                child,
                address,
                reader,
            }),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                Err(failed(format!("unexpected output {line:?}")))
            }
        }
    }
}

/// Parses the local address in `Forwarding from 127.0.0.1:40123 -> 15011`.
fn address(line: &str) -> Option<SocketAddr> {
    let rest = line.strip_prefix("Forwarding from ")?;
    rest.split(' ').next()?.parse().ok()
}

impl Forward {
    /// Returns the address of the forwarded port on this machine.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the body of a page of an admin port; `None` if no complete response was received.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(LIMIT)).ok()?;
        let fields = "Host: localhost\r\nConnection: close";
        write!(stream, "GET {path} HTTP/1.1\r\n{fields}\r\n\r\n").ok()?;
        body(BufReader::new(stream))
    }
}

/// Reads the body of a response. If its length is known, it does not wait for the end of the connection, which comes
/// seconds after the last byte through the port-forwarding of a kubelet.
fn body(mut response: impl BufRead) -> Option<String> {
    let mut length = None;
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        if response.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = Some(value.trim().parse().ok()?);
        }
    }
    let mut body = String::new();
    let read = response
        .take(length.unwrap_or(u64::MAX))
        .read_to_string(&mut body)
        .ok()?;
    length
        .is_none_or(|length| length == read as u64)
        .then_some(body)
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.reader.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read() {
        let read = address("Forwarding from 127.0.0.1:40123 -> 15011\n");
        assert_eq!(read, Some(SocketAddr::from(([127, 0, 0, 1], 40123))));
        assert_eq!(address("error: no pod\n"), None);
    }

    #[test]
    fn a_body_ends_with_its_length() {
        let read = |text: &str| body(text.as_bytes());
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
        assert_eq!(read(&format!("{head}ab and more")), Some("ab".to_owned()));
        assert_eq!(read(&format!("{head}a")), None);
        let without = "HTTP/1.1 200 OK\r\n\r\nall of it";
        assert_eq!(read(without), Some("all of it".to_owned()));
        assert_eq!(read("HTTP/1.1 200 OK\r\n"), None);
    }
}
