use bytes::BytesMut;
use http::StatusCode;
use maglor_balance::Rng;

use super::table::FIELDS;
use super::*;
use crate::protocol::fields::Known;
use crate::protocol::http2::reason::{Malformed, Reason};

type Text = (String, String);

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn decode(decoder: &mut Decoder, mut block: &[u8]) -> Result<Vec<Text>, Malformed> {
    decoder.begin(&mut block)?;
    let mut text = Vec::new();
    let mut fields = Vec::new();
    while let Some(line) = decoder.next(&mut block, &mut text, Space::Left(usize::MAX))? {
        let part = |span: crate::protocol::fields::Span| {
            String::from_utf8_lossy(&text[span.start as usize..span.end as usize]).into_owned()
        };
        fields.push(match line.spans {
            Some((name, value)) => (part(name), part(value)),
            None => {
                let (name, value) = FIELDS[line.number - 1];
                (name.into(), value.into())
            }
        });
    }
    Ok(fields)
}

fn texts(fields: &[(&str, &str)]) -> Vec<Text> {
    fields
        .iter()
        .map(|(n, v)| ((*n).into(), (*v).into()))
        .collect()
}

/// A block, its fields, and the table after it.
type Step<'a> = (
    &'a str,
    &'a [(&'a str, &'a str)],
    usize,
    &'a [(&'a str, &'a str)],
);

#[track_caller]
fn check(decoder: &mut Decoder, steps: &[Step<'_>]) {
    for (block, fields, size, table) in steps {
        assert_eq!(decode(decoder, &bytes(block)), Ok(texts(fields)), "{block}");
        assert_eq!(decoder.table().size(), *size, "{block}");
        assert_eq!(decoder.table().fields(), texts(table), "{block}");
    }
}

#[test]
fn forms_of_fields_are_those_of_appendix_c_2() {
    let mut decoder = Decoder::default();
    let custom = [("custom-key", "custom-header")];
    check(
        &mut decoder,
        &[(
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            &custom,
            55,
            &custom,
        )],
    );
    let mut decoder = Decoder::default();
    check(
        &mut decoder,
        &[
            (
                "040c 2f73 616d 706c 652f 7061 7468",
                &[(":path", "/sample/path")],
                0,
                &[],
            ),
            (
                "1008 7061 7373 776f 7264 0673 6563 7265 74",
                &[("password", "secret")],
                0,
                &[],
            ),
            ("82", &[(":method", "GET")], 0, &[]),
        ],
    );
}

#[test]
fn requests_are_those_of_appendices_c_3_and_c_4() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let huffman = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    let host = (":authority", "www.example.com");
    let cache = ("cache-control", "no-cache");
    let custom = ("custom-key", "custom-value");
    for [first, second, third] in [plain, huffman] {
        let get = (":method", "GET");
        check(
            &mut Decoder::default(),
            &[
                (
                    first,
                    &[get, (":scheme", "http"), (":path", "/"), host],
                    57,
                    &[host],
                ),
                (
                    second,
                    &[get, (":scheme", "http"), (":path", "/"), host, cache],
                    110,
                    &[cache, host],
                ),
                (
                    third,
                    &[
                        get,
                        (":scheme", "https"),
                        (":path", "/index.html"),
                        host,
                        custom,
                    ],
                    164,
                    &[custom, cache, host],
                ),
            ],
        );
    }
}

#[test]
fn responses_are_those_of_appendices_c_5_and_c_6() {
    let plain = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 \
         3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 \
         7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 \
         6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
    ];
    let huffman = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad \
         1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 \
         e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    let private = ("cache-control", "private");
    let (date, later) = (
        ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
    );
    let location = ("location", "https://www.example.com");
    let gzip = ("content-encoding", "gzip");
    let cookie = (
        "set-cookie",
        "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
    );
    let status = |code| (":status", code);
    for [first, second, third] in [plain, huffman] {
        let mut decoder = Decoder::default();
        // The examples use a table of 256 bytes.
        assert_eq!(decode(&mut decoder, &bytes("3fe1 01")), Ok(Vec::new()));
        check(
            &mut decoder,
            &[
                (
                    first,
                    &[status("302"), private, date, location],
                    222,
                    &[location, date, private, status("302")],
                ),
                (
                    second,
                    &[status("307"), private, date, location],
                    222,
                    &[status("307"), location, date, private],
                ),
                (
                    third,
                    &[status("200"), private, later, location, gzip, cookie],
                    215,
                    &[cookie, gzip, later],
                ),
            ],
        );
    }
}

