//! Protocol detection: no panic, a prefix never changes the result, and input detected as HTTP/1
//! or TLS looks like it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maglor_proxy::seams::{Detected, Protocol, http2_preface, protocol, tls};

/// So many bytes are always enough: the longest request line that is waited for, and its ends.
const ENOUGH: usize = 9 * 1024;

fuzz_target!(|bytes: &[u8]| {
    let mut before = None;
    // Every cut of what decides, and some of the rest.
    let cuts = (0..bytes.len().min(256)).chain((256..bytes.len()).step_by(97));
    for cut in cuts.chain([bytes.len()]) {
        let now = protocol(&bytes[..cut]);
        if before.is_some() {
            assert_eq!(now, before, "after {cut} bytes");
        }
        before = now;
        match now {
            None => assert!(cut < ENOUGH, "undecided after {cut} bytes"),
            Some(Protocol::Http2) => assert_eq!(http2_preface(&bytes[..cut]), Detected::Yes),
            Some(Protocol::Tls) => assert_eq!(tls(&bytes[..cut]), Detected::Yes),
            Some(Protocol::Http1) => {
                let words = bytes[..cut].trim_ascii_start().split(|&byte| byte == b' ');
                assert!(words.count() >= 2);
            }
            Some(Protocol::MeshTransport) => panic!("that is selected by ALPN"),
            Some(Protocol::Silent) => panic!("bytes are not silence"),
            Some(Protocol::Bytes) => {}
        }
    }
});
