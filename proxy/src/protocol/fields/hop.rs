//! Removal of hop-by-hop fields (RFC 9110 §7.6.1).

use super::{Content, Key, Known};

/// Fields that have no meaning where requests share connections (RFC 9113 §8.2.2).
pub(crate) const CONNECTION_FIELDS: [Known; 5] = [
    Known::Connection,
    Known::KeepAlive,
    Known::ProxyConnection,
    Known::TransferEncoding,
    Known::Upgrade,
];

impl Content {
    /// Removes the fields that concern only the connection over which the message arrived.
    pub(crate) fn remove_hop_by_hop(&mut self) {
        if self.contains(Known::Connection) {
            self.remove_named();
            self.remove(Known::Connection);
        }
        self.remove(Known::KeepAlive);
        self.remove(Known::ProxyConnection);
        self.remove(Known::Upgrade);
        self.remove(Known::Http2Settings);
    }

    /// Removes the fields that `connection` names.
    fn remove_named(&mut self) {
        // The most common value; the field `keep-alive` is removed anyway.
        let connection = self.get(Known::Connection);
        if connection == Some(b"keep-alive") && self.all(Known::Connection).count() == 1 {
            return;
        }
        let named: Vec<Vec<u8>> = self
            .tokens(Known::Connection)
            // Removing these would change the meaning of the message, not its transfer; `te` is handled separately.
            .filter(|name| {
                let kept: [&[u8]; 3] = [b"host", b"content-length", b"te"];
                !kept.iter().any(|kept| name.eq_ignore_ascii_case(kept))
            })
            .map(<[u8]>::to_vec)
            .collect();
        for name in named {
            self.remove(Key::new(&name));
        }
    }
}
