use maglor_balance::Rng;

use super::*;

const LIMIT: usize = 40_000;

/// A decoded frame, without the buffer it was read from; pieces of one body are joined.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Decoded {
    Data(u32, Vec<u8>, bool),
    Head(u32, Option<Vec<u8>>, bool, bool),
    Trailers(u32, Option<Vec<u8>>),
    Other(String),
}

fn decoded(frame: Frame<'_>) -> Decoded {
    match frame {
        Frame::Data { stream, bytes, end } => Decoded::Data(stream, bytes.to_vec(), end),
        Frame::Head {
            stream,
            text,
            end,
            http2,
        } => Decoded::Head(stream, text.map(<[u8]>::to_vec), end, http2),
        Frame::Trailers { stream, text } => Decoded::Trailers(stream, text.map(<[u8]>::to_vec)),
        other => Decoded::Other(format!("{other:?}")),
    }
}

/// Decodes bytes that arrive in these pieces.
fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Decoded>, Malformed> {
    let mut decoder = Decoder::new(LIMIT);
    let mut all: Vec<Decoded> = Vec::new();
    for mut piece in pieces {
        while let Some(frame) = decoder.next(&mut piece)? {
            if frame == Frame::Silent {
                continue;
            }
            match (all.last_mut(), decoded(frame)) {
                (Some(Decoded::Data(of, bytes, end)), Decoded::Data(stream, more, ends))
                    if *of == stream && !*end =>
                {
                    bytes.extend(more);
                    *end = ends;
                }
                (_, frame) => all.push(frame),
            }
        }
        assert!(piece.is_empty(), "all of the input is taken");
    }
    Ok(all)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    [&header(payload.len(), kind, flags, stream)[..], payload].concat()
}

#[test]
fn the_layout_is_as_documented() {
    assert_eq!(
        header(0x0102, kind::HEAD, flag::END, 0x0a0b_0c0d),
        [1, 2, 1, 1, 0x0a, 0x0b, 0x0c, 0x0d]
    );
    let mut out = BytesMut::new();
    encode_words(kind::WINDOW, 3, &[70_000], &mut out);
    assert_eq!(out[..], [0, 4, 4, 0, 0, 0, 0, 3, 0, 1, 0x11, 0x70]);
    assert_eq!(
        [
            kind::DATA,
            kind::TRAILERS,
            kind::RESET,
            kind::PING,
            kind::PONG
        ],
        [0, 2, 3, 5, 6]
    );
    assert_eq!([kind::GOAWAY, kind::SETTINGS], [7, 8]);
    assert_eq!([flag::MORE, flag::HTTP2], [2, 4]);
}

#[test]
fn each_kind_is_decoded() {
    let bytes = [
        frame(kind::SETTINGS, 0, 0, &[0, 0, 0, 9, 1, 2]),
        frame(kind::HEAD, flag::END | flag::HTTP2, 1, b"head"),
        frame(kind::TRAILERS, flag::END, 2, b"t"),
        frame(kind::RESET, 0, 3, &[0, 0, 0, 2]),
        frame(kind::PING, 0, 0, &[1, 2, 3, 4, 5, 6, 7, 8]),
        frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 7, 0, 0, 0, 99]),
        frame(200, 3, 5, b"of a later version"),
        frame(kind::DATA, flag::END, 1, b""),
    ];
    let all = decode([&bytes.concat()[..]]).unwrap();
    let other = |text: &str| Decoded::Other(text.into());
    assert_eq!(
        all,
        [
            other("Settings { max_streams: 9 }"),
            Decoded::Head(1, Some(b"head".to_vec()), true, true),
            Decoded::Trailers(2, Some(b"t".to_vec())),
            other("Reset { stream: 3, reason: Refused }"),
            other("Ping(72623859790382856)"),
            other("Goaway { last: 7, reason: Failed }"),
            Decoded::Data(1, vec![], true),
        ]
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    let data = frame(kind::DATA, 0, 1, b"");
    let cases = [
        (data, Malformed::Nothing(kind::DATA)),
        (frame(kind::DATA, 0, 0, b"x"), Malformed::Stream(kind::DATA)),
        (
            frame(kind::PING, 0, 1, &[0; 8]),
            Malformed::Stream(kind::PING),
        ),
        (
            frame(kind::RESET, 0, 1, &[0; 3]),
            Malformed::Length(kind::RESET),
        ),
        (
            frame(kind::WINDOW, 0, 1, &[0; 4]),
            Malformed::Nothing(kind::WINDOW),
        ),
        (
            header(MAX_PAYLOAD + 1, 250, 0, 1).to_vec(),
            Malformed::Length(250),
        ),
        (
            [
                frame(kind::HEAD, flag::MORE, 1, b"a"),
                frame(kind::DATA, 0, 1, b"b"),
            ]
            .concat(),
            Malformed::Interleaved,
        ),
        (
            [
                frame(kind::HEAD, flag::MORE, 1, b"a"),
                frame(kind::HEAD, 0, 2, b"b"),
            ]
            .concat(),
            Malformed::Interleaved,
        ),
    ];
    for (bytes, expected) in cases {
        assert_eq!(decode([&bytes[..]]), Err(expected));
        let single = bytes.chunks(1);
        assert_eq!(decode(single), Err(expected), "byte by byte");
    }
}

