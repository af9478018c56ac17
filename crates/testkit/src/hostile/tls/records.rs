//! Records after a whole handshake, encrypted by hand.
//!
//! | command | record |
//! | --- | --- |
//! | `inner TYPE TEXT` | encrypted, of this type (hexadecimal) |
//! | `app TEXT` | encrypted application data |
//! | `clear TYPE TEXT` | not encrypted |
//! | `spoilt TEXT` | application data with a changed bit |
//! | `update N` | KeyUpdate that asks for one in return (1) or not (0); TLS 1.3 |
//! | `renegotiate` | a ClientHello |
//! | `times N COMMAND` | the command N times |
//!
//! A good request follows.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, Iv, MessageDecrypter, MessageEncrypter, OutboundChunks,
    OutboundPlainMessage,
};
use rustls::crypto::tls13::OkmBlock;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{
    ClientConnection, ConnectionTrafficSecrets, ContentType, KeyLog, ProtocolVersion,
    SupportedCipherSuite,
};

use super::super::certificates::{Shown, client_config};
use super::super::table::unescape;
use super::{ALERT, APPLICATION, HANDSHAKE, Tls, hello, read_record, record};
use crate::TIMEOUT;

const KEY_UPDATE: u8 = 24;
const AFTER: &[u8] = b"GET /after HTTP/1.1\r\nhost: after\r\nconnection: close\r\n\r\n";

/// One direction of a connection.
struct Direction {
    suite: SupportedCipherSuite,
    /// The secret of TLS 1.3, from which the next key is derived.
    secret: Vec<u8>,
    key: AeadKey,
    iv: Iv,
    number: u64,
}

impl Direction {
    fn encrypter(&self) -> Box<dyn MessageEncrypter> {
        let key = copy(&self.key);
        match self.suite {
            SupportedCipherSuite::Tls12(suite) => {
                suite.aead_alg.encrypter(key, self.iv.as_ref(), &[])
            }
            SupportedCipherSuite::Tls13(suite) => {
                suite.aead_alg.encrypter(key, Iv::copy(self.iv.as_ref()))
            }
        }
    }

    fn decrypter(&self) -> Box<dyn MessageDecrypter> {
        let key = copy(&self.key);
        match self.suite {
            SupportedCipherSuite::Tls12(suite) => suite.aead_alg.decrypter(key, self.iv.as_ref()),
            SupportedCipherSuite::Tls13(suite) => {
                suite.aead_alg.decrypter(key, Iv::copy(self.iv.as_ref()))
            }
        }
    }

    fn seal(&mut self, kind: u8, text: &[u8]) -> Vec<u8> {
        let message = OutboundPlainMessage {
            typ: ContentType::from(kind),
            version: ProtocolVersion::TLSv1_2,
            payload: OutboundChunks::Single(text),
        };
        let sealed = self.encrypter().encrypt(message, self.number).unwrap();
        self.number += 1;
        sealed.encode()
    }

    /// Decrypts a record; returns its type and text.
    fn open(&mut self, record: &mut [u8]) -> Option<(u8, Vec<u8>)> {
        let (head, payload) = record.split_at_mut(5);
        let version = ProtocolVersion::TLSv1_2;
        let sealed = InboundOpaqueMessage::new(ContentType::from(head[0]), version, payload);
        let opened = self.decrypter().decrypt(sealed, self.number).ok()?;
        self.number += 1;
        Some((u8::from(opened.typ), opened.payload.to_vec()))
    }

    /// Derives the next key (RFC 8446, section 7.2).
    fn update(&mut self) {
        let SupportedCipherSuite::Tls13(suite) = self.suite else {
            panic!("KeyUpdate is of TLS 1.3");
        };
        let expand = |secret: &[u8], label: &str, out: &mut [u8]| {
            let label = format!("tls13 {label}");
            let info: [&[u8]; 4] = [
                &(out.len() as u16).to_be_bytes(),
                &[label.len() as u8],
                label.as_bytes(),
                &[0],
            ];
            let expander = suite.hkdf_provider.expander_for_okm(&OkmBlock::new(secret));
            assert!(expander.expand_slice(&info, out).is_ok(), "a short output");
        };
        let mut secret = vec![0; self.secret.len()];
        expand(&self.secret, "traffic upd", &mut secret);
        let (mut key, mut iv) = ([0; 32], [0; 12]);
        expand(&secret, "key", &mut key);
        expand(&secret, "iv", &mut iv);
        (self.secret, self.key, self.iv) = (secret, AeadKey::from(key), Iv::new(iv));
        self.number = 0;
    }
}

fn copy(key: &AeadKey) -> AeadKey {
    let bytes: [u8; 32] = key
        .as_ref()
        .try_into()
        .expect("ChaCha20 has keys of 32 bytes");
    AeadKey::from(bytes)
}

/// The traffic secrets of TLS 1.3: client's, server's.
#[derive(Debug, Default)]
struct Secrets(Mutex<[Vec<u8>; 2]>);

impl KeyLog for Secrets {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        let side = match label {
            "CLIENT_TRAFFIC_SECRET_0" => 0,
            "SERVER_TRAFFIC_SECRET_0" => 1,
            _ => return,
        };
        self.0.lock().unwrap()[side] = secret.to_vec();
    }
}

