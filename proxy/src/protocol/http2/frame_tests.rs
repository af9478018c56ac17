use super::*;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    [&header(payload.len(), kind, flags, stream), payload].concat()
}

/// Returns the preface and SETTINGS, followed by these frames.
fn client(frames: &[Vec<u8>]) -> Vec<u8> {
    [
        &PREFACE[..],
        &frame(kind::SETTINGS, 0, 0, &[]),
        &frames.concat(),
    ]
    .concat()
}

/// Describes the decoded frames, with the pieces of bodies joined, and the error of the last one.
fn decode(bytes: &[u8], step: usize) -> (Vec<String>, Option<Malformed>) {
    let mut decoder = Decoder::new(20_000);
    let mut frames = Vec::new();
    let mut body = Vec::new();
    for mut piece in bytes.chunks(step) {
        loop {
            match decoder.next(&mut piece) {
                Ok(None) => break,
                Ok(Some(Frame::Data {
                    stream,
                    bytes,
                    padding,
                    end,
                })) => {
                    body.extend_from_slice(bytes);
                    if padding > 0 || end {
                        frames.push(format!("{stream} {body:?} {padding} {end}"));
                        body.clear();
                    }
                }
                Ok(Some(frame)) => frames.push(format!("{frame:?}")),
                Err(error) => return (frames, Some(error)),
            }
        }
        assert!(piece.is_empty());
    }
    (frames, None)
}

#[test]
fn frames_say_the_same_however_they_are_cut() {
    let long = vec![7; 15_000];
    let bytes = client(&[
        frame(
            kind::HEADERS,
            0x2d,
            1,
            &[2, 0, 0, 0, 0, 9, b'a', b'b', 0, 0],
        ),
        frame(kind::DATA, 8, 1, &[3, b'x', b'y', 0, 0, 0]),
        frame(kind::DATA, 1, 1, b"z"),
        frame(kind::HEADERS, 1, 3, &long[..9000]),
        frame(kind::CONTINUATION, 0, 3, &[]),
        frame(kind::CONTINUATION, 4, 3, &long[9000..]),
        frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 1, 0]),
        frame(kind::SETTINGS, 1, 0, &[]),
        frame(kind::PING, 0, 0, b"12345678"),
        frame(kind::PING, 1, 0, b"12345678"),
        frame(kind::WINDOW_UPDATE, 0, 0, &[0x80, 0, 0, 5]),
        frame(kind::PRIORITY, 0, 5, &[0, 0, 0, 5, 1]),
        frame(kind::PRIORITY, 0, 5, &[0, 0, 0, 5]),
        frame(kind::RST_STREAM, 0, 3, &[0, 0, 0, 8]),
        frame(77, 0xff, 9, b"whatever"),
        frame(kind::GOAWAY, 0, 0, b"12345678 and why"),
        frame(kind::DATA, 9, 1, &[0]),
    ]);
    let (frames, wrong) = decode(&bytes, bytes.len());
    assert_eq!(wrong, None);
    assert_eq!(frames.len(), 18, "{frames:?}");
    assert!(
        frames[1].contains("block: [97, 98], end: true, circular: false"),
        "{}",
        frames[1]
    );
    assert_eq!(frames[2], "1 [120, 121] 4 false");
    assert!(frames[6].contains(&format!("block: {long:?}")));
    assert_eq!(frames[17], "1 [] 1 true");
    for step in [1, 2, 3, 7, 9, 10, 100, 8192] {
        assert_eq!(decode(&bytes, step), (frames.clone(), None), "{step}");
    }
}

/// Checks that the last of these frames ends the connection.
#[track_caller]
fn end_by(frames: &[Vec<u8>], reason: Reason) {
    let bytes = client(frames);
    for step in [1, bytes.len()] {
        let (_, wrong) = decode(&bytes, step);
        assert_eq!(wrong.map(|wrong| wrong.reason), Some(reason), "{step}");
    }
}

