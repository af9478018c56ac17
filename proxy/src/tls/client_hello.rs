//! The first message of a client, before rustls takes it.
//!
//! rustls (0.23) takes three kinds of ClientHello that OpenSSL and BoringSSL refuse: one behind a close_notify, one whose list of
//! names ends within a name, and one of a client that was made to fall back to TLS 1.2 (RFC 7507). The message is read here as
//! where a filter chain is chosen by it, so that a listener takes the same messages whether it has one chain or several.

use std::io;

use bytes::BytesMut;
use rustls::{AlertDescription, InvalidMessage};
use tokio::net::TcpStream;

use crate::protocol::detect::{self, Error};

/// A client that could do more than it offers.
#[derive(Debug, thiserror::Error)]
#[error("the client fell back to a version older than both sides can do (RFC 7507)")]
struct Fallback;

/// Reads the ClientHello into `seen`, which may hold its beginning.
///
/// # Errors
/// When there is none, or it is malformed, or of a client that fell back; the client has been sent an alert.
pub(super) async fn read(tcp: &mut TcpStream, seen: &mut BytesMut) -> io::Result<()> {
    // The same alert as rustls sends for what it cannot read.
    let unread = AlertDescription::DecodeError;
    let (alert, error) = match detect::client_hello(tcp, seen).await {
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
    // The client may have left; it learns less then.
    let _ = tcp.try_write(&fatal(alert));
    Err(error)
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// A record in the clear with a fatal alert (RFC 8446 §6).
fn fatal(alert: AlertDescription) -> [u8; 7] {
    const ALERT: u8 = 21;
    const FATAL: u8 = 2;
    [ALERT, 3, 3, 0, 2, FATAL, alert.into()]
}
