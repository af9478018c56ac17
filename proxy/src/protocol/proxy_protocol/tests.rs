use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use super::*;

fn addresses(source: &str, destination: &str) -> Addresses {
    Addresses {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
    }
}

/// Returns a version 2 header with the given family and body, without checksum.
fn v2_header(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let mut header = v2::SIGNATURE.to_vec();
    header.extend([command, family]);
    header.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
    header.extend(body);
    header
}

const INET: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 7, 0x30, 0x39, 0x01, 0xbb];

#[test]
fn what_is_written_is_read_whatever_follows() {
    let cases = [
        addresses("192.0.2.1:12345", "198.51.100.7:443"),
        addresses("255.255.255.255:65535", "0.0.0.0:0"),
        addresses("[2001:db8::1]:1", "[2001:db8::2]:65535"),
        // Mixed families, and IPv4-mapped IPv6: both are returned as IPv4.
        addresses("192.0.2.1:5", "[2001:db8::2]:6"),
        addresses("[2001:db8::1]:5", "192.0.2.1:6"),
    ];
    for version in [ProxyProtocolOut::V1, ProxyProtocolOut::V2] {
        for addresses in cases.iter().map(Some).chain([None]) {
            let mut out = BytesMut::new();
            encode(version, addresses, &mut out);
            let len = out.len();
            let whole = Parsed::Header {
                len,
                addresses: addresses.copied(),
            };
            out.extend_from_slice(b"PROXY \r\n\r\n\0\r\nQUIT\n");
            assert_eq!(parse(&out).unwrap(), whole);
            assert_eq!(parse(&out[..len]).unwrap(), whole);
            for cut in 0..len {
                let parsed = parse(&out[..cut]).unwrap();
                assert_eq!(parsed, Parsed::Incomplete, "{version:?} cut at {cut}");
            }
        }
    }
}

#[test]
fn the_longest_version_1_line_is_written_and_read() {
    let longest = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    let line = format!("PROXY UNKNOWN {longest} {longest} 65535 65535\r\n");
    assert_eq!(line.len(), 107);
    let header = Parsed::Header {
        len: 107,
        addresses: None,
    };
    assert_eq!(parse(line.as_bytes()).unwrap(), header);
}

