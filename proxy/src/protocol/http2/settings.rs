//! Settings (RFC 9113, section 6.5.2): encodes those of this side, and parses those of the peer.

use bytes::BytesMut;

use super::frame::{self, LAST_STREAM, flag, kind};
use super::reason::Malformed;
use crate::protocol::streams::STREAM_WINDOW;

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;
/// Setting of RFC 8441, section 3.
const ENABLE_CONNECT_PROTOCOL: u16 = 8;
/// Setting of RFC 9218, section 2.1.
const NO_RFC7540_PRIORITIES: u16 = 9;

/// The settings of the peer that have an effect.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Settings {
    /// Size of the peer's decoding table in bytes: the smallest value in the frame; `None` if unchanged.
    pub(super) table: Option<u32>,
    /// Initial window of a stream in bytes; `None` if unchanged.
    pub(super) window: Option<u32>,
    /// Maximum number of concurrent streams; `None` if unchanged. A client does not limit the requests that a server
    /// receives.
    pub(super) max_streams: Option<u32>,
}

/// Parses pairs of identifiers and values. If a setting occurs several times, the last one applies, as if they
/// were processed one after the other.
///
/// # Errors
/// If a setting has an invalid value.
pub(super) fn parse(payload: &[u8]) -> Result<Settings, Malformed> {
    let mut settings = Settings::default();
    for [n0, n1, v0, v1, v2, v3] in payload.as_chunks::<6>().0 {
        let value = u32::from_be_bytes([*v0, *v1, *v2, *v3]);
        match u16::from_be_bytes([*n0, *n1]) {
            HEADER_TABLE_SIZE => {
                let least = settings.table.map_or(value, |least| least.min(value));
                settings.table = Some(least);
            }
            INITIAL_WINDOW_SIZE if value > LAST_STREAM => {
                return Err(Malformed::flow("SETTINGS_INITIAL_WINDOW_SIZE above 2^31-1"));
            }
            INITIAL_WINDOW_SIZE => settings.window = Some(value),
            MAX_CONCURRENT_STREAMS => settings.max_streams = Some(value),
            ENABLE_PUSH | ENABLE_CONNECT_PROTOCOL | NO_RFC7540_PRIORITIES if value > 1 => {
                return Err(Malformed::protocol(
                    "a boolean setting that is neither 0 nor 1",
                ));
            }
            MAX_FRAME_SIZE if !(0x4000..=0x00ff_ffff).contains(&value) => {
                return Err(Malformed::protocol("SETTINGS_MAX_FRAME_SIZE out of range"));
            }
            _ => {}
        }
    }
    Ok(settings)
}

/// Appends the settings of a server.
pub(super) fn encode(max_streams: u32, header_list: u32, out: &mut BytesMut) {
    let settings = [
        (MAX_CONCURRENT_STREAMS, max_streams),
        (INITIAL_WINDOW_SIZE, STREAM_WINDOW),
        (MAX_HEADER_LIST_SIZE, header_list),
    ];
    encode_all(settings, out);
}

/// Appends the settings of a client.
pub(super) fn encode_client(window: u32, header_list: u32, out: &mut BytesMut) {
    let settings = [
        (ENABLE_PUSH, 0),
        (INITIAL_WINDOW_SIZE, window),
        (MAX_HEADER_LIST_SIZE, header_list),
    ];
    encode_all(settings, out);
}

fn encode_all(settings: [(u16, u32); 3], out: &mut BytesMut) {
    out.extend_from_slice(&frame::header(6 * settings.len(), kind::SETTINGS, 0, 0));
    for (name, value) in settings {
        out.extend_from_slice(&name.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Appends the acknowledgement of the peer's settings.
pub(super) fn acknowledge(out: &mut BytesMut) {
    out.extend_from_slice(&frame::header(0, kind::SETTINGS, flag::ACK, 0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::http2::reason::Reason;

    fn payload(settings: &[(u16, u32)]) -> Vec<u8> {
        let bytes =
            |(name, value): &(u16, u32)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
        settings.iter().flat_map(bytes).collect()
    }

    #[test]
    fn the_last_window_counts_and_the_least_table() {
        let settings = parse(&payload(&[
            (4, 1),
            (1, 9),
            (4, 70_000),
            (1, 0),
            (1, 4096),
            (77, 7),
        ]));
        let expected = Settings {
            table: Some(0),
            window: Some(70_000),
            max_streams: None,
        };
        assert_eq!(settings, Ok(expected));
        let streams = parse(&payload(&[(3, 7), (3, 0)]));
        assert_eq!(streams.unwrap().max_streams, Some(0));
        assert_eq!(parse(&[]), Ok(Settings::default()));
    }

    #[test]
    fn values_out_of_range_are_errors_of_their_own_kind() {
        for (name, value, reason) in [
            (2, 2, Reason::Protocol),
            (4, 1 << 31, Reason::FlowControl),
            (5, 16_383, Reason::Protocol),
            (5, 1 << 24, Reason::Protocol),
            (8, 2, Reason::Protocol),
            (9, 2, Reason::Protocol),
        ] {
            let parsed = parse(&payload(&[(name, value)]));
            assert_eq!(parsed.map_err(|error| error.reason), Err(reason), "{name}");
        }
        for (name, value) in [
            (2, 1),
            (3, 0),
            (4, LAST_STREAM),
            (5, 16_384),
            (6, 0),
            (8, 1),
            (9, 0),
        ] {
            assert!(parse(&payload(&[(name, value)])).is_ok(), "{name}");
        }
    }
}