#[test]
fn a_text_longer_than_the_limit_is_reported_as_such_and_no_more() {
    let part = vec![b'x'; MAX_PAYLOAD];
    let bytes = [
        frame(kind::HEAD, flag::MORE | flag::END, 1, &part),
        frame(kind::HEAD, flag::MORE | flag::END, 1, &part),
        frame(kind::HEAD, flag::END, 1, &part),
        frame(kind::HEAD, 0, 2, b"fine"),
    ]
    .concat();
    let all = decode([&bytes[..]]).unwrap();
    let fine = Decoded::Head(2, Some(b"fine".to_vec()), false, false);
    assert_eq!(all, [Decoded::Head(1, None, true, false), fine]);
}

#[test]
fn parts_of_a_text_agree_about_what_follows_it() {
    for (first, second) in [
        (0, flag::END),
        (flag::END, 0),
        (flag::END, flag::END | flag::HTTP2),
        (flag::HTTP2, 0),
    ] {
        let bytes = [
            frame(kind::HEAD, flag::MORE | first, 1, b"a"),
            frame(kind::HEAD, second, 1, b"b"),
        ];
        assert_eq!(decode([&bytes.concat()[..]]), Err(Malformed::Flags));
        let bytes = [
            frame(kind::HEAD, flag::MORE | first, 1, b"a"),
            frame(kind::HEAD, first | 0xf8, 1, b"b"),
        ];
        assert!(decode([&bytes.concat()[..]]).is_ok());
    }
}

/// Returns a random number below `n`.
fn below(rng: &mut Rng, n: usize) -> usize {
    rng.below(u32::try_from(n).unwrap()) as usize
}

/// Returns the seed of this run: `SEED` from the environment, or a fixed one. It is printed for a replay.
fn seed() -> u64 {
    let given = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or(71);
    println!("SEED={seed}");
    seed
}

/// Returns a random frame, encoded and decoded.
fn random(rng: &mut Rng) -> (Vec<u8>, Decoded) {
    let stream = 1 + below(rng, 5) as u32;
    let end = below(rng, 2) == 1;
    let flags = if end { flag::END } else { 0 };
    let bytes = |rng: &mut Rng, most: usize| {
        let length = below(rng, most);
        (0..length)
            .map(|_| below(rng, 256) as u8)
            .collect::<Vec<_>>()
    };
    match below(rng, 5) {
        0 => {
            let mut body = bytes(rng, 3000);
            body.push(1);
            let encoded = frame(kind::DATA, flags, stream, &body);
            (encoded, Decoded::Data(stream, body, end))
        }
        1 | 2 => {
            let text = bytes(rng, 2000);
            let mut parts = text.chunks(1 + below(rng, 700)).peekable();
            let mut encoded = Vec::new();
            if text.is_empty() {
                encoded = frame(kind::HEAD, flags, stream, b"");
            }
            while let Some(part) = parts.next() {
                let more = if parts.peek().is_some() {
                    flag::MORE
                } else {
                    0
                };
                encoded.extend(frame(kind::HEAD, flags | more, stream, part));
            }
            (encoded, Decoded::Head(stream, Some(text), end, false))
        }
        3 => {
            let encoded = frame(kind::WINDOW, 0, stream, &[0, 0, 1, 0]);
            let text = format!("Window {{ stream: {stream}, increment: 256 }}");
            (encoded, Decoded::Other(text))
        }
        _ => {
            let encoded = frame(kind::RESET, 0, stream, &[0, 0, 0, 1]);
            let text = format!("Reset {{ stream: {stream}, reason: Cancelled }}");
            (encoded, Decoded::Other(text))
        }
    }
}

#[test]
fn however_reads_are_cut_the_same_frames_are_found() {
    let rng = &mut Rng::seed(seed());
    for _ in 0..200 {
        let frames: Vec<_> = (0..1 + below(rng, 12)).map(|_| random(rng)).collect();
        let bytes: Vec<u8> = frames.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
        let mut expected: Vec<Decoded> = Vec::new();
        for (_, decoded) in frames {
            match (expected.last_mut(), decoded) {
                (Some(Decoded::Data(of, bytes, end)), Decoded::Data(stream, more, ends))
                    if *of == stream && !*end =>
                {
                    bytes.extend(more);
                    *end = ends;
                }
                (_, decoded) => expected.push(decoded),
            }
        }
        let mut pieces = Vec::new();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(1 + below(rng, rest.len()));
            pieces.push(piece);
            rest = after;
        }
        assert_eq!(decode(pieces).unwrap(), expected);
    }
}

#[test]
fn random_bytes_never_panic() {
    let rng = &mut Rng::seed(seed() + 1);
    for _ in 0..2000 {
        let bytes: Vec<u8> = (0..below(rng, 200))
            .map(|_| match below(rng, 3) {
                0 => 0,
                1 => below(rng, 10) as u8,
                _ => below(rng, 256) as u8,
            })
            .collect();
        let cut = below(rng, bytes.len() + 1);
        let (a, b) = bytes.split_at(cut);
        assert_eq!(decode([a, b]), decode([&bytes[..]]));
    }
}
