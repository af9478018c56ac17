//! The field `x-maglor-client`: a proxy in front of a service names to the proxies of its servers who the
//! client of a request is, so that their rules hold for the client.
//!
//! `10.0.0.3;spiffe://mesh.example/ns/shop/sa/cart`, or the address alone of a client that has proved
//! nothing. A client of a Unix socket has no address, which `unknown` says (RFC 7239 §6.2). It is accepted only of a listener's `tls.delegates`, and never passed on.

use std::net::IpAddr;

use maglor_identity::SpiffeId;

use super::Client;
use crate::protocol::fields::{Fields, Known};

/// In place of an address.
const UNKNOWN: &str = "unknown";

/// Who the client of a request is, as a proxy between says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Assertion {
    /// `None` = it came over a Unix socket.
    pub(crate) ip: Option<IpAddr>,
    /// `None` = it has proved nothing.
    pub(crate) id: Option<SpiffeId>,
}

/// The field is there twice, or is not what a proxy would have written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Unreadable;

impl Assertion {
    /// What a request says; `None` = nothing.
    ///
    /// # Errors
    /// It cannot be read: the client stays unknown.
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

/// Says in a request who its client is.
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
