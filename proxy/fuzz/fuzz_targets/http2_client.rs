//! Input of an HTTP/2 server: no panic, the result does not depend on how the bytes are split, and buffers stay within
//! the windows.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maglor_proxy::seams::{Answers, ClientExercise};

/// Requests of an exercise, and the window of each.
const STREAMS: usize = 4;
const WINDOW: usize = 64 * 1024;

fn run(pieces: &[&[u8]]) -> Answers {
    let mut exercise = ClientExercise::default();
    let settings: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    let begun = exercise.run(&[settings]);
    assert_eq!(begun.closed, None);
    assert!(exercise.is_usable());
    exercise.run(pieces)
}

fuzz_target!(|input: (usize, &[u8])| {
    let (cut, bytes) = input;
    let (a, b) = bytes.split_at(cut.min(bytes.len()));
    let whole = run(&[bytes]);
    assert!(whole.buffered <= STREAMS * WINDOW);
    assert_eq!(run(&[a, b]), whole);
    let single: Vec<_> = bytes.chunks(1).collect();
    assert_eq!(run(&single), whole);
});
