//! Socket addresses: IP and port, or a Unix socket.
//!
//! `unix:/run/app.sock` is a socket in the file system, `unix:@name` a socket in Linux's abstract namespace (unix(7)),
//! which has no file and no permissions.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net as unix;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// The prefix of the notation of a Unix socket.
const UNIX: &str = "unix:";
/// The maximum length of a path or name in bytes: `sun_path` of unix(7) without the NUL at the end
/// of a path, or at the beginning of a name.
const LONGEST: usize = 107;

/// A listening address.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Address {
    /// An IP address with a port.
    Ip(SocketAddr),
    /// A Unix socket.
    Unix(UnixAddress),
}

/// A path in the file system, or `@` and a name in the abstract namespace.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct UnixAddress(Arc<str>);

/// The reason why a text that begins with `unix:` is not a valid address; its message suggests a valid one.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum UnixAddressError {
    /// There is no path after `unix:`, or no name after `@`.
    #[error("the path is missing; write `unix:/PATH`, for example `unix:/run/app.sock`")]
    Empty,
    /// The path or name exceeds the kernel's limit.
    #[error(
        "the path is longer than 107 bytes, the maximum for a Unix socket; choose a shorter path"
    )]
    Long,
    /// The text is neither an absolute path nor `@` and a name.
    #[error(
        "write an absolute path, as in `unix:/run/app.sock`, or `unix:@NAME` for the abstract namespace"
    )]
    Relative,
    /// The path has empty, `.` or `..` segments, so that two texts could refer to the same socket.
    #[error("write the path without `//`, `.` and `..`, and without a slash at the end")]
    Unnormalized,
    /// The path or name has a control character.
    #[error("remove the control characters from the path")]
    Unprintable,
}

impl Address {
    /// Returns the IP address and port; `None` for a Unix socket.
    #[must_use]
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// Returns the Unix socket; `None` for IP.
    #[must_use]
    pub fn unix(&self) -> Option<&UnixAddress> {
        match self {
            Self::Ip(_) => None,
            Self::Unix(address) => Some(address),
        }
    }
}

impl UnixAddress {
    /// Parses a text that begins with `unix:`; `None` for every other text. `unix:///path`, gRPC's
    /// notation, means the same.
    #[must_use]
    pub fn parse(text: &str) -> Option<Result<Self, UnixAddressError>> {
        let rest = text.strip_prefix(UNIX)?;
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        Some(Self::of(rest))
    }

    fn of(text: &str) -> Result<Self, UnixAddressError> {
        use UnixAddressError as E;
        if text.len() > LONGEST {
            return Err(E::Long);
        }
        if text.contains(|c: char| c.is_control()) {
            return Err(E::Unprintable);
        }
        if let Some(name) = text.strip_prefix('@') {
            return match name.is_empty() {
                true => Err(E::Empty),
                false => Ok(Self(text.into())),
            };
        }
        match text.strip_prefix('/') {
            None if text.is_empty() => Err(E::Empty),
            None => Err(E::Relative),
            Some("") => Err(E::Empty),
            Some(path) if path.split('/').any(|part| matches!(part, "" | "." | "..")) => {
                Err(E::Unnormalized)
            }
            Some(_) => Ok(Self(text.into())),
        }
    }

    /// Returns the path; `None` for a socket in the abstract namespace.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        (!self.0.starts_with('@')).then(|| Path::new(&*self.0))
    }

    /// Returns the path, or `@` and the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Converts the address for system calls.
    ///
    /// # Errors
    ///
    /// None for an address that was parsed here.
    pub fn to_socket(&self) -> io::Result<unix::SocketAddr> {
        match self.0.strip_prefix('@') {
            Some(name) => unix::SocketAddr::from_abstract_name(name),
            None => unix::SocketAddr::from_pathname(&*self.0),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(unix) = UnixAddress::parse(text) {
            return unix.map(Self::Unix).map_err(|error| error.to_string());
        }
        let ip = text.parse().map(Self::Ip);
        ip.map_err(|_| "write `IP:PORT` or `unix:/PATH`".to_owned())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix(address) => address.fmt(f),
        }
    }
}

impl fmt::Display for UnixAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{UNIX}{}", self.0)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notations_of_unix_sockets_are_read_and_written() {
        for (text, written) in [
            ("unix:/run/app.sock", "unix:/run/app.sock"),
            ("unix:///run/app.sock", "unix:/run/app.sock"),
            ("unix:@app", "unix:@app"),
            ("unix:/a b/ä", "unix:/a b/ä"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), written);
            assert!(address.unix().unwrap().to_socket().is_ok(), "{text}");
        }
        let longest = format!("unix:/{}", "x".repeat(106));
        assert!(
            longest
                .parse::<Address>()
                .unwrap()
                .unix()
                .unwrap()
                .to_socket()
                .is_ok()
        );
    }

    #[test]
    fn what_is_no_socket_is_refused() {
        use UnixAddressError as E;
        let long = format!("unix:/{}", "x".repeat(107));
        for (text, error) in [
            ("unix:", E::Empty),
            ("unix:/", E::Empty),
            ("unix:@", E::Empty),
            ("unix://", E::Empty),
            ("unix:run/app.sock", E::Relative),
            ("unix:./app.sock", E::Relative),
            ("unix:/run/../app.sock", E::Unnormalized),
            ("unix:/run//app.sock", E::Unnormalized),
            ("unix:/run/", E::Unnormalized),
            ("unix:/run/\0", E::Unprintable),
            (&long, E::Long),
        ] {
            assert_eq!(UnixAddress::parse(text), Some(Err(error)), "{text}");
        }
        assert_eq!(UnixAddress::parse("127.0.0.1:80"), None);
    }
}
