use bytes::BytesMut;

use super::*;

const LIMITS: Limits = Limits {
    bytes: 1000,
    headers: 8,
};

fn block(fields: &[(&str, &str)]) -> BytesMut {
    let mut out = BytesMut::new();
    for (name, value) in fields {
        // Not by the encoder, which would convert capital letters.
        out.extend_from_slice(&[0, name.len() as u8]);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(&[value.len() as u8]);
        out.extend_from_slice(value.as_bytes());
    }
    out
}

fn read(fields: &[(&str, &str)], end: bool) -> Fit<Head> {
    request(&mut Decoder::default(), &block(fields), LIMITS, end).expect("a field block")
}

fn get<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut fields = vec![
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/a?b"),
        (":authority", "c:80"),
    ];
    fields.extend(more);
    fields
}

#[test]
fn a_request_is_kept_as_text() {
    let fields = get(&[("x-a", "1"), ("cookie", "d"), ("x-a", "2")]);
    let Head { request, length } = read(&fields, true).unwrap();
    assert_eq!((request.method.as_str(), length), ("GET", None));
    assert_eq!(
        (request.path(), request.query()),
        (&b"/a"[..], Some(&b"b"[..]))
    );
    assert_eq!(request.host(), Some(&b"c:80"[..]));
    let mut lines = BytesMut::new();
    request.fields.encode(&mut lines);
    assert_eq!(lines[..], b"x-a: 1\r\ncookie: d\r\nx-a: 2\r\n"[..]);
    assert_eq!(request.fields.get(Known::Cookie), Some(&b"d"[..]));
}

#[test]
fn what_is_malformed_costs_the_stream() {
    let replaced = |name: &'static str, value: &'static str| {
        let mut fields = get(&[]);
        for field in &mut fields {
            if field.0 == name {
                field.1 = value;
            }
        }
        fields
    };
    let without = |name: &str| {
        let mut fields = get(&[]);
        fields.retain(|field| field.0 != name);
        fields
    };
    let mut late = get(&[("x", "y")]);
    late.swap(3, 4);
    for fields in [
        without(":method"),
        without(":scheme"),
        without(":path"),
        get(&[(":path", "/a?b")]),
        get(&[(":status", "200")]),
        get(&[(":protocol", "x")]),
        get(&[(":x", "y")]),
        late,
        replaced(":method", ""),
        replaced(":method", "G T"),
        replaced(":scheme", ""),
        replaced(":scheme", "1http"),
        replaced(":path", ""),
        replaced(":path", "a"),
        replaced(":path", "/a#b"),
        replaced(":path", "#b"),
        replaced(":path", "/a b"),
        replaced(":path", "/a\u{7f}"),
        replaced(":path", "*x"),
        replaced(":authority", ""),
        replaced(":authority", "a/b"),
        replaced(":authority", "a b"),
        get(&[("X", "y")]),
        get(&[("x ", "y")]),
        get(&[("x", "a\nb")]),
        get(&[("x", " a")]),
        get(&[("connection", "x")]),
        get(&[("keep-alive", "x")]),
        get(&[("proxy-connection", "x")]),
        get(&[("transfer-encoding", "chunked")]),
        get(&[("upgrade", "x")]),
        get(&[("te", "gzip")]),
        get(&[("content-length", "x")]),
        get(&[("content-length", "1"), ("content-length", "2")]),
        get(&[("content-length", "1")]),
        replaced(":method", "CONNECT"),
        vec![(":method", "CONNECT")],
    ] {
        assert_eq!(
            read(&fields, true).map(drop),
            Err(Unfit::Malformed),
            "{fields:?}"
        );
    }
}

#[test]
fn what_http_forbids_is_refused_with_an_answer() {
    let long = "y".repeat(126);
    let many: Vec<_> = (0..9).map(|_| ("x", "y")).collect();
    let large: Vec<_> = (0..7).map(|_| ("x", &*long)).collect();
    for (fields, error) in [
        (get(&many), HeadError::TooManyHeaders),
        (get(&large), HeadError::TooLarge),
        (
            vec![(":method", "GET"), (":scheme", "http"), (":path", "/")],
            HeadError::Host,
        ),
        (
            vec![
                (":method", "GET"),
                (":scheme", "http"),
                (":path", "*"),
                ("host", "a"),
            ],
            HeadError::Target,
        ),
        (
            vec![
                (":method", "GET"),
                (":scheme", "http"),
                (":path", "/"),
                (":authority", "u@a"),
            ],
            HeadError::Host,
        ),
    ] {
        assert_eq!(
            read(&fields, true).map(drop),
            Err(Unfit::Refused(error)),
            "{fields:?}"
        );
    }
}

#[test]
fn a_bad_head_leaves_the_table_in_step() {
    let mut decoder = Decoder::default();
    // A name with a capital letter, then one that is added to the table.
    let mut first = block(&get(&[("X", "y")]));
    first.extend_from_slice(b"\x40\x03x-a\x01b");
    let unfit = request(&mut decoder, &first, LIMITS, true).unwrap();
    assert_eq!(unfit.map(drop), Err(Unfit::Malformed));
    let mut second = block(&get(&[]));
    second.extend_from_slice(&[0xbe]);
    let head = request(&mut decoder, &second, LIMITS, true)
        .unwrap()
        .unwrap();
    assert_eq!(
        head.request
            .fields
            .get(crate::protocol::fields::Key::new(b"x-a")),
        Some(&b"b"[..])
    );
}

#[test]
fn trailers_have_no_pseudo_headers_and_only_what_may_come_late() {
    let read = |fields: &[(&str, &str)]| {
        trailers(&mut Decoder::default(), &block(fields), LIMITS, false).unwrap()
    };
    let map = read(&[("x-sum", "1"), ("host", "a"), ("x-sum", "2")]).unwrap();
    assert_eq!((map.len(), map.get_all("x-sum").iter().count()), (2, 2));
    for bad in [
        ":path",
        ":x",
        ":status",
        "X",
        "connection",
        "content-length",
        "te",
    ] {
        assert_eq!(
            read(&[("x", "y"), (bad, "z")]).map(drop),
            Err(Unfit::Malformed),
            "{bad}"
        );
    }
    let long = "y".repeat(126);
    let large: Vec<_> = (0..8).map(|_| ("x", &*long)).collect();
    assert_eq!(
        read(&large).map(drop),
        Err(Unfit::Refused(HeadError::TooLarge))
    );
}
