//! Tokens from a file, for a mesh without Kubernetes: `--tokens FILE`.
//!
//! The format is one token per line, `TOKEN NAMESPACE/SERVICE-ACCOUNT [UNTIL]`; `#` begins a comment, UNTIL is an RFC
//! 3339 time. The file is read at each request, so that removing a line takes effect immediately.

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::authenticate::{Authenticated, Authenticator, Caller, TokenError};

/// Minimum length of a token in bytes; a shorter one could be guessed.
const SHORTEST: usize = 16;

/// Reason why a file of tokens cannot be used. The errors never contain a token.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A line is malformed.
    #[error("{}: line {line}: {what}", path.display())]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// The line number, from 1.
        line: usize,
        /// What is wrong with the line.
        what: LineError,
    },
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Error in a line.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LineError {
    /// The second field is not a service account.
    #[error("the second field must be NAMESPACE/SERVICE-ACCOUNT")]
    Account,
    /// There are too few or too many fields.
    #[error("expected `TOKEN NAMESPACE/SERVICE-ACCOUNT [UNTIL]`")]
    Fields,
    /// The token is so short that it could be guessed.
    #[error("the token is shorter than {SHORTEST} characters")]
    Short,
    /// The third field is not a time.
    #[error("the third field must be a time such as 2027-01-31T12:00:00Z")]
    Time,
}

/// A line of the file.
struct Entry<'a> {
    token: &'a str,
    caller: Caller,
    until: Option<Timestamp>,
}

/// A file of tokens.
#[derive(Debug)]
pub struct Tokens(PathBuf);

impl Tokens {
    /// Opens a file of tokens.
    ///
    /// # Errors
    /// If the file cannot be read, or if a line is invalid.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let tokens = Self(path.to_owned());
        tokens.entries(&tokens.read()?)?;
        Ok(tokens)
    }

    fn read(&self) -> Result<String, FileError> {
        std::fs::read_to_string(&self.0).map_err(|source| FileError::Read {
            path: self.0.clone(),
            source,
        })
    }

    fn entries<'a>(&self, text: &'a str) -> Result<Vec<Entry<'a>>, FileError> {
        let lines = text.lines().enumerate();
        let lines =
            lines.map(|(at, line)| (at + 1, line.split('#').next().unwrap_or_default().trim()));
        let entry = |(line, text): (usize, &'a str)| {
            entry(text).map_err(|what| FileError::Line {
                path: self.0.clone(),
                line,
                what,
            })
        };
        lines
            .filter(|(_, text)| !text.is_empty())
            .map(entry)
            .collect()
    }

    fn find(&self, token: &str, now: Timestamp) -> Result<Caller, TokenError> {
        let unavailable = |error: FileError| TokenError::Unavailable(error.to_string());
        let text = self.read().map_err(unavailable)?;
        let entries = self.entries(&text).map_err(unavailable)?;
        let mut found = Err(TokenError::Invalid("unknown token".to_owned()));
        // All entries are always compared, so that the duration does not depend on the token.
        for entry in entries {
            if is_same(entry.token, token) {
                found = match entry.until.is_some_and(|until| until <= now) {
                    true => Err(TokenError::Invalid("the token has expired".to_owned())),
                    false => Ok(entry.caller),
                };
            }
        }
        found
    }
}

impl Authenticator for Tokens {
    fn authenticate<'a>(&'a self, token: &'a str) -> Authenticated<'a> {
        Box::pin(async move { self.find(token, Timestamp::now()) })
    }
}

fn entry(text: &str) -> Result<Entry<'_>, LineError> {
    let mut words = text.split_whitespace();
    let (Some(token), Some(account)) = (words.next(), words.next()) else {
        return Err(LineError::Fields);
    };
    let until = words.next().map(str::parse).transpose();
    if words.next().is_some() {
        return Err(LineError::Fields);
    }
    if token.len() < SHORTEST {
        return Err(LineError::Short);
    }
    let account = account.split_once('/');
    let account = account.filter(|(namespace, name)| is_name(namespace) && is_name(name));
    let (namespace, account) = account.ok_or(LineError::Account)?;
    Ok(Entry {
        token,
        caller: Caller {
            namespace: namespace.to_owned(),
            service_account: account.to_owned(),
            pod: None,
        },
        until: until.map_err(|_| LineError::Time)?,
    })
}

/// Roughly validates a DNS name of Kubernetes (RFC 1123); the SPIFFE ID is validated later.
fn is_name(text: &str) -> bool {
    let plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    !text.is_empty() && text.bytes().all(plain)
}

/// Compares in constant time, reading both strings to their ends.
fn is_same(one: &str, other: &str) -> bool {
    let differ = one
        .bytes()
        .zip(other.bytes())
        .fold(0, |sum, (a, b)| sum | (a ^ b));
    one.len() == other.len() && differ == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> (tempfile::TempDir, Result<Tokens, FileError>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, text).unwrap();
        let tokens = Tokens::open(&path);
        (folder, tokens)
    }

    #[test]
    fn a_token_is_its_accounts_until_it_ends() {
        let (_folder, tokens) = tokens(
            "# who        what\n\
             0123456789abcdef shop/cart\n\
             fedcba9876543210 shop/web 2026-01-01T00:00:00Z # for a day\n",
        );
        let tokens = tokens.unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let find = |token, time| tokens.find(token, at(time));
        let cart = find("0123456789abcdef", "2030-01-01T00:00:00Z").unwrap();
        assert_eq!((&*cart.namespace, &*cart.service_account), ("shop", "cart"));
        assert!(find("fedcba9876543210", "2025-12-31T23:59:59Z").is_ok());
        for (token, time) in [
            ("fedcba9876543210", "2026-01-01T00:00:00Z"),
            ("0123456789abcde", "2025-01-01T00:00:00Z"),
            ("0123456789abcdef0", "2025-01-01T00:00:00Z"),
            ("", "2025-01-01T00:00:00Z"),
        ] {
            let error = find(token, time).unwrap_err();
            assert_eq!(error.word(), "invalid-token");
        }
    }

    #[test]
    fn what_is_wrong_is_said_by_line_and_without_the_token() {
        for (line, expected) in [
            ("0123456789abcdef", LineError::Fields),
            ("0123456789abcdef a/b c d", LineError::Fields),
            ("0123456789abcde shop/cart", LineError::Short),
            ("0123456789abcdef shop", LineError::Account),
            ("0123456789abcdef shop/", LineError::Account),
            ("0123456789abcdef shop/a/b", LineError::Account),
            ("0123456789abcdef shop/Cart", LineError::Account),
            ("0123456789abcdef shop/cart tomorrow", LineError::Time),
        ] {
            let (_folder, tokens) = tokens(&format!("\n{line}\n"));
            let error = tokens.unwrap_err();
            assert!(!error.to_string().contains("0123456789"), "{error}");
            match error {
                FileError::Line { line: 2, what, .. } => assert_eq!(what, expected, "{line}"),
                other => panic!("{line}: {other}"),
            }
        }
    }
}
