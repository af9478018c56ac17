//! Finds frame headers in a byte stream of any fragmentation (RFC 9113, section 4.1).

/// Frame types.
pub(super) mod kind {
    pub(in crate::upstream::pool::http2) const DATA: u8 = 0;
    pub(in crate::upstream::pool::http2) const HEADERS: u8 = 1;
    pub(in crate::upstream::pool::http2) const RST_STREAM: u8 = 3;
    pub(in crate::upstream::pool::http2) const WINDOW_UPDATE: u8 = 8;
    pub(in crate::upstream::pool::http2) const CONTINUATION: u8 = 9;
}

/// Flag of DATA and HEADERS frames.
pub(super) const END_STREAM: u8 = 1;

/// Length of a client's preface in bytes.
pub(super) const PREFACE: usize = 24;
const HEADER: usize = 9;
/// Maximum number of bytes to parse: the payload of a WINDOW_UPDATE is parsed with its header.
const LONGEST: usize = HEADER + 4;

/// A frame's header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Head {
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    /// Increment of a WINDOW_UPDATE; 0 for other frames.
    pub(super) increment: u32,
}

impl Head {
    fn parse(bytes: &[u8; LONGEST]) -> Self {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3, i0, i1, i2, i3] = *bytes;
        Self {
            length: u32::from_be_bytes([0, l0, l1, l2]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
            increment: u32::from_be_bytes([i0 & 0x7f, i1, i2, i3]),
        }
    }

    fn is_credit(&self) -> bool {
        self.kind == kind::WINDOW_UPDATE && self.length == LONGEST - HEADER
    }
}

/// Parser of frame headers.
#[derive(Debug)]
pub(super) struct Frames {
    partial: [u8; LONGEST],
    have: usize,
    /// Number of bytes to skip before the next header.
    skip: usize,
}

impl Frames {
    /// Creates a parser whose first frame comes after this many bytes.
    pub(super) fn after(bytes: usize) -> Self {
        Self {
            partial: [0; LONGEST],
            have: 0,
            skip: bytes,
        }
    }

    /// Parses the next bytes, and calls `found` for each frame whose header is complete.
    pub(super) fn take(&mut self, mut bytes: &[u8], mut found: impl FnMut(Head)) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let n = self.skip.min(bytes.len());
                self.skip -= n;
                bytes = &bytes[n..];
                continue;
            }
            let wanted = match self.have < HEADER {
                true => HEADER,
                false => LONGEST,
            };
            let n = (wanted - self.have).min(bytes.len());
            self.partial[self.have..self.have + n].copy_from_slice(&bytes[..n]);
            self.have += n;
            bytes = &bytes[n..];
            if self.have < HEADER {
                continue;
            }
            let head = Head::parse(&self.partial);
            if head.is_credit() && self.have < LONGEST {
                continue;
            }
            self.skip = head.length - (self.have - HEADER);
            self.have = 0;
            found(head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        [&head, payload].concat()
    }

    #[test]
    fn frames_are_found_however_they_are_cut() {
        let bytes = [
            vec![b'P'; PREFACE],
            frame(kind::HEADERS, 5, 1, b"abc"),
            frame(kind::WINDOW_UPDATE, 0, 0, &[0x80, 0, 1, 0]),
            frame(kind::DATA, 1, 3, &[9; 300]),
            // A frame of a wrong length, which h2 rejects.
            frame(kind::WINDOW_UPDATE, 0, 7, &[1; 9]),
            frame(kind::RST_STREAM, 0, 0x8000_0009, &[0; 4]),
        ]
        .concat();
        for step in 1..bytes.len() {
            let mut frames = Frames::after(PREFACE);
            let mut seen = Vec::new();
            for part in bytes.chunks(step) {
                frames.take(part, |head| {
                    let increment = head.is_credit().then_some(head.increment);
                    seen.push((head.kind, head.stream, head.length, increment));
                });
            }
            let expected = [
                (1, 1, 3, None),
                (8, 0, 4, Some(256)),
                (0, 3, 300, None),
                (8, 7, 9, None),
                (3, 9, 4, None),
            ];
            assert_eq!(seen, expected, "{step}");
        }
    }
}
