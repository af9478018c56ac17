//! The server behind all proxies.

use std::net::{Ipv4Addr, SocketAddr};

use crate::child::Guarded;
use crate::error::Result;
use crate::ports;
use crate::redirection::{self, Redirection};
use crate::scenario::Protocol;

/// The origin server: two upstream endpoints and a port for the HTTP/2 baseline.
#[derive(Debug)]
pub(crate) struct Origin {
    /// The two endpoints, HTTP/1.1.
    pub upstreams: [SocketAddr; 2],
    /// HTTP/2 with prior knowledge.
    pub h2: SocketAddr,
    /// The redirection of connections to the proxies in front of it.
    pub redirection: Option<Redirection>,
    _child: Option<Guarded>,
}

impl Origin {
    /// Starts the origin on processor `cpu`; behind a redirection, it listens on the addresses of all pods, too.
    pub(crate) fn start(cpu: usize, redirection: Option<Redirection>) -> Result<Self> {
        let mut upstreams = [ports::free()?, ports::free()?];
        let mut h2 = ports::free()?;
        let mut arguments = Vec::new();
        for (flag, mut address) in [("--h1", upstreams[0]), ("--h1", upstreams[1]), ("--h2", h2)] {
            if redirection.is_some() {
                address.set_ip(Ipv4Addr::UNSPECIFIED.into());
            }
            arguments.extend([flag.to_owned(), address.to_string()]);
        }
        if redirection.is_some() {
            for address in upstreams.iter_mut().chain([&mut h2]) {
                address.set_ip(redirection::ORIGIN);
            }
        }
        let mut child = Guarded::role("origin", &arguments, cpu)?;
        child.wait_ready()?;
        Ok(Self {
            upstreams,
            h2,
            redirection,
            _child: Some(child),
        })
    }

    /// Uses an origin that is already running for both endpoints; `GET /64` has to be answered with
    /// 200.
    pub(crate) fn at(address: SocketAddr) -> Self {
        Self {
            upstreams: [address; 2],
            h2: address,
            redirection: None,
            _child: None,
        }
    }

    /// Returns the address that the generator connects to when there is no proxy.
    pub(crate) fn address(&self, protocol: Protocol) -> SocketAddr {
        match protocol {
            Protocol::H1 => self.upstreams[0],
            Protocol::H2c => self.h2,
        }
    }
}