#[test]
fn mapped_addresses_are_written_as_ipv4() {
    let mut out = BytesMut::new();
    encode_v1(
        Some(&addresses("[::ffff:192.0.2.1]:1", "[::ffff:192.0.2.2]:2")),
        &mut out,
    );
    assert_eq!(&out[..], b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n");
}

#[test]
fn other_protocols_are_not_headers() {
    let cases: [&[u8]; 8] = [
        b"G",
        b"PRI * HTTP/2.0\r\n",
        b"PROXI",
        b"proxy TCP4",
        b"\r\n\r\n\0\r\nQUIX",
        b"\r\nGET",
        b"\x16\x03\x01",
        b"\0",
    ];
    for bytes in cases {
        assert_eq!(parse(bytes).unwrap(), Parsed::Absent, "{bytes:?}");
    }
    assert_eq!(parse(b"").unwrap(), Parsed::Incomplete);
}

#[test]
fn malformed_version_1_is_refused() {
    let cases = [
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
        "PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4\t192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2 192.0.2.2 1 2\r\n",
        "PROXY TCP4 ::1 ::1 1 2\r\n",
        "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 -1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2  2\r\n",
        "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY unknown\r\n",
        "PROXY \r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\r\n",
        "PROXY TCP4 \u{661}.0.2.1 192.0.2.2 1 2\r\n",
    ];
    for line in cases {
        assert!(
            matches!(parse(line.as_bytes()), Err(Error::Malformed(_))),
            "{line:?}"
        );
    }
    let long = format!("PROXY UNKNOWN {}", "x".repeat(107 - 14));
    assert!(matches!(parse(long.as_bytes()), Err(Error::Malformed(_))));
    assert_eq!(
        parse(&long.as_bytes()[..106]).unwrap(),
        Parsed::Incomplete,
        "the end may still come"
    );
}

#[test]
fn malformed_version_2_is_refused() {
    let mut short_tlv = INET.to_vec();
    short_tlv.extend([4, 0]);
    let mut long_tlv = INET.to_vec();
    long_tlv.extend([4, 0, 2, 0]);
    let cases = [
        ("version", v2_header(0x11, 0x11, &INET)),
        ("command", v2_header(0x22, 0x11, &INET)),
        ("family", v2_header(0x21, 0x41, &INET)),
        ("transport", v2_header(0x21, 0x13, &INET)),
        ("short block", v2_header(0x21, 0x11, &INET[..11])),
        ("short IPv6 block", v2_header(0x21, 0x21, &[0; 35])),
        ("short UNIX block", v2_header(0x21, 0x31, &[0; 215])),
        ("TLV cut off", v2_header(0x21, 0x11, &short_tlv)),
        ("TLV too long", v2_header(0x21, 0x11, &long_tlv)),
        ("too long", v2_header(0x21, 0x00, &[0; 4097])),
    ];
    for (what, header) in cases {
        assert!(matches!(parse(&header), Err(Error::Malformed(_))), "{what}");
    }
}

#[test]
fn version_2_is_refused_as_early_as_possible() {
    let mut begin = v2::SIGNATURE.to_vec();
    begin.push(0x31);
    assert!(parse(&begin).is_err(), "version");
    begin.pop();
    begin.extend([0x21, 0x11, 0xff, 0xff]);
    assert!(parse(&begin).is_err(), "length");
}

#[test]
fn version_2_without_usable_addresses() {
    let cases = [
        (
            "LOCAL, whatever the body",
            v2_header(0x20, 0x11, &[1, 2, 3]),
        ),
        ("unspecified family", v2_header(0x21, 0x00, &[9; 7])),
        ("UNIX socket", v2_header(0x21, 0x31, &[7; 216])),
    ];
    for (what, header) in cases {
        let len = header.len();
        let expected = Parsed::Header {
            len,
            addresses: None,
        };
        assert_eq!(parse(&header).unwrap(), expected, "{what}");
    }
}

#[test]
fn version_2_options_are_skipped_and_the_checksum_verified() {
    // ALPN, then the checksum, then padding.
    let mut body = INET.to_vec();
    body.extend([1, 0, 2, b'h', b'2', 3, 0, 4, 0, 0, 0, 0, 4, 0, 1, 0]);
    let mut header = v2_header(0x21, 0x11, &body);
    let at = header.len() - 8;
    let crc = v2::crc32c(&[&header]);
    header[at..at + 4].copy_from_slice(&crc.to_be_bytes());
    let expected = Parsed::Header {
        len: header.len(),
        addresses: Some(addresses("192.0.2.1:12345", "198.51.100.7:443")),
    };
    assert_eq!(parse(&header).unwrap(), expected);
    for i in 16..header.len() {
        let mut flipped = header.clone();
        flipped[i] ^= 1;
        assert!(parse(&flipped).is_err() || i == at - 3, "byte {i} flipped");
    }
}

#[test]
fn crc32c_of_known_values() {
    // RFC 3720 B.4.
    assert_eq!(v2::crc32c(&[&[0; 32]]), 0x8a91_36aa);
    assert_eq!(v2::crc32c(&[&[0xff; 16], &[0xff; 16]]), 0x62a8_ab43);
    assert_eq!(v2::crc32c(&[b"123456789"]), 0xe306_9283);
}

/// Sends `parts` one by one, closes, and reads the header.
async fn read(
    parts: &'static [&'static [u8]],
    mode: ProxyProtocolIn,
) -> (Result<Option<Addresses>, Error>, BytesMut) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap());
    let (client, accepted) = tokio::join!(client, listener.accept());
    let (mut client, mut tcp) = (client.unwrap(), accepted.unwrap().0);
    let sender = async move {
        for part in parts {
            client.write_all(part).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let mut buf = BytesMut::new();
    let (result, ()) = tokio::join!(read_header(&mut tcp, &mut buf, mode), sender);
    (result, buf)
}

#[tokio::test]
async fn reads_a_header_that_comes_in_pieces_and_keeps_the_rest() {
    let (result, rest) = read(
        &[
            b"PR",
            b"OXY TCP4 192.0.2.1 198.51.100.7 12",
            b"345 443\r\nGET",
        ],
        ProxyProtocolIn::Require,
    )
    .await;
    let expected = addresses("192.0.2.1:12345", "198.51.100.7:443");
    assert_eq!(result.unwrap(), Some(expected));
    assert_eq!(&rest[..], b"GET");
}

#[tokio::test]
async fn without_header_accept_keeps_the_bytes_and_require_refuses() {
    let (result, rest) = read(&[b"PR", b"I * HTTP/2.0"], ProxyProtocolIn::Accept).await;
    assert_eq!(result.unwrap(), None);
    assert_eq!(&rest[..], b"PRI * HTTP/2.0");
    let (result, _) = read(&[b"GET / HTTP/1.1"], ProxyProtocolIn::Require).await;
    assert!(matches!(result, Err(Error::Missing)));
    let (result, rest) = read(&[], ProxyProtocolIn::Off).await;
    assert_eq!(result.unwrap(), None);
    assert!(rest.is_empty());
}

#[tokio::test]
async fn a_connection_that_ends_too_early_is_an_error() {
    for mode in [ProxyProtocolIn::Accept, ProxyProtocolIn::Require] {
        let (result, _) = read(&[b"PROXY TCP4"], mode).await;
        assert!(matches!(result, Err(Error::Closed)));
    }
}
