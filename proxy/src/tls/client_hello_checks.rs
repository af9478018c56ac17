//! Checks of a client's first message, before rustls handles it.
//!
//! rustls (0.23) accepts three kinds of ClientHello that OpenSSL and BoringSSL reject: one after a close_notify, one
//! whose list of names is truncated, and one of a client that was made to fall back to TLS 1.2 (RFC 7507). The parser
//! is the same as for the selection of a filter chain, so that a listener accepts the same messages whether it has
//! one chain or several.

use std::io;

use bytes::BytesMut;
use rustls::{AlertDescription, InvalidMessage};
use tokio::net::TcpStream;

use crate::protocol::detect::{self, Error};

/// Error for a client that supports a newer version than it offers.
#[derive(Debug, thiserror::Error)]
#[error("the client fell back to a version older than both sides support (RFC 7507)")]
struct Fallback;

/// Reads the ClientHello into `seen`, which may hold its beginning.
///
/// # Errors
/// If there is no ClientHello, or if it is malformed or a fallback. An alert has been sent to the client.
pub(super) async fn read_checked(tcp: &mut TcpStream, seen: &mut BytesMut) -> io::Result<()> {
    // The alert that rustls sends for malformed messages.
    let unread = AlertDescription::DecodeError;
    let (alert, error) = match detect::read_client_hello(tcp, seen).await {
        Ok(Some(hello)) if !hello.is_fallback => return Ok(()),
        Ok(Some(_)) => (AlertDescription::InappropriateFallback, invalid(Fallback)),
        Ok(None) => {
            let error = rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
            (unread, invalid(error))
        }
        Err(error @ (Error::Malformed(_) | Error::TooLong)) => (unread, invalid(error)),
        Err(Error::Io(error)) => return Err(error),
        Err(Error::Closed) => return Err(io::ErrorKind::UnexpectedEof.into()),
    };
    // No alert is sent if the client has closed the connection.
    let _ = tcp.try_write(&fatal(alert));
    Err(error)
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Returns an unencrypted record with a fatal alert (RFC 8446 §6).
fn fatal(alert: AlertDescription) -> [u8; 7] {
    const ALERT: u8 = 21;
    const FATAL: u8 = 2;
    [ALERT, 3, 3, 0, 2, FATAL, alert.into()]
}
