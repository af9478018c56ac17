use super::*;

fn decode_all(
    framing: Framing,
    input: &[u8],
    step: usize,
) -> Result<(Vec<u8>, bool), FramingError> {
    let mut decoder = Decoder::new(framing);
    let mut buf = BytesMut::new();
    let mut body = Vec::new();
    let mut trailers = false;
    let mut chunks = input.chunks(step);
    loop {
        match decoder.decode(&mut buf)? {
            Piece::Data(data) => body.extend_from_slice(&data),
            Piece::Trailers(_) => trailers = true,
            Piece::End => return Ok((body, trailers)),
            Piece::More => match chunks.next() {
                Some(chunk) => buf.extend_from_slice(chunk),
                None => decoder.eof()?,
            },
        }
    }
}

#[test]
fn every_split_of_a_chunked_body_decodes_alike() {
    let input = b"5\r\nhello\r\n6;ext=\"x\"\r\n world\r\n0\r\nx-sum: 1\r\n\r\n";
    for step in 1..=input.len() {
        let (body, trailers) = decode_all(Framing::Chunked, input, step).unwrap();
        assert_eq!(body, b"hello world");
        assert!(trailers);
    }
}

#[test]
fn length_and_close_bodies_end_where_they_should() {
    assert_eq!(
        decode_all(Framing::Length(3), b"abcdef", 6).unwrap().0,
        b"abc"
    );
    assert_eq!(
        decode_all(Framing::Close, b"abcdef", 2).unwrap().0,
        b"abcdef"
    );
    assert_eq!(decode_all(Framing::Length(0), b"abcdef", 6).unwrap().0, b"");
}

#[test]
fn a_truncated_body_is_an_error() {
    let eof = Err(FramingError::UnexpectedEof);
    assert_eq!(decode_all(Framing::Length(3), b"ab", 1), eof);
    assert_eq!(decode_all(Framing::Chunked, b"5\r\nhel", 1), eof);
    assert_eq!(decode_all(Framing::Chunked, b"5\r\nhello\r\n", 1), eof);
    assert_eq!(decode_all(Framing::Chunked, b"0\r\n", 1), eof);
}

#[test]
fn ambiguous_chunks_are_refused() {
    for bad in [
        &b"5\nhello\r\n0\r\n\r\n"[..],
        b"5\r\nhelloXX0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"-5\r\nhello\r\n",
        b"+5\r\nhello\r\n",
        b"0x5\r\nhello\r\n",
        b" 5\r\nhello\r\n",
        b"5 5\r\nhello\r\n",
        b"\r\nhello\r\n",
        b"5\r\r\nhello\r\n0\r\n\r\n",
        b"5\x0b\r\nhello\r\n0\r\n\r\n",
        b"5\x0c\r\nhello\r\n0\r\n\r\n",
        b"5\x0c;a\r\nhello\r\n0\r\n\r\n",
        b"5 \r;a\r\nhello\r\n0\r\n\r\n",
        b"ffffffffffffffff\r\n",
        b"10000000000000000\r\n",
        b"5;a\x00\r\nhello\r\n",
        b"5;a\rb\r\nhello\r\n",
        b"0\r\nbad trailer\r\n\r\n",
        b"0\r\nx: 1\n\r\n",
    ] {
        let got = decode_all(Framing::Chunked, bad, bad.len());
        assert!(
            got.is_err(),
            "{:?} gave {got:?}",
            String::from_utf8_lossy(bad)
        );
    }
}

#[test]
fn an_endless_size_line_is_refused() {
    let mut line = b"5;".to_vec();
    line.resize(MAX_CHUNK_LINE + 1, b'a');
    let got = decode_all(Framing::Chunked, &line, 100);
    assert_eq!(got, Err(FramingError::ChunkLineTooLong));
}

#[test]
fn encoded_chunks_decode() {
    let mut out = BytesMut::new();
    for len in [1usize, 9, 10, 15, 16, 255, 4096, 65537] {
        encode_chunk_size(len, &mut out);
        out.extend_from_slice(&vec![b'x'; len]);
        out.extend_from_slice(b"\r\n");
    }
    encode_chunked_end(None, &mut out);
    let (body, trailers) = decode_all(Framing::Chunked, &out, 1000).unwrap();
    assert_eq!(body.len(), 1 + 9 + 10 + 15 + 16 + 255 + 4096 + 65537);
    assert!(!trailers);
}