#[test]
fn what_is_no_field_block_is_an_error_of_compression() {
    for (what, block) in [
        ("number 0", "80"),
        ("a number beyond both tables", "ff80 01"),
        ("a number of the empty table", "be"),
        ("a name beyond both tables", "7f80 0101 78"),
        ("a number without end", "ffff ffff ffff ffff"),
        ("a number that is cut off", "ff"),
        ("a name that is cut off", "00"),
        ("a value that is cut off", "0001 78"),
        ("a string longer than the block", "0005 78"),
        ("a string of 2^32", "007f 81ff ffff 0f"),
        ("an end of string", "0001 7884 ffff ffff"),
        ("padding of a byte", "0001 7882 1fff"),
        ("padding with zeros", "0001 7881 18"),
        ("a table beyond the setting", "3fe2 1f"),
        ("a size behind a field", "8220"),
    ] {
        let decoded = decode(&mut Decoder::default(), &bytes(block));
        assert_eq!(
            decoded.map_err(|error| error.reason),
            Err(Reason::Compression),
            "{what}"
        );
    }
    // The size of the setting, and several in a row.
    for block in ["3fe1 1f", "203f 0120 82", ""] {
        assert!(
            decode(&mut Decoder::default(), &bytes(block)).is_ok(),
            "{block}"
        );
    }
}

#[test]
fn what_there_is_no_space_for_is_read_all_the_same() {
    let mut decoder = Decoder::default();
    let long = [&[0x40, 1, b'x', 0x7f, 0x81, 0x1e][..], &[b'y'; 3968]].concat();
    let mut text = Vec::new();
    let mut rest = &long[..];
    let line = decoder
        .next(&mut rest, &mut text, Space::Left(4000))
        .unwrap()
        .unwrap();
    assert_eq!(
        (line.size, line.spans.is_none(), text.len()),
        (4001, true, 0)
    );
    for (space, held) in [
        (Space::None, false),
        (Space::Left(4000), false),
        (Space::Left(4001), true),
    ] {
        text.clear();
        let line = decoder
            .next(&mut &[0xbe][..], &mut text, space)
            .unwrap()
            .unwrap();
        assert_eq!((line.size, line.spans.is_some()), (4001, held));
        assert_eq!(text.is_empty(), !held);
    }
}

fn seed() -> u64 {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(7541);
    println!("SEED={seed}");
    seed
}

#[test]
fn what_is_encoded_is_decoded_to_the_same() {
    let mut rng = Rng::seed(seed());
    for _ in 0..2000 {
        let mut out = BytesMut::new();
        let code = 100 + rng.next_u64() % 500;
        let code = StatusCode::from_u16(u16::try_from(code).unwrap()).unwrap();
        status(code, &mut out);
        let mut expected = vec![(":status".to_owned(), code.as_str().to_owned())];
        for _ in 0..rng.next_u64() % 8 {
            let (known, _) = FIELDS[14 + (rng.next_u64() % 47) as usize];
            let name = match rng.next_u64() % 3 {
                0 => known.to_owned(),
                1 => known.to_uppercase(),
                _ => "X-".repeat(1 + (rng.next_u64() % 200) as usize),
            };
            let length = rng.next_u64() % 400;
            let value: String = (0..length)
                .map(|_| char::from(0x21 + (rng.next_u64() % 94) as u8))
                .collect();
            field(
                Known::of(name.as_bytes()),
                name.as_bytes(),
                value.as_bytes(),
                &mut out,
            );
            expected.push((name.to_lowercase(), value));
        }
        let mut decoder = Decoder::default();
        assert_eq!(decode(&mut decoder, &out), Ok(expected));
        assert_eq!(decoder.table().size(), 0, "the two ends share no state");
    }
}

#[test]
fn no_bytes_are_too_much_and_the_table_stays_within_its_size() {
    let mut rng = Rng::seed(seed());
    let mut decoder = Decoder::default();
    for _ in 0..50_000 {
        let length = rng.next_u64() % 40;
        let block: Vec<u8> = (0..length).map(|_| rng.next_u64() as u8).collect();
        let before = decoder.table().size();
        match decode(&mut decoder, &block) {
            Ok(_) => assert!(decoder.table().size() <= 4096),
            Err(error) => assert_eq!(error.reason, Reason::Compression),
        }
        assert!(before <= 4096);
    }
}

#[test]
fn a_cookie_that_is_set_gets_into_no_table() {
    let mut out = BytesMut::new();
    field(Known::SetCookie, b"Set-Cookie", b"a", &mut out);
    assert_eq!(out[..], [0x1f, 55 - 15, 1, b'a']);
}
