//! Notifications to a service manager by the protocol of sd_notify(3): `NOTIFY_SOCKET` is the address of a
//! datagram socket that accepts lines such as `READY=1`. Without the variable nothing is sent.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

/// Environment variable with the socket's address.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// A state of the process that is reported to the service manager.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum State {
    /// Requests are accepted, or a reload has ended.
    Ready,
    /// The configuration is being reloaded.
    Reloading,
    /// The process drains and then ends.
    Stopping,
}

impl State {
    fn text(self) -> String {
        match self {
            Self::Ready => "READY=1\nSTATUS=serving\n".to_owned(),
            Self::Reloading => {
                format!("RELOADING=1\nMONOTONIC_USEC={}\n", monotonic_micros())
            }
            Self::Stopping => "STOPPING=1\nSTATUS=draining\n".to_owned(),
        }
    }
}

/// Notifies the service manager, if there is one. A failure does not stop the proxy.
pub(crate) fn notify(state: State) {
    let Some(socket) = std::env::var_os(VARIABLE).filter(|socket| !socket.is_empty()) else {
        return;
    };
    if let Err(error) = send(&socket, &state.text()) {
        tracing::warn!(?socket, %error, "cannot notify the service manager");
    }
}

/// Sends to a socket given by its path, or, if it begins with `@`, by its name in the abstract namespace.
fn send(socket: &OsString, text: &str) -> io::Result<()> {
    let sender = UnixDatagram::unbound()?;
    // Never blocks if the manager does not read.
    sender.set_nonblocking(true)?;
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    sender.send_to_addr(text.as_bytes(), &address).map(drop)
}

/// Returns the system's monotonic clock in microseconds, by which a manager recognizes that a message is more recent
/// than its signal.
fn monotonic_micros() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_sent_to_paths_and_abstract_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("@maglor-{}-{}", std::process::id(), folder.path().display());
        let abstract_name = SocketAddr::from_abstract_name(&name.as_bytes()[1..]).unwrap();
        let sockets = [
            (
                path.clone().into_os_string(),
                UnixDatagram::bind(&path).unwrap(),
            ),
            (
                name.into(),
                UnixDatagram::bind_addr(&abstract_name).unwrap(),
            ),
        ];
        for (address, socket) in sockets {
            send(&address, &State::Reloading.text()).unwrap();
            let mut buffer = [0; 128];
            let length = socket.recv(&mut buffer).unwrap();
            let text = std::str::from_utf8(&buffer[..length]).unwrap();
            assert!(text.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{text}");
        }
        assert!(send(&"/nowhere/at/all".into(), "").is_err());
    }
}
