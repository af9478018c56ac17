//! Frames of the mesh transport: no panic, and the result does not depend on how the bytes are split.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maglor_proxy::seams::mesh_transport::{Decoder, Frame, Malformed};

/// Smaller than some texts that come.
const TEXT_LIMIT: usize = 64;

/// The content of frames, with the pieces of a body joined.
fn decode(pieces: &[&[u8]]) -> (Vec<String>, Option<Malformed>) {
    let mut decoder = Decoder::new(TEXT_LIMIT);
    let mut frames = Vec::new();
    let mut body = (0, Vec::new());
    for mut piece in pieces.iter().copied() {
        loop {
            match decoder.next(&mut piece) {
                Ok(None) => break,
                Ok(Some(Frame::Data { stream, bytes, end })) => {
                    if stream != body.0 {
                        body = (stream, Vec::new());
                    }
                    body.1.extend_from_slice(bytes);
                    if end {
                        frames.push(format!("{body:?}"));
                        body.1.clear();
                    }
                }
                Ok(Some(Frame::Silent)) => {}
                Ok(Some(frame)) => frames.push(format!("{frame:?}")),
                Err(error) => return (frames, Some(error)),
            }
        }
        assert!(piece.is_empty());
    }
    (frames, None)
}

fuzz_target!(|input: (usize, &[u8])| {
    let (cut, bytes) = input;
    let (a, b) = bytes.split_at(cut.min(bytes.len()));
    let whole = decode(&[bytes]);
    assert_eq!(decode(&[a, b]), whole);
    let single: Vec<_> = bytes.chunks(1).collect();
    assert_eq!(decode(&single), whole);
});
