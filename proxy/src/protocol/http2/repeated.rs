//! Reuses the decoded head of a request whose field block is the same as that of the request before.
//!
//! Clients that repeat a request send the same block each time, once all of its fields are in the dynamic table. A copy
//! of the decoded head costs a fifth of decoding it again.

use super::head::{self, Head, Unfit};
use super::hpack::Decoder;
use super::reason::Malformed;
use crate::protocol::http1::Limits;

/// Maximum length in bytes of a block that is compared with the next one.
const BLOCK: usize = 128;
/// Maximum length in bytes of the text of a head that is kept.
const TEXT: usize = 512;

/// The latest block of one client that the dynamic table did not change with, and its head.
#[derive(Debug, Default)]
pub(super) struct Repeated {
    block: Vec<u8>,
    /// Whether the request had no body.
    end: bool,
    /// Number of changes of the dynamic table before the block.
    changes: u64,
    /// `None` until the block has been repeated, so that clients whose requests differ pay for no copy.
    head: Option<Box<Head>>,
}

impl Repeated {
    /// Decodes the head of a request, like [`head::request`]. `limits` must be the same in all calls.
    ///
    /// # Errors
    /// If the block cannot be decoded; the connection cannot continue.
    pub(super) fn request(
        &mut self,
        hpack: &mut Decoder,
        block: &[u8],
        limits: Limits,
        end: bool,
    ) -> Result<Result<Head, Unfit>, Malformed> {
        let changes = hpack.changes();
        // Fields of the table have no meaning without its state.
        let is_same = self.block == block && self.changes == changes && self.end == end;
        if is_same && let Some(head) = &self.head {
            return Ok(Ok(Head::clone(head)));
        }
        let head = head::request(hpack, block, limits, end)?;
        if is_same {
            self.keep(&head);
        } else if block.len() <= BLOCK && hpack.changes() == changes {
            self.block.clear();
            self.block.extend_from_slice(block);
            (self.end, self.changes, self.head) = (end, changes, None);
        }
        Ok(head)
    }

    fn keep(&mut self, head: &Result<Head, Unfit>) {
        if let Ok(head) = head
            && head.request.fields.encoded_len() <= TEXT
        {
            self.head = Some(Box::new(head.kept()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::fields::Known;

    const LIMITS: Limits = Limits {
        bytes: 1000,
        headers: 8,
    };

    /// `GET http` of the static table.
    const METHOD_AND_SCHEME: [u8; 2] = [0x82, 0x86];

    /// A literal path, and an `:authority` that is added to the table.
    fn first(path: &str, authority: &str) -> Vec<u8> {
        let mut block = METHOD_AND_SCHEME.to_vec();
        for (form, value) in [(0x04, path), (0x41, authority)] {
            block.extend([form, value.len() as u8]);
            block.extend(value.as_bytes());
        }
        block
    }

    /// A literal path, and the latest field of the table.
    fn next(path: &str) -> Vec<u8> {
        let mut block = METHOD_AND_SCHEME.to_vec();
        block.extend([0x04, path.len() as u8]);
        block.extend(path.as_bytes());
        block.push(0x80 | 62);
        block
    }

    struct Client {
        repeated: Repeated,
        hpack: Decoder,
    }

    impl Client {
        fn new() -> Self {
            Self {
                repeated: Repeated::default(),
                hpack: Decoder::default(),
            }
        }

        fn decode(&mut self, block: &[u8], end: bool) -> Result<Head, Unfit> {
            let Self { repeated, hpack } = self;
            repeated.request(hpack, block, LIMITS, end).unwrap()
        }

        /// Returns the path and the host of a request with this block.
        fn target(&mut self, block: &[u8]) -> (String, String) {
            let Head { request, .. } = self.decode(block, true).unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (
                text(request.path()),
                text(request.host().unwrap_or_default()),
            )
        }

        fn keeps_a_head(&self) -> bool {
            self.repeated.head.is_some()
        }
    }

    #[test]
    fn the_head_of_the_third_equal_block_is_a_copy() {
        let mut client = Client::new();
        assert_eq!(client.target(&first("/a", "b")), ("/a".into(), "b".into()));
        for copied in [false, false, true, true] {
            assert_eq!(client.keeps_a_head(), copied);
            assert_eq!(client.target(&next("/a")), ("/a".into(), "b".into()));
        }
        assert_eq!(client.target(&next("/c")), ("/c".into(), "b".into()));
        assert!(!client.keeps_a_head());
    }

    #[test]
    fn an_equal_block_has_another_meaning_after_a_change_of_the_table() {
        let mut client = Client::new();
        client.target(&first("/a", "b"));
        for _ in 0..3 {
            client.target(&next("/a"));
        }
        client.target(&first("/a", "d"));
        assert_eq!(client.target(&next("/a")), ("/a".into(), "d".into()));
        // A smaller table has lost the field.
        let resized = [&[0x20][..], &first("/a", "e")].concat();
        client.target(&resized);
        let Client { repeated, hpack } = &mut client;
        let decoded = repeated.request(hpack, &next("/a"), LIMITS, true);
        assert!(decoded.is_err());
    }

    #[test]
    fn a_block_that_adds_to_the_table_is_never_reused() {
        let mut client = Client::new();
        let block = first("/a", "b");
        for _ in 0..4 {
            client.target(&block);
            assert!(!client.keeps_a_head());
        }
        // Each of them has added the field.
        let mut last = METHOD_AND_SCHEME.to_vec();
        last.extend([0x84, 0x80 | 65]);
        assert_eq!(client.target(&last), ("/".into(), "b".into()));
    }

    #[test]
    fn whether_there_is_a_body_is_part_of_the_request() {
        let mut client = Client::new();
        let mut block = next("/a");
        block.pop();
        // `:authority` and `content-length`, without a change of the table.
        block.extend(b"\x01\x01b\x0f\x0d\x011");
        for _ in 0..3 {
            let head = client.decode(&block, false).unwrap();
            assert_eq!(head.length, Some(1));
            assert!(head.request.fields.contains(Known::ContentLength));
        }
        assert!(client.keeps_a_head());
        assert_eq!(client.decode(&block, true).err(), Some(Unfit::Malformed));
        assert!(client.decode(&block, false).is_ok());
    }

    #[test]
    fn little_is_kept_of_long_heads() {
        let mut client = Client::new();
        let long = "/".repeat(BLOCK - 2);
        let value = "v".repeat(120);
        let mut added = first("/a", "b");
        added.extend([0x40, 1, b'x', value.len() as u8]);
        added.extend(value.as_bytes());
        client.target(&added);
        let mut block = first("/a", "b");
        block[6] = 0x01;
        // Each index stands for a line of more than a hundred bytes.
        block.extend([0x80 | 62; 5]);
        // The authority is the second latest field now.
        let mut long = next(&long);
        *long.last_mut().unwrap() += 1;
        for block in [block, long] {
            for _ in 0..3 {
                client.decode(&block, true).unwrap();
            }
            assert!(!client.keeps_a_head());
        }
        assert!(client.repeated.block.len() <= BLOCK);
    }
}
