//! The header field `x-maglor-client`, in which a proxy in front of a service reports the client of a request to the
//! servers' proxies, so that their rules apply to that client.
//!
//! Its value is `10.0.0.3;spiffe://mesh.example/ns/shop/sa/cart`, or the address alone if the client has no
//! proven identity. A client of a Unix socket has no address, which is written `unknown` (RFC 7239 §6.2). The
//! field is accepted only from peers in a listener's `tls.delegates`, and never forwarded.

use std::net::IpAddr;

use maglor_identity::SpiffeId;

use super::Client;
use crate::protocol::fields::{Fields, Known};

/// Written in place of an unknown address.
const UNKNOWN: &str = "unknown";

/// The client of a request, as asserted by a proxy in front of the service.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Assertion {
    /// IP address; `None` if the client uses a Unix socket.
    pub(crate) ip: Option<IpAddr>,
    /// Proven identity; `None` if the client has none.
    pub(crate) id: Option<SpiffeId>,
}

/// Error for a field that occurs more than once or is malformed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Unreadable;

impl Assertion {
    /// Parses the assertion of a request; `None` if there is none.
    ///
    /// # Errors
    /// If the field cannot be parsed; in this case the client stays unknown.
    pub(crate) fn of(fields: &Fields) -> Result<Option<Self>, Unreadable> {
        let mut values = fields.all(Known::XMaglorClient);
        let Some(value) = values.next() else {
            return Ok(None);
        };
        if values.next().is_some() {
            return Err(Unreadable);
        }
        let text = str::from_utf8(value).map_err(|_| Unreadable)?;
        let (ip, id) = match text.split_once(';') {
            Some((ip, id)) => (ip, Some(id.parse().map_err(|_| Unreadable)?)),
            None => (text, None),
        };
        let ip = match ip {
            UNKNOWN => None,
            ip => Some(ip.parse::<IpAddr>().map_err(|_| Unreadable)?.to_canonical()),
        };
        Ok(Some(Self { ip, id }))
    }
}

/// Sets the field of a request from the request's client.
pub(crate) fn set(fields: &mut Fields, client: &Client) {
    let ip = client.address.ip();
    let mut value = ip.map_or_else(|| UNKNOWN.to_owned(), |ip| ip.to_string());
    if let Some(id) = client.peer() {
        value.push(';');
        value.push_str(id.as_str());
    }
    fields.set(Known::XMaglorClient, value.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::client_address::ClientAddress;

    fn read(values: &[&str]) -> Result<Option<Assertion>, Unreadable> {
        let mut fields = Fields::default();
        for value in values {
            fields.push(Known::XMaglorClient, value.as_bytes());
        }
        Assertion::of(&fields)
    }

    #[test]
    fn what_is_said_is_read_again() {
        let mut fields = Fields::default();
        let address: std::net::SocketAddr = "[::ffff:10.0.0.9]:5000".parse().unwrap();
        set(&mut fields, &Client::new(address.into(), true, None));
        let said = Assertion::of(&fields).unwrap().unwrap();
        assert_eq!((said.ip, said.id), (Some([10, 0, 0, 9].into()), None));
        set(
            &mut fields,
            &Client::new(ClientAddress::new(None), true, None),
        );
        let said = Assertion::of(&fields).unwrap().unwrap();
        assert_eq!((said.ip, said.id), (None, None));
        let said = read(&["fd00::1;spiffe://a.b/ns/shop/sa/cart"]);
        let said = said.unwrap().unwrap();
        assert_eq!(said.id.unwrap().as_str(), "spiffe://a.b/ns/shop/sa/cart");
        assert_eq!(read(&[]), Ok(None));
    }

    #[test]
    fn a_client_is_never_guessed() {
        for wrong in ["", "cart", "10.0.0.1;", "10.0.0.1;cart", ";spiffe://a.b/c"] {
            assert_eq!(read(&[wrong]), Err(Unreadable), "{wrong}");
        }
        assert_eq!(read(&["10.0.0.1", "10.0.0.2"]), Err(Unreadable));
    }
}
