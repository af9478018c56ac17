//! The address of a client.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// IP address and port of a client. A client of a Unix socket has no address, and no rule, key or header invents one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ClientAddress(Option<SocketAddr>);

impl ClientAddress {
    /// Creates an address; `None` for a Unix socket.
    pub(crate) fn new(address: Option<SocketAddr>) -> Self {
        Self(address)
    }

    pub(crate) fn socket(self) -> Option<SocketAddr> {
        self.0
    }

    /// Returns the IP address without the port, and an IPv4-mapped address as IPv4; `None` for a Unix socket.
    pub(crate) fn ip(self) -> Option<IpAddr> {
        Some(self.0?.ip().to_canonical())
    }
}

impl From<SocketAddr> for ClientAddress {
    fn from(address: SocketAddr) -> Self {
        Self(Some(address))
    }
}

/// Formats as `IP:PORT`, or, like nginx, as `unix:` for a Unix socket.
impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("unix:"),
        }
    }
}
