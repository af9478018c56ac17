//! The Huffman code of HPACK (RFC 7541, section 5.2 and appendix B).
//!
//! The code is canonical: codes of one length are consecutive numbers, in the order of their symbols, and begin where
//! those of the next shorter length end. Therefore the lengths determine the code.

/// Symbols in the order of their codes, without the end-of-string symbol, which would be last.
const SYMBOLS: [u8; 256] = {
    let mut symbols = [0; 256];
    let mut at = 0;
    let mut length = 0;
    while length < COUNTS.len() {
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                symbols[at] = symbol as u8;
                at += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    symbols
};

/// Length of each symbol's code, in bits.
#[rustfmt::skip]
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, // NUL …
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, // space …
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, // 0 …
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, // @ A …
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, // P …
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, // ` a …
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, // p …
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, // 128 …
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, // 160 …
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, // 192 …
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, // 224 …
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

/// Number of symbols with a code of this length.
const COUNTS: [u16; LONGEST + 1] = {
    let mut counts = [0; LONGEST + 1];
    let mut symbol = 0;
    while symbol < LENGTHS.len() {
        counts[LENGTHS[symbol] as usize] += 1;
        symbol += 1;
    }
    counts
};

const LONGEST: usize = 30;

/// Codes of one length: the number after the last code, aligned to the top of 32 bits, and the index in [`SYMBOLS`]
/// of the symbol that a code of zero would have.
#[derive(Clone, Copy)]
struct Group {
    end: u64,
    base: i64,
}

const GROUPS: [Group; LONGEST + 1] = {
    let mut groups = [Group { end: 0, base: 0 }; LONGEST + 1];
    let mut code: u64 = 0;
    let mut at: i64 = 0;
    let mut length = 1;
    while length <= LONGEST {
        code <<= 1;
        let base = at - code as i64;
        code += COUNTS[length] as u64;
        at += COUNTS[length] as i64;
        groups[length] = Group {
            end: code << (32 - length),
            base,
        };
        length += 1;
    }
    groups
};

/// Symbol and length of the code at the beginning of eight bits; the length is zero if the code is longer.
static SHORT_CODES: [(u8, u8); 256] = {
    let mut short = [(0, 0); 256];
    let mut byte: usize = 0;
    while byte < short.len() {
        let bits = (byte as u64) << 24;
        let mut length = 1;
        while length <= 8 {
            if bits < GROUPS[length].end {
                let code = (byte >> (8 - length)) as i64;
                short[byte] = (SYMBOLS[(code + GROUPS[length].base) as usize], length as u8);
                break;
            }
            length += 1;
        }
        byte += 1;
    }
    short
};

/// A static in addition to the constant, so that the table exists once at run time.
static LONG_CODES: [Group; LONGEST + 1] = GROUPS;
static IN_ORDER: [u8; 256] = SYMBOLS;

/// Decodes a string and appends its text.
///
/// # Errors
/// If the code is invalid: it contains the end-of-string symbol, or its padding is not at most seven one bits.
pub(super) fn decode(code: &[u8], out: &mut Vec<u8>) -> Result<(), BadCode> {
    // Each symbol has at least five bits.
    out.reserve(code.len() * 8 / 5);
    let mut rest = code;
    // The next bits, aligned to the top.
    let mut bits: u64 = 0;
    let mut have: u32 = 0;
    loop {
        // No code is longer than 32 bits.
        if have <= 32 {
            if let Some((word, after)) = rest.split_first_chunk() {
                bits |= u64::from(u32::from_be_bytes(*word)) << (32 - have);
                have += 32;
                rest = after;
            } else {
                for byte in rest {
                    bits |= u64::from(*byte) << (56 - have);
                    have += 8;
                }
                rest = &[];
            }
        }
        let (symbol, length) = SHORT_CODES[(bits >> 56) as usize];
        if length > 0 && u32::from(length) <= have {
            out.push(symbol);
            bits <<= length;
            have -= u32::from(length);
            continue;
        }
        if have < 8 {
            // Padding must be the beginning of the longest code, which consists of ones.
            let padding = !(u64::MAX >> have);
            return (bits == padding).then_some(()).ok_or(BadCode);
        }
        let (symbol, length) = long(bits).ok_or(BadCode)?;
        if length > have {
            return Err(BadCode);
        }
        out.push(symbol);
        bits <<= length;
        have -= length;
    }
}

/// Decodes a code of more than eight bits; `None` is the end of a string.
fn long(bits: u64) -> Option<(u8, u32)> {
    let top = bits >> 32;
    let length = (9..=LONGEST).find(|length| top < LONG_CODES[*length].end)?;
    let code = (top >> (32 - length)) as i64;
    let at = usize::try_from(code + LONG_CODES[length].base).ok()?;
    Some((*IN_ORDER.get(at)?, length as u32))
}

/// Error of [`decode`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct BadCode;

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a text, for tests: the proxy itself sends no Huffman code.
    pub(super) fn encode(text: &[u8]) -> Vec<u8> {
        let mut bits: Vec<bool> = Vec::new();
        for symbol in text {
            let length = usize::from(LENGTHS[usize::from(*symbol)]);
            let at = SYMBOLS.iter().position(|one| one == symbol).unwrap() as i64;
            let code = at - GROUPS[length].base;
            bits.extend((0..length).rev().map(|bit| code >> bit & 1 == 1));
        }
        while !bits.len().is_multiple_of(8) {
            bits.push(true);
        }
        let byte = |bits: &[bool]| bits.iter().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
        bits.chunks(8).map(byte).collect()
    }

    fn text(code: &[u8]) -> Result<Vec<u8>, BadCode> {
        let mut out = Vec::new();
        decode(code, &mut out).map(|()| out)
    }

    #[test]
    fn the_code_is_complete_but_for_the_end_of_a_string() {
        let all: u64 = LENGTHS.iter().map(|length| 1 << (30 - length)).sum();
        assert_eq!(all, (1 << 30) - 1);
    }

    /// Codes from the appendix, with some of each length.
    #[test]
    fn codes_are_those_of_the_rfc() {
        for (symbol, code, length) in [
            (b'0', 0x0, 5),
            (b't', 0x9, 5),
            (b' ', 0x14, 6),
            (b'u', 0x2d, 6),
            (b':', 0x5c, 7),
            (b'z', 0x7b, 7),
            (b'&', 0xf8, 8),
            (b'Z', 0xfd, 8),
            (b'!', 0x3f8, 10),
            (b'|', 0x7fc, 11),
            (b'#', 0xffa, 12),
            (0, 0x1ff8, 13),
            (b'}', 0x3ffd, 14),
            (b'{', 0x7ffe, 15),
            (b'\\', 0x7fff0, 19),
            (226, 0xfffed, 20),
            (230, 0x1fffe8, 21),
            (233, 0x3fffeb, 22),
            (239, 0x7ffff4, 23),
            (237, 0xfffff5, 24),
            (235, 0x1ffffef, 25),
            (255, 0x3ffffee, 26),
            (254, 0x7fffff0, 27),
            (249, 0xffffffe, 28),
            (22, 0x3ffffffe, 30_u32),
        ] {
            let padded =
                (u64::from(code as u32) << (32 - length)) | (u64::from(u32::MAX) >> length);
            let bytes = (padded as u32).to_be_bytes();
            let used = length.div_ceil(8) as usize;
            assert_eq!(text(&bytes[..used]), Ok(vec![symbol]), "{symbol}");
            assert_eq!(encode(&[symbol]), bytes[..used], "{symbol}");
        }
    }

    #[test]
    fn every_text_is_read_as_it_was_written() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(text(&encode(&all)), Ok(all.clone()));
        for from in 0..256 {
            for to in from..all.len().min(from + 9) {
                assert_eq!(text(&encode(&all[from..to])), Ok(all[from..to].to_vec()));
            }
        }
        assert_eq!(text(&[]), Ok(Vec::new()));
    }

    #[test]
    fn padding_is_fewer_than_eight_ones() {
        assert_eq!(text(&[0b0001_1111]), Ok(b"a".to_vec()));
        for bad in [
            &[0b0001_1110][..],
            &[0b0001_1111, 0xff],
            &[0xff],
            &[0xff; 4],
            &[0xff, 0xff, 0xff, 0xfc],
            &[0xff, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert_eq!(text(bad), Err(BadCode), "{bad:x?}");
        }
    }

    #[test]
    fn no_bytes_are_too_much_for_it() {
        let mut seed = 1_u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let bytes = seed.to_be_bytes();
            if let Ok(text) = text(&bytes[..seed as usize % 9]) {
                assert_eq!(encode(&text), bytes[..seed as usize % 9]);
            }
        }
    }
}
