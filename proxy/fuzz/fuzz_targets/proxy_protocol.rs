//! PROXY protocol: no panic, a header is parsed equally with any following bytes, its prefixes are
//! incomplete, and a parsed header can be written and parsed again in both versions.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use maglor_proxy::seams::{Parsed, encode_v1, encode_v2, parse_proxy_header as parse};

fuzz_target!(|input: (u16, &[u8])| {
    let (cut, bytes) = input;
    let Ok(Parsed::Header { len, addresses }) = parse(bytes) else {
        return;
    };
    let header = &bytes[..len];
    let whole = Parsed::Header { len, addresses };
    assert_eq!(parse(header).expect("read before"), whole);
    let beginning = &header[..usize::from(cut) % len];
    assert_eq!(
        parse(beginning).expect("may become a header"),
        Parsed::Incomplete
    );
    for encode in [encode_v1, encode_v2] {
        let mut out = BytesMut::new();
        encode(addresses.as_ref(), &mut out);
        let len = out.len();
        out.extend_from_slice(bytes);
        let again = parse(&out).expect("written by us");
        assert_eq!(again, Parsed::Header { len, addresses });
    }
});
