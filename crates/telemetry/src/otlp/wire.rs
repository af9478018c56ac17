//! Writes the wire format of protocol buffers, as far as spans need it.

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH: u32 = 2;
const FIXED32: u32 = 5;

fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn tag(out: &mut Vec<u8>, field: u32, kind: u32) {
    push_varint(out, u64::from(field << 3 | kind));
}

pub(super) fn varint(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, VARINT);
    push_varint(out, value);
}

pub(super) fn fixed64(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn fixed32(out: &mut Vec<u8>, field: u32, value: u32) {
    tag(out, field, FIXED32);
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    tag(out, field, LENGTH);
    push_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Writes a message or text whose length is known only afterwards.
pub(super) fn nested(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    tag(out, field, LENGTH);
    let start = out.len();
    write(out);
    let end = out.len();
    push_varint(out, (end - start) as u64);
    let length = out.len() - end;
    out[start..].rotate_right(length);
}
