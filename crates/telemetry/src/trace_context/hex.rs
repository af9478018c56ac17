//! Lower-case hexadecimal digits, in which trace headers contain identifiers.

/// Decodes exactly `2 * N` digits; upper case is rejected.
pub(super) fn decode<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// Returns the two digits of each byte.
#[inline]
pub(super) fn digits<const N: usize>(bytes: [u8; N]) -> [[u8; 2]; N] {
    let mut digits = [[0; 2]; N];
    let mut at = 0;
    // `map` and iterators are not unrolled, and take five times as many instructions.
    while at < N {
        digits[at] = PAIRS[usize::from(bytes[at])];
        at += 1;
    }
    digits
}

/// The two digits of each byte.
static PAIRS: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < pairs.len() {
        pairs[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    pairs
};

/// Returns digits and dashes as a string.
pub(super) fn text(ascii: &[u8]) -> &str {
    std::str::from_utf8(ascii).expect("digits and dashes are ASCII")
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}
