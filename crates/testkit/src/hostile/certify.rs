//! Requests for certificates (RFC 2986). The commands are those of certificates
//! (`certificates.rs`), as far as they describe a request, and:
//!
//! | command | meaning |
//! | --- | --- |
//! | `times N COMMAND` | the command N times |
//! | `bytes TEXT` | these bytes instead of a request |
//! | `flip N`, `cut N`, `behind TEXT` | one bit of the byte N from the end is changed; N bytes less; bytes after it |
//! | `token TEXT` | the token that is sent with it, instead of a valid one |
//!
//! Expected outcomes: `certified`, with the id that belongs to the token and nothing else; or one of these gRPC codes.

use super::Case;
use super::certificates::Wanted;
use super::table::unescape;

/// A request with its token.
#[derive(Clone, Debug, Default)]
pub struct SigningRequest {
    /// The request as DER, or other bytes.
    pub der: Vec<u8>,
    /// The token, if it is not a valid one.
    pub token: Option<String>,
}

/// Returns the request of a case.
///
/// # Panics
///
/// If the case is malformed.
#[must_use]
pub fn signing_request(case: &Case) -> SigningRequest {
    let (mut wanted, mut bytes, mut token) = (Wanted::default(), None, None);
    let mut changes = Vec::new();
    for command in case.commands().filter(|command| !command.is_empty()) {
        let (word, rest) = command.split_once(' ').unwrap_or((command, ""));
        match word {
            "bytes" => bytes = Some(unescape(rest)),
            "flip" | "cut" | "behind" => changes.push((word, rest)),
            "token" => {
                let text = String::from_utf8(unescape(rest));
                token = Some(text.expect("a token in UTF-8"));
            }
            "times" => {
                let (count, command) = rest.split_once(' ').expect("N COMMAND");
                (0..count.parse().expect("a number")).for_each(|_: u32| wanted.change(command));
            }
            _ => wanted.change(command),
        }
    }
    let mut der = bytes.unwrap_or_else(|| wanted.request());
    for (word, rest) in changes {
        let number = || rest.parse::<usize>().expect("a number");
        match word {
            "flip" => {
                let at = der.len() - 1 - number();
                der[at] ^= 1;
            }
            "cut" => der.truncate(der.len() - number()),
            _ => der.extend(unescape(rest)),
        }
    }
    SigningRequest { der, token }
}
