//! Detection of TLS: nothing panics, and a ClientHello is read alike in one piece and in two.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maglor_proxy::seams::{ClientHelloParser, Detected, http2_preface, tls};

fuzz_target!(|input: (u16, &[u8])| {
    let (cut, bytes) = input;
    if tls(bytes) == Detected::Yes {
        assert_eq!(http2_preface(bytes), Detected::No);
    }
    let whole = ClientHelloParser::default().push(bytes);

    let (first, second) = bytes.split_at(usize::from(cut) % (bytes.len() + 1));
    let mut parser = ClientHelloParser::default();
    let pieces = match parser.push(first) {
        Ok(None) => parser.push(second),
        early => early,
    };
    if let (Ok(whole), Ok(pieces)) = (whole, pieces) {
        assert_eq!(whole, pieces);
        if let Some(name) = whole.and_then(|hello| hello.server_name) {
            assert_eq!(name, name.to_ascii_lowercase());
        }
    }
});
