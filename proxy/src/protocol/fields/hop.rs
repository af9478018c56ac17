//! What is between two neighbours only (RFC 9110 §7.6.1).

use super::{Fields, Key, Known};

/// Fields that have no meaning where requests share connections (RFC 9113 §8.2.2).
pub(crate) const CONNECTION_FIELDS: [Known; 5] = [
    Known::Connection,
    Known::KeepAlive,
    Known::ProxyConnection,
    Known::TransferEncoding,
    Known::Upgrade,
];

impl Fields {
    /// Takes off what concerns only the connection that the message came by.
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

    /// Takes off what `connection` names.
    fn remove_named(&mut self) {
        // What most messages have; the field of that name goes anyway.
        let connection = self.get(Known::Connection);
        if connection == Some(b"keep-alive") && self.all(Known::Connection).count() == 1 {
            return;
        }
        let named: Vec<Vec<u8>> = self
            .tokens(Known::Connection)
            // Naming these would change what the message is, not how it is carried; `te` has rules of
            // its own.
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
