//! Damage to the text.

use maglor_balance::Rng;

/// Bytes that are difficult for YAML parsers.
const TOKENS: &[&str] = &[
    "\n",
    "\t",
    ": ",
    "- ",
    "&a ",
    "*a",
    "? ",
    "!!str ",
    "!x ",
    "|\n",
    ">-\n",
    "[",
    "]",
    "{",
    "}",
    ",",
    "#",
    "'",
    "\"",
    "\\",
    "%YAML 1.2\n",
    "---\n",
    "...\n",
    "<<: ",
    "~",
    "null",
    "\u{0}",
    "\u{feff}",
    "\u{85}",
    "\u{2028}",
    "\r",
    "é",
    "💥",
    "0x",
    "-1",
    "1e309",
    ".nan",
    "99999999999999999999",
    "  ",
    "@",
    "`",
    "\"\\x00\"",
    "\"\\ud800\"",
    "&a [*a]",
];

/// One of the first `valid` texts with some changes, mostly one.
pub(crate) fn mutate(texts: &[String], valid: usize, rng: &mut Rng) -> String {
    let mut bytes = texts[rng.below(valid as u32) as usize].clone().into_bytes();
    loop {
        let other = &texts[rng.below(texts.len() as u32) as usize];
        change(&mut bytes, other, rng);
        if rng.below(2) == 0 {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn change(bytes: &mut Vec<u8>, other: &str, rng: &mut Rng) {
    let at = |rng: &mut Rng, len: usize| rng.below(len as u32 + 1) as usize;
    let (a, b) = (at(rng, bytes.len()), at(rng, bytes.len()));
    let (start, end) = (a.min(b), a.max(b));
    match rng.below(8) {
        0 if a < bytes.len() => bytes[a] ^= 1 << rng.below(8),
        1 if a < bytes.len() => {
            bytes.remove(a);
        }
        2 => bytes.insert(a, rng.below(128) as u8),
        3 => {
            let token = TOKENS[rng.below(TOKENS.len() as u32) as usize];
            bytes.splice(a..a, token.bytes());
        }
        4 => {
            bytes.drain(start..end.min(start + 40));
        }
        5 => {
            let chunk = bytes[start..end.min(start + 200)].to_vec();
            let times = 1 + rng.below(4) as usize;
            bytes.splice(a..a, chunk.repeat(times));
        }
        6 => {
            let (from, lines) = (at(rng, other.len()), 1 + rng.below(5) as usize);
            let tail = other.as_bytes()[from..].split_inclusive(|b| *b == b'\n');
            let chunk: Vec<u8> = tail.take(lines).flatten().copied().collect();
            bytes.splice(a..a, chunk);
        }
        _ => bytes.truncate(end),
    }
}
