//! Redirection of a network namespace's TCP connections to the proxy: `maglor-proxy init`.
//!
//! The command owns one nftables table, `inet maglor`, and changes nothing else. The table is replaced in one
//! transaction, so that the command is idempotent and no connection is subject to only part of the rules. The table
//! is written over netlink, since a sidecar's image has no `nft`.
//!
//! `ruleset` builds the rules and formats them as text; `netlink` sends the same values to the kernel and
//! reads them back. The rules are those of the init containers of Linkerd and Istio, with the nat hooks of
//! the `inet` family (Linux 5.2).

use std::fmt;
use std::io;
use std::str::FromStr;

use ipnet::IpNet;

use self::netlink::Netlink;
use self::ruleset::Ruleset;

mod attributes;
mod expression;
mod netlink;
mod ruleset;

/// Maximum number of exceptions; a batch has to fit in a socket buffer.
const MAX_SKIPPED: usize = 512;

/// The connections to redirect, and exceptions.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Port of the inbound listener; `None` if incoming connections are not redirected.
    pub inbound_port: Option<u16>,
    /// Port of the outbound listener; `None` if outgoing connections are not redirected.
    pub outbound_port: Option<u16>,
    /// User id that the proxy runs as, whose connections are not redirected.
    pub proxy_uid: Option<u32>,
    /// Group id that the proxy runs as, whose connections are not redirected.
    pub proxy_gid: Option<u32>,
    /// Ports whose incoming connections are not redirected.
    pub skip_inbound_ports: Vec<PortRange>,
    /// Ports to which outgoing connections are not redirected.
    pub skip_outbound_ports: Vec<PortRange>,
    /// Networks whose connections, in both directions, are not redirected.
    pub skip_subnets: Vec<IpNet>,
}

/// A port or an inclusive range of ports.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// Error in parsing a [`PortRange`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PortRangeError {
    /// The second port is below the first.
    #[error("the range ends before it begins")]
    Backwards,
    /// Not a number from 1 to 65535.
    #[error("write a port from 1 to 65535, or a range such as 8000-8010")]
    NotAPort,
}

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<Self, PortRangeError> {
        let port = |text: &str| match text.parse() {
            Ok(port @ 1..) => Ok(port),
            _ => Err(PortRangeError::NotAPort),
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (port(first)?, port(last)?);
        if last < first {
            return Err(PortRangeError::Backwards);
        }
        Ok(Self { first, last })
    }
}

impl PortRange {
    /// Returns whether the range contains the port.
    #[must_use]
    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

/// Formats as nftables does: `80` or `8000-8010`.
impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => self.first.fmt(f),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

/// Error in [`Settings`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SettingsError {
    /// Nothing would be redirected.
    #[error("nothing to redirect: set --inbound-port, --outbound-port or both")]
    Nothing,
    /// The proxy's own connections would be redirected to the proxy itself.
    #[error(
        "--outbound-port needs --proxy-uid or --proxy-gid: the proxy's own connections would be \
         redirected to it in an endless loop"
    )]
    NoOwner,
    /// A single listener cannot distinguish incoming from outgoing connections.
    #[error("--inbound-port and --outbound-port are both {0}; they are two listeners")]
    SamePort(u16),
    /// Port 0 is not a port.
    #[error("a port is a number from 1 to 65535")]
    PortZero,
    /// More exceptions than the kernel accepts at once.
    #[error("{0} skipped ports and subnets are more than {MAX_SKIPPED}: use ranges")]
    TooMany(usize),
}

/// A validated redirection.
///
/// ```
/// use maglor_proxy::redirection::{Redirection, Settings};
///
/// let settings = Settings { inbound_port: Some(15006), ..Settings::default() };
/// let text = Redirection::new(&settings).unwrap().to_string();
/// assert!(text.contains("redirect to :15006"));
/// ```
#[derive(Clone, Debug)]
pub struct Redirection(Ruleset);