#[test]
fn frames_of_the_wrong_size() {
    for (kind, flags, stream, length) in [
        (kind::DATA, 0, 1, 16_385),
        (99, 0, 1, 16_385),
        (kind::SETTINGS, 0, 0, 5),
        (kind::SETTINGS, flag::ACK, 0, 6),
        (kind::PING, 0, 0, 7),
        (kind::GOAWAY, 0, 0, 7),
        (kind::RST_STREAM, 0, 1, 3),
        (kind::WINDOW_UPDATE, 0, 1, 5),
        (kind::DATA, flag::PADDED, 1, 0),
        (kind::HEADERS, flag::PADDED | flag::END_HEADERS, 1, 0),
        (kind::HEADERS, flag::PRIORITY | flag::END_HEADERS, 1, 4),
    ] {
        end_by(
            &[frame(kind, flags, stream, &vec![0; length])],
            Reason::FrameSize,
        );
    }
}

#[test]
fn frames_on_the_wrong_stream() {
    for (kind, stream, length) in [
        (kind::DATA, 0, 1),
        (kind::HEADERS, 0, 1),
        (kind::PRIORITY, 0, 5),
        (kind::RST_STREAM, 0, 4),
        (kind::SETTINGS, 1, 0),
        (kind::PING, 1, 8),
        (kind::GOAWAY, 1, 8),
        (kind::PUSH_PROMISE, 1, 5),
        (kind::CONTINUATION, 1, 0),
    ] {
        end_by(
            &[frame(kind, 0, stream, &vec![0; length])],
            Reason::Protocol,
        );
    }
}

#[test]
fn padding_beyond_the_frame() {
    let ends = flag::PADDED | flag::END_HEADERS;
    for (kind, flags, payload) in [
        (kind::DATA, flag::PADDED, &[1][..]),
        (kind::HEADERS, ends, &[2, 0x82]),
        (kind::HEADERS, flag::PADDED, &[2, 0x82]),
    ] {
        end_by(&[frame(kind, flags, 1, payload)], Reason::Protocol);
    }
}

#[test]
fn field_blocks_that_are_not_continued_or_never_end() {
    let headers = || frame(kind::HEADERS, flag::END_STREAM, 1, &[0x82]);
    for next in [
        frame(kind::CONTINUATION, flag::END_HEADERS, 3, &[]),
        frame(kind::PING, 0, 0, &[0; 8]),
        frame(99, 0, 1, &[]),
    ] {
        end_by(&[headers(), next], Reason::Protocol);
    }
    let part = || frame(kind::CONTINUATION, 0, 1, &[0; 10_000]);
    end_by(&[headers(), part(), part()], Reason::EnhanceYourCalm);
}

#[test]
fn the_preface_and_settings_come_first() {
    let ping = frame(kind::PING, 0, 0, &[0; 8]);
    for bad in [
        b"PRI * HTTP/2.1\r\n\r\nSM\r\n\r\n".to_vec(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        [&PREFACE[..], &ping].concat(),
        [&PREFACE[..], &frame(kind::SETTINGS, 1, 0, &[])].concat(),
    ] {
        let (frames, wrong) = decode(&bad, 5);
        assert_eq!(wrong.map(|wrong| wrong.reason), Some(Reason::Protocol));
        assert!(frames.is_empty());
    }
    let mut decoder = Decoder::new(100);
    assert!(decoder.is_in_head());
    let mut input = &client(&[frame(kind::HEADERS, 0, 1, &[0x82])])[..];
    assert!(matches!(
        decoder.next(&mut input),
        Ok(Some(Frame::Settings(&[])))
    ));
    assert!(!decoder.is_in_head());
    assert!(matches!(
        decoder.next(&mut input),
        Ok(Some(Frame::Part { empty: false }))
    ));
    assert!(decoder.is_in_head());
    let mut input = &frame(kind::CONTINUATION, 4, 1, &[])[..];
    assert!(matches!(
        decoder.next(&mut input),
        Ok(Some(Frame::Headers { .. }))
    ));
    assert!(!decoder.is_in_head());
}
