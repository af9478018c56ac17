//! Writes a ClientHello by hand (RFC 8446, section 4.1.2).

use super::super::table::unescape;
use super::{HANDSHAKE, record};

const SERVER_NAME: u16 = 0;
/// The beginning of the random of a HelloRetryRequest.
const RETRY: [u8; 4] = [0xcf, 0x21, 0xad, 0x74];
/// The supported_versions of a ServerHello that chose TLS 1.3.
const TLS13: [u8; 6] = [0, 0x2b, 0, 2, 3, 4];
const BEHIND_RANDOM: usize = 6;

struct Hello {
    version: u16,
    session: Vec<u8>,
    suites: Vec<u8>,
    compression: Vec<u8>,
    extensions: Vec<(u16, Vec<u8>)>,
    tail: Vec<u8>,
    /// The error of the message's length field.
    off: i32,
    record: u16,
    split: usize,
    before: Vec<u8>,
    behind: Vec<u8>,
    only: Option<Vec<u8>>,
}

/// Returns the bytes that the client writes.
pub(super) fn bytes(commands: &[&str]) -> Vec<u8> {
    let mut hello = Hello::good();
    for command in commands {
        hello.change(command);
    }
    hello.flight()
}

/// Returns a good ClientHello as a handshake message, without records.
pub(super) fn good() -> Vec<u8> {
    Hello::good().message()
}

/// Classifies a ServerHello.
pub(super) fn answer(message: &[u8]) -> &'static str {
    if message.get(BEHIND_RANDOM..BEHIND_RANDOM + RETRY.len()) == Some(&RETRY) {
        return "retry";
    }
    match message.windows(TLS13.len()).any(|window| window == TLS13) {
        true => "hello 1.3",
        false => "hello 1.2",
    }
}

fn server_name(name: &[u8]) -> Vec<u8> {
    let length = u16::try_from(name.len()).unwrap();
    let (list, name_length) = ((length + 3).to_be_bytes(), length.to_be_bytes());
    [&list[..], &[0], &name_length, name].concat()
}

impl Hello {
    fn good() -> Self {
        let mut share = vec![0, 0x24, 0, 0x1d, 0, 0x20, 9];
        share.resize(share.len() + 31, 0);
        let schemes = b"\x00\x0e\x04\x03\x05\x03\x08\x04\x08\x05\x08\x06\x04\x01\x08\x07";
        Self {
            version: 0x0303,
            session: vec![7; 32],
            suites: b"\x13\x01\x13\x02\x13\x03\xc0\x2b\xc0\x2f\xcc\xa9\xcc\xa8".to_vec(),
            compression: vec![0],
            extensions: vec![
                (SERVER_NAME, server_name(b"a.example")),
                (0x0a, b"\x00\x04\x00\x1d\x00\x17".to_vec()),
                (0x0b, b"\x01\x00".to_vec()),
                (0x0d, schemes.to_vec()),
                (0x10, b"\x00\x09\x08http/1.1".to_vec()),
                (0x17, Vec::new()),
                (0x2b, b"\x04\x03\x04\x03\x03".to_vec()),
                (0x2d, b"\x01\x01".to_vec()),
                (0x33, share),
            ],
            tail: Vec::new(),
            off: 0,
            record: 0x0301,
            split: usize::MAX,
            before: Vec::new(),
            behind: Vec::new(),
            only: None,
        }
    }

    fn change(&mut self, command: &str) {
        let (word, rest) = command.split_once(' ').unwrap_or((command, ""));
        let text = || unescape(rest);
        let hexadecimal = || u16::from_str_radix(rest, 16).expect("a hexadecimal number");
        let decimal = || rest.parse::<i32>().expect("a number");
        match word {
            "ext" | "again" => {
                let (kind, text) = rest.split_once(' ').unwrap_or((rest, ""));
                let kind = u16::from_str_radix(kind, 16).expect("a hexadecimal number");
                let text = unescape(text);
                let found = self.extensions.iter_mut().find(|(known, _)| *known == kind);
                match found {
                    Some((_, content)) if word == "ext" => *content = text,
                    _ => self.extensions.push((kind, text)),
                }
            }
            "drop" => {
                let kind = hexadecimal();
                self.extensions.retain(|(known, _)| *known != kind);
            }
            "sni" => self.extensions[0].1 = server_name(&text()),
            "version" => self.version = hexadecimal(),
            "suites" => self.suites = text(),
            "compression" => self.compression = text(),
            "session" => self.session = text(),
            "tail" => self.tail = text(),
            "short" => self.off = -decimal(),
            "long" => self.off = decimal(),
            "record" => self.record = hexadecimal(),
            "split" => self.split = usize::try_from(decimal()).unwrap(),
            "before" => self.before.extend(text()),
            "behind" => self.behind.extend(text()),
            "only" => self.only = Some(text()),
            "times" => {
                let (count, command) = rest.split_once(' ').expect("N COMMAND");
                (0..count.parse().expect("a number")).for_each(|_: u32| self.change(command));
            }
            _ => panic!("no command \"{word}\""),
        }
    }

    fn message(&self) -> Vec<u8> {
        let mut body = self.version.to_be_bytes().to_vec();
        body.extend([5; 32]);
        body.push(self.session.len() as u8);
        body.extend(&self.session);
        let two = |length: usize| u16::try_from(length).expect("two bytes").to_be_bytes();
        body.extend(two(self.suites.len()));
        body.extend(&self.suites);
        body.push(self.compression.len() as u8);
        body.extend(&self.compression);
        let mut extensions = Vec::new();
        for (kind, content) in &self.extensions {
            extensions.extend(kind.to_be_bytes());
            extensions.extend(two(content.len()));
            extensions.extend(content);
        }
        body.extend(two(extensions.len()));
        body.extend(extensions);
        body.extend(&self.tail);
        let length = i32::try_from(body.len()).unwrap() + self.off;
        [&[1], &length.to_be_bytes()[1..], &body].concat()
    }

    fn flight(&self) -> Vec<u8> {
        let mut flight = self.before.clone();
        match &self.only {
            Some(bytes) => flight.extend(bytes),
            None => {
                let message = self.message();
                for piece in message.chunks(self.split.min(0x4000)) {
                    flight.extend(record(HANDSHAKE, self.record, piece));
                }
            }
        }
        flight.extend(&self.behind);
        flight
    }
}
