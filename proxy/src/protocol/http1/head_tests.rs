use super::*;

const LIMITS: Limits = Limits {
    bytes: 8192,
    headers: 100,
};

fn request(text: &str) -> Result<Option<(RequestHead, usize)>, HeadError> {
    parse_request(text.as_bytes(), LIMITS)
}

fn good(text: &str) -> RequestHead {
    request(text).unwrap().unwrap().0
}

fn response(text: &str, method: &Method) -> Result<ResponseHead, HeadError> {
    parse_response(text.as_bytes(), LIMITS, method).map(|parsed| parsed.unwrap().0)
}

#[test]
fn every_prefix_of_a_request_is_incomplete_and_the_whole_is_not() {
    let text = "POST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello";
    let head = text.len() - 5;
    for end in 0..head {
        assert!(request(&text[..end]).unwrap().is_none(), "{end}");
    }
    let (parsed, len) = request(text).unwrap().unwrap();
    assert_eq!(len, head);
    assert_eq!(parsed.framing, Framing::Length(5));
    let part = |span| parsed.fields.slice(span);
    assert_eq!(part(parsed.target.path_and_query), b"/a?b=c");
    assert_eq!(part(parsed.target.path()), b"/a");
    assert_eq!(part(parsed.target.query().unwrap()), b"b=c");
}

#[test]
fn framing_that_two_parsers_could_read_differently_is_refused() {
    use HeadError as E;
    let cases = [
        (
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            E::ContentLengthAndTransferEncoding,
        ),
        ("Content-Length: 5\r\nContent-Length: 6", E::ContentLength),
        ("Content-Length: 5, 5", E::ContentLength),
        ("Content-Length: +5", E::ContentLength),
        ("Content-Length: -5", E::ContentLength),
        ("Content-Length: 0x5", E::ContentLength),
        ("Content-Length: ", E::ContentLength),
        ("Content-Length: 99999999999999999999", E::ContentLength),
        ("Transfer-Encoding: chunked, chunked", E::TransferEncoding),
        ("Transfer-Encoding: gzip, chunked", E::TransferEncoding),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
            E::TransferEncoding,
        ),
        ("Transfer-Encoding: xchunked", E::TransferEncoding),
        ("Transfer-Encoding : chunked", E::Malformed),
        ("X: a\r\n b", E::Malformed),
        ("X: a\rb", E::Malformed),
        ("X: a\0b", E::Malformed),
        ("X Y: a", E::Malformed),
        (": a", E::Malformed),
        ("X: a\n", E::BareLf),
    ];
    for (lines, expected) in cases {
        let got = request(&format!("POST / HTTP/1.1\r\nHost: x\r\n{lines}\r\n\r\n"));
        assert_eq!(got.err(), Some(expected), "{lines:?}");
    }
    let old = request("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(old.err(), Some(HeadError::TransferEncoding));
}

#[test]
fn equal_lengths_are_merged() {
    let head = good("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\ncontent-length: 5\r\n\r\n");
    assert_eq!(head.framing, Framing::Length(5));
    assert_eq!(head.fields.all(Known::ContentLength).count(), 1);
}

#[test]
fn targets_come_in_four_forms() {
    let target = |line: &str| request(&format!("{line} HTTP/1.1\r\nHost: x\r\n\r\n"));
    let fine = |line: &str| target(line).unwrap().unwrap().0;
    let absolute = fine("GET http://a.b:80/c?d");
    assert_eq!(
        absolute.fields.slice(absolute.target.authority.unwrap()),
        b"a.b:80"
    );
    assert_eq!(
        absolute.fields.slice(absolute.target.path_and_query),
        b"/c?d"
    );
    let bare = fine("GET HTTP://a.b");
    assert_eq!(bare.fields.slice(bare.target.path_and_query), b"");
    let query = fine("GET http://a.b?c");
    assert_eq!(query.fields.slice(query.target.query().unwrap()), b"c");
    assert_eq!(fine("OPTIONS *").target.authority, None);
    let connect = fine("CONNECT a.b:443");
    assert_eq!(
        connect.fields.slice(connect.target.authority.unwrap()),
        b"a.b:443"
    );
    for bad in [
        "GET *",
        "GET a",
        "GET a.b:80",
        "GET ftp://a/",
        "GET http:///x",
        "GET http://u@a/",
        "GET /a#b",
        "CONNECT a.b",
        "CONNECT /",
        "CONNECT a.b:",
        "CONNECT http://a/",
    ] {
        assert_eq!(target(bad).err(), Some(HeadError::Target), "{bad}");
    }
}

