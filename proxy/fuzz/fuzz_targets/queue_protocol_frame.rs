//! Frames of the queue protocol: no panic, and a decoded frame is encoded as the same bytes, except for what has no
//! meaning.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maglor_proxy::seams::{QUEUE_FRAME_LENGTH as FRAME_LENGTH, QueueFrame as Frame};

fuzz_target!(|bytes: [u8; FRAME_LENGTH]| {
    if let Some(frame) = Frame::decode(&bytes) {
        let again = frame.encode();
        assert_eq!(Frame::decode(&again), Some(frame));
        assert_eq!(
            Frame::decode(&again).map(|frame| frame.encode()),
            Some(again)
        );
    }
});