pub(super) fn run(
    version: &str,
    commands: &[&str],
    mut socket: TcpStream,
    patience: Duration,
) -> Tls {
    let mut seen = Tls::default();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket.set_nodelay(true).unwrap();
    let (mut out, mut back) = handshake(version, &mut socket);
    let mut bytes = Vec::new();
    for command in commands {
        follow(command, &mut out, &mut bytes);
    }
    bytes.extend(out.seal(APPLICATION, AFTER));
    // A server that rejects early may have closed before all is written.
    let _ = socket.write_all(&bytes);
    socket.set_read_timeout(Some(patience)).unwrap();
    let mut text = Vec::new();
    while seen.answer.is_none() && seen.alert.is_none() && !seen.closed {
        let mut record = match read_record(&mut socket) {
            Ok(record) => record,
            Err(error) => {
                use std::io::ErrorKind::{TimedOut, WouldBlock};
                seen.closed = !matches!(error.kind(), TimedOut | WouldBlock);
                break;
            }
        };
        match back.open(&mut record) {
            Some((ALERT, alert)) => seen.hear(alert[0], alert[1]),
            Some((APPLICATION, data)) => {
                text.extend(data);
                seen.answer = text.windows(7).any(|w| w == b" 200 OK").then_some("served");
            }
            Some((HANDSHAKE, message)) if message.first() == Some(&KEY_UPDATE) => back.update(),
            Some(_) => {}
            // Alerts of TLS 1.2 before the keys are in use, and broken records.
            None if record[0] == ALERT => seen.hear(record[5], record[6]),
            // Data encrypted by a key that was changed without notice; an alert would be shorter.
            None if record[0] == APPLICATION && record.len() > 64 => seen.answer = Some("served"),
            None => seen.closed = true,
        }
    }
    seen
}

/// Returns both directions after a handshake with ChaCha20-Poly1305.
fn handshake(version: &str, socket: &mut TcpStream) -> (Direction, Direction) {
    let (version, suites) = match version {
        "1.2" => (
            &rustls::version::TLS12,
            vec![
                aws_lc_rs::cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
                aws_lc_rs::cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
            ],
        ),
        _ => (
            &rustls::version::TLS13,
            vec![aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256],
        ),
    };
    let provider = CryptoProvider {
        cipher_suites: suites,
        ..aws_lc_rs::default_provider()
    };
    let nothing = Shown {
        chain: Vec::new(),
        key: Vec::new(),
    };
    let mut config = Arc::unwrap_or_clone(client_config(
        &nothing,
        &Arc::new(provider),
        &[version],
        &["http/1.1"],
    ));
    let secrets = Arc::new(Secrets::default());
    config.key_log = Arc::clone(&secrets) as _;
    config.enable_secret_extraction = true;
    let name = "a.example".try_into().unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    while client.is_handshaking() || client.wants_write() {
        while client.wants_write() {
            client.write_tls(socket).unwrap();
        }
        if client.is_handshaking() {
            let record = read_record(socket).expect("a handshake");
            client.read_tls(&mut record.as_slice()).unwrap();
            client.process_new_packets().expect("a handshake");
        }
    }
    let suite = client.negotiated_cipher_suite().unwrap();
    let extracted = client.dangerous_extract_secrets().unwrap();
    let [up, down] = std::mem::take(&mut *secrets.0.lock().unwrap());
    let direction = |(number, keys), secret| {
        let ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } = keys else {
            panic!("another suite was chosen");
        };
        Direction {
            suite,
            secret,
            key,
            iv,
            number,
        }
    };
    (direction(extracted.tx, up), direction(extracted.rx, down))
}

fn follow(command: &str, out: &mut Direction, bytes: &mut Vec<u8>) {
    let (word, rest) = command.split_once(' ').unwrap_or((command, ""));
    let typed = || {
        let (kind, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let kind = u8::from_str_radix(kind, 16).expect("a hexadecimal number");
        (kind, unescape(text))
    };
    match word {
        "app" => bytes.extend(out.seal(APPLICATION, &unescape(rest))),
        "inner" => {
            let (kind, text) = typed();
            bytes.extend(out.seal(kind, &text));
        }
        "clear" => {
            let (kind, text) = typed();
            bytes.extend(record(kind, 0x0303, &text));
        }
        "spoilt" => {
            let mut sealed = out.seal(APPLICATION, &unescape(rest));
            *sealed.last_mut().unwrap() ^= 1;
            bytes.extend(sealed);
        }
        "update" => {
            let asks = rest.parse::<u8>().expect("0 or 1");
            bytes.extend(out.seal(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, asks]));
            out.update();
        }
        "renegotiate" => bytes.extend(out.seal(HANDSHAKE, &hello::good())),
        "times" => {
            let (count, command) = rest.split_once(' ').expect("N COMMAND");
            for _ in 0..count.parse::<u32>().expect("a number") {
                follow(command, out, bytes);
            }
        }
        _ => panic!("no command \"{word}\""),
    }
}