/// Formats the rules as nftables text; loading it with `nft -f` has the same effect as [`Redirection::apply`].
impl fmt::Display for Redirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Redirection {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`SettingsError`] if the settings are invalid.
    pub fn new(settings: &Settings) -> Result<Self, SettingsError> {
        let ports = (settings.inbound_port, settings.outbound_port);
        match ports {
            (None, None) => return Err(SettingsError::Nothing),
            (Some(0), _) | (_, Some(0)) => return Err(SettingsError::PortZero),
            (Some(inbound), Some(outbound)) if inbound == outbound => {
                return Err(SettingsError::SamePort(inbound));
            }
            _ => {}
        }
        if ports.1.is_some() && settings.proxy_uid.is_none() && settings.proxy_gid.is_none() {
            return Err(SettingsError::NoOwner);
        }
        let skipped = settings.skip_inbound_ports.len()
            + settings.skip_outbound_ports.len()
            + settings.skip_subnets.len();
        if skipped > MAX_SKIPPED {
            return Err(SettingsError::TooMany(skipped));
        }
        Ok(Self(Ruleset::new(settings)))
    }

    /// Installs the rules in place of those of an earlier run, and reads them back.
    ///
    /// # Errors
    /// [`InitError`] if the rules cannot be installed. They are then unchanged, except for [`InitError::Different`].
    pub fn apply(&self) -> Result<(), InitError> {
        let mut netlink = Netlink::open()?;
        netlink.replace(&self.0)?;
        match netlink.comments()? == self.0.comments() {
            true => Ok(()),
            false => Err(InitError::Different),
        }
    }
}

/// The actions of [`remove`] as nftables' text.
pub const REMOVAL: &str = "table inet maglor\ndelete table inet maglor\n";

/// Removes the rules. This succeeds even if there are none.
///
/// # Errors
/// [`InitError`] if the rules cannot be removed.
pub fn remove() -> Result<(), InitError> {
    let mut netlink = Netlink::open()?;
    netlink.delete()?;
    match netlink.comments()?.is_empty() {
        true => Ok(()),
        false => Err(InitError::Different),
    }
}

/// Error in setting up or removing the redirection.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The rules that were read back differ from those written, because another process wrote at the same time.
    #[error(
        "the rules of table `inet maglor` are not those that were written; did another init run?"
    )]
    Different,
    /// The kernel has no nftables.
    #[error(
        "this kernel has no nf_tables: load the modules nf_tables, nft_chain_nat and nft_redir"
    )]
    NoNfTables,
    /// `CAP_NET_ADMIN` is missing.
    #[error(
        "not permitted: nftables rules need CAP_NET_ADMIN (run as root, or give the container the \
         capability NET_ADMIN)"
    )]
    NotPermitted,
    /// The kernel rejects a part of the rules.
    #[error("the kernel rejected {what}: {source}; nat in the family inet needs Linux 5.2")]
    Refused {
        /// The rejected part.
        what: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The netlink socket failed.
    #[error("netlink: {0}")]
    Socket(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            inbound_port: Some(15006),
            outbound_port: Some(15001),
            proxy_uid: Some(2102),
            ..Settings::default()
        }
    }

    #[track_caller]
    fn refused(change: impl FnOnce(&mut Settings)) -> String {
        let mut settings = settings();
        change(&mut settings);
        let message = Redirection::new(&settings).unwrap_err().to_string();
        assert!(!message.contains('\n'), "{message}");
        message
    }

    #[test]
    fn nonsense_is_refused_in_one_line() {
        assert!(refused(|s| s.outbound_port = Some(15006)).contains("both 15006"));
        assert!(refused(|s| s.proxy_uid = None).contains("--proxy-uid"));
        assert!(refused(|s| s.inbound_port = Some(0)).contains("1 to 65535"));
        let none = |s: &mut Settings| (s.inbound_port, s.outbound_port) = (None, None);
        assert!(refused(none).contains("nothing to redirect"));
        let many = |s: &mut Settings| s.skip_inbound_ports = vec!["1".parse().unwrap(); 513];
        assert!(refused(many).contains("513"));
    }

    #[test]
    fn ports_and_ranges() {
        for (text, first, last) in [
            ("22", 22, 22),
            ("8000-8010", 8000, 8010),
            ("1-65535", 1, 65535),
        ] {
            assert_eq!(text.parse(), Ok(PortRange { first, last }));
            assert_eq!(PortRange { first, last }.to_string(), text);
        }
        for text in [
            "", "0", "65536", "-1", "a", "1-", "1-2-3", "0-5", " 1", "80,81",
        ] {
            assert_eq!(
                text.parse::<PortRange>(),
                Err(PortRangeError::NotAPort),
                "{text}"
            );
        }
        assert_eq!("2-1".parse::<PortRange>(), Err(PortRangeError::Backwards));
    }
}
