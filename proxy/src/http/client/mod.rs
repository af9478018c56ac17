//! The client of a connection, and how the header fields of its requests describe it.

pub(super) mod assertion;

use std::borrow::Cow;
use std::net::IpAddr;

use maglor_identity::SpiffeId;

use self::assertion::Assertion;
use crate::net::client_address::ClientAddress;
use crate::tls::Peer;

/// The client of a connection, in the forms that header fields need. Created once for each connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) address: ClientAddress,
    pub(crate) tls: bool,
    /// IP address for `x-forwarded-for`; `None` for a Unix socket, because the field contains IP addresses only.
    pub(super) ip: Option<Box<str>>,
    member: Option<Box<Member>>,
}

/// A client that is a member of the mesh.
#[derive(Debug)]
struct Member {
    peer: Box<Peer>,
    /// Element of `x-forwarded-client-cert` in Envoy's format: `By=…;URI=…`.
    element: String,
}

impl Client {
    pub(crate) fn new(address: ClientAddress, tls: bool, peer: Option<Box<Peer>>) -> Self {
        Self {
            address,
            tls,
            ip: address.ip().map(|ip| ip.to_string().into_boxed_str()),
            member: peer.map(|peer| {
                let element = format!("By={};URI={}", peer.by, peer.id);
                Box::new(Member { peer, element })
            }),
        }
    }

    /// Returns the client's proven identity; `None` if it has none.
    pub(crate) fn peer(&self) -> Option<&SpiffeId> {
        self.member.as_ref().map(|member| &member.peer.id)
    }

    /// Returns the element of `x-forwarded-client-cert` for the client or, with an assertion of a proxy in front, for
    /// the asserted client.
    pub(crate) fn element(&self, said: Option<&Assertion>) -> Option<Cow<'_, str>> {
        let member = self.member.as_ref()?;
        let Some(said) = said else {
            return Some(Cow::Borrowed(&member.element));
        };
        let id = said.id.as_ref()?;
        Some(Cow::Owned(format!("By={};URI={id}", member.peer.by)))
    }

    /// Returns whether the client is proven to belong to the same workload as this proxy.
    pub(crate) fn is_of_own_workload(&self) -> bool {
        let peer = self.member.as_ref().map(|member| &member.peer);
        peer.is_some_and(|peer| peer.id == peer.by)
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }

    /// Appends the client's element of the `forwarded` field: `for=…;proto=…` (RFC 7239).
    pub(super) fn append_forwarded(&self, value: &mut Vec<u8>) {
        let (open, close) = match self.address.ip() {
            Some(IpAddr::V6(_)) => ("for=\"[", "]\";proto="),
            Some(IpAddr::V4(_)) | None => ("for=", ";proto="),
        };
        let ip = self.ip.as_deref().unwrap_or("unknown");
        for part in [open, ip, close, self.scheme()] {
            value.extend_from_slice(part.as_bytes());
        }
    }
}
