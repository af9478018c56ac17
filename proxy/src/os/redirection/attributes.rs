//! Netlink attributes in the form that nftables uses.

/// Flag of an attribute whose value consists of attributes (`NLA_F_NESTED`).
pub(super) const NESTED: u16 = 0x8000;

/// Netlink attributes under construction.
#[derive(Default)]
pub(super) struct Attributes(pub(super) Vec<u8>);

impl Attributes {
    /// Adds an attribute with these bytes.
    pub(super) fn bytes(&mut self, kind: u16, value: &[u8]) {
        // No value is nearly as large as 64 KiB: the number of rules is limited, and each rule has its own message.
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Adds a number in network byte order, which nftables uses everywhere.
    pub(super) fn number(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// Adds a text, terminated by a zero byte.
    pub(super) fn text(&mut self, kind: u16, value: &str) {
        self.bytes(kind, &[value.as_bytes(), b"\0"].concat());
    }

    /// Adds an attribute that consists of attributes.
    pub(super) fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.bytes(kind | NESTED, &inner.0);
    }
}
