//! One request over a connection that is kept.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The timeout of a request. A cluster that lacks processors exceeds it, which is no failure of a proxy: its access log has
/// the flag `DC` then.
const LIMIT: Duration = Duration::from_secs(10);

pub(crate) fn connect(address: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, LIMIT).ok()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    stream.set_nodelay(true).ok()?;
    Some(stream)
}

/// Asks for `/direct` of users; its status.
pub(crate) fn round_trip(
    stream: &mut Option<TcpStream>,
    address: SocketAddr,
) -> Result<u16, String> {
    if stream.is_none() {
        *stream = Some(connect(address).ok_or("no connection")?);
    }
    let stream = stream.as_mut().ok_or("no connection")?;
    let request = "GET /direct HTTP/1.1\r\nHost: users\r\n\r\n";
    stream
        .write_all(request.as_bytes())
        .map_err(|error| error.to_string())?;
    let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream
            .read(&mut buffer)
            .map_err(|error| match error.kind() {
                // A read with a time limit ends with either.
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    format!("no response within {LIMIT:?}")
                }
                _ => error.to_string(),
            })?;
        if read == 0 {
            return Err("the connection has ended".to_owned());
        }
        text.extend_from_slice(&buffer[..read]);
        let head = String::from_utf8_lossy(&text).into_owned();
        let Some((head, body)) = head.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse::<usize>().ok())?
        });
        if body.len() >= length.unwrap_or(0) {
            let status = head
                .split(' ')
                .nth(1)
                .and_then(|status| status.parse().ok());
            return status.ok_or_else(|| "no status".to_owned());
        }
    }
}