#[test]
fn the_host_is_there_once_and_looks_like_one() {
    let host = |lines: &str| request(&format!("GET / HTTP/1.1\r\n{lines}\r\n")).err();
    assert_eq!(host(""), Some(HeadError::Host));
    assert_eq!(host("Host: a\r\nHost: a\r\n"), Some(HeadError::Host));
    assert_eq!(host("Host: a/b\r\n"), Some(HeadError::Host));
    assert_eq!(host("Host: a b\r\n"), Some(HeadError::Host));
    assert_eq!(host("Host: u@a\r\n"), Some(HeadError::Host));
    for good in ["[::1]:80", "[::1]", "[fe80::1]:", "a:80", "a:", "a_b.c,d"] {
        assert_eq!(host(&format!("Host: {good}\r\n")), None, "{good}");
    }
    // Two parsers would find two hosts.
    for bad in [
        "%61",
        "a%2eb",
        "a.example%00",
        "[fe80::1%25eth0]",
        "a:80:80",
        "a:b",
        "a:80b",
        ":80",
        "::1",
        "[::1",
        "[]",
        "[::1]a",
        "[::1]:b",
        "a]",
        "a[::1]",
        "[a[b]",
    ] {
        let found = host(&format!("Host: {bad}\r\n"));
        assert_eq!(found, Some(HeadError::Host), "{bad}");
    }
    assert_eq!(host("Host:\r\n"), None);
    assert!(request("GET / HTTP/1.0\r\n\r\n").unwrap().is_some());
}

#[test]
fn persistence_follows_version_and_connection() {
    let keeps = |version: &str, line: &str| {
        good(&format!("GET / HTTP/{version}\r\nHost: x\r\n{line}\r\n")).keep_alive
    };
    assert!(keeps("1.1", ""));
    assert!(!keeps("1.1", "Connection: Close\r\n"));
    assert!(!keeps("1.1", "Connection: x, close\r\n"));
    assert!(!keeps("1.0", ""));
    assert!(keeps("1.0", "Connection: Keep-Alive\r\n"));
}

#[test]
fn responses_end_as_their_status_and_request_say() {
    let get = Method::GET;
    let framing = |text: &str, method| response(text, method).unwrap().framing;
    let with = |line: &str| format!("HTTP/1.1 200 OK\r\n{line}\r\n");
    assert_eq!(framing(&with(""), &get), Framing::Close);
    assert_eq!(
        framing(&with("Content-Length: 3\r\n"), &get),
        Framing::Length(3)
    );
    assert_eq!(
        framing(&with("Content-Length: 3\r\n"), &Method::HEAD),
        Framing::EMPTY
    );
    assert_eq!(
        framing(&with("Transfer-Encoding: chunked\r\n"), &get),
        Framing::Chunked
    );
    assert_eq!(
        framing("HTTP/1.1 204 No Content\r\n\r\n", &get),
        Framing::EMPTY
    );
    assert_eq!(
        framing(
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
            &get
        ),
        Framing::EMPTY
    );
    assert_eq!(
        framing("HTTP/1.1 100 Continue\r\n\r\n", &get),
        Framing::EMPTY
    );
    let both = with("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n");
    assert!(response(&both, &get).is_err());
}

#[test]
fn limits_hold() {
    let long = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}", "a".repeat(9000));
    assert_eq!(request(&long).err(), Some(HeadError::TooLarge));
    let whole = format!("{long}\r\n\r\n");
    assert_eq!(request(&whole).err(), Some(HeadError::TooLarge));
    let no_colon = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n\r\n", "x".repeat(9000));
    assert_eq!(request(&no_colon).err(), Some(HeadError::TooLarge));
    let short = "GET / HTTP/1.1\r\nHost: x\r\nx\r\n\r\n";
    assert_eq!(request(short).err(), Some(HeadError::Malformed));
    let many = format!(
        "GET / HTTP/1.1\r\nHost: x\r\n{}\r\n",
        "X: a\r\n".repeat(100)
    );
    assert_eq!(request(&many).err(), Some(HeadError::TooManyHeaders));
}

#[test]
fn trailers_lose_what_must_not_come_late() {
    let text = b"X-Sum: 1\r\nContent-Length: 5\r\nHost: x\r\n\r\n";
    let (trailers, len) = parse_trailers(text).unwrap().unwrap();
    assert_eq!(len, text.len());
    assert_eq!(trailers.len(), 1);
}
