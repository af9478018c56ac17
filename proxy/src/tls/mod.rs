//! TLS on both sides: configurations from PEM files, and handshakes.
//!
//! There is one crypto provider (aws-lc-rs). It is passed explicitly, so that no process-wide default has to be
//! installed. Memory is bounded: the server keeps no sessions (tickets are stateless), and the client keeps a small
//! cache. Files are read when a configuration is built; the caller builds it again when [`downstream_files`] and
//! [`upstream_files`] show a change.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use bytes::BytesMut;
use maglor_config::tls::MinimumTlsVersion;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{ServerName, pem};
use rustls::{ClientConfig, ServerConfig, SupportedProtocolVersion};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::net::fairness;
use crate::net::io::{Io, Rewind};

pub(crate) use self::client::client_config;
pub(crate) use self::files::{Roots, downstream_files, upstream_files};
pub(crate) use self::mesh::Peer;
pub(crate) use self::server::server_config;

mod client;
mod client_hello_checks;
pub(crate) mod explain;
mod files;
pub(crate) mod mesh;
mod resolver;
mod server;
#[cfg(test)]
mod tests;

/// Maximum number of plain text bytes that a session buffers while its socket is not writable.
const SESSION_BUFFER: usize = 16 * 1024;

/// Error in building a TLS configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A root certificate cannot be used.
    #[error("{}: not usable as a root certificate: {source}", path.display())]
    BadRoot {
        /// Path of the file.
        path: PathBuf,
        /// Why the certificate cannot be used.
        source: rustls::Error,
    },
    /// The type of a private key is not supported.
    #[error("{}: private key not usable: {source}", path.display())]
    BadKey {
        /// Path of the file.
        path: PathBuf,
        /// Why the key cannot be used.
        source: rustls::Error,
    },
    /// A certificate cannot be parsed.
    #[error("{}: certificate {position} is malformed", path.display())]
    BadCertificate {
        /// Path of the file.
        path: PathBuf,
        /// Position of the certificate in the file, from 1.
        position: usize,
    },
    /// The certificate and the private key do not match.
    #[error("{}: the private key does not belong to the certificate in {}", key.display(),
        certificate.display())]
    KeyMismatch {
        /// File of the certificate.
        certificate: PathBuf,
        /// File of the key.
        key: PathBuf,
    },
    /// The file contains no certificate.
    #[error("{}: no certificate in this file (expected PEM)", .0.display())]
    NoCertificate(PathBuf),
    /// The file contains no private key.
    #[error("{}: no private key in this file (expected PEM: PKCS#8, PKCS#1 or SEC1)", .0.display())]
    NoKey(PathBuf),
    /// There are no root certificates at the usual paths of operating systems.
    #[error("no root certificates found on this system; set `ca` (looked in {0})")]
    NoSystemRoots(String),
    /// The file is not valid PEM.
    #[error("{}: not PEM: {source}", path.display())]
    Pem {
        /// Path of the file.
        path: PathBuf,
        /// Error of the PEM parser.
        source: pem::Error,
    },
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The settings are inconsistent.
    #[error("TLS settings: {0}")]
    Settings(#[source] rustls::Error),
}

/// Performs the TLS handshake as the server. `seen` contains the bytes already read from the socket.
///
/// # Errors
/// If the handshake fails; an alert has been sent to the client.
pub(crate) async fn accept(
    mut tcp: TcpStream,
    mut seen: BytesMut,
    config: Arc<ServerConfig>,
) -> io::Result<Io> {
    client_hello_checks::read_checked(&mut tcp, &mut seen).await?;
    let acceptor = TlsAcceptor::from(config);
    let bound = |session: &mut rustls::ServerConnection| {
        session.set_buffer_limit(Some(SESSION_BUFFER));
    };
    // A handshake costs hundreds of microseconds of CPU time, and any client can request one.
    let handshake = acceptor.accept_with(Rewind::new(tcp, seen.freeze()), bound);
    let tls = fairness::each(handshake).await?;
    Ok(Io::TlsServer(Box::new(tls)))
}

/// Performs the TLS handshake as the client.
///
/// # Errors
/// If the handshake fails or the server's identity cannot be verified.
pub(crate) async fn connect(
    tcp: TcpStream,
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
) -> io::Result<Io> {
    let connector = TlsConnector::from(config);
    let bound = |session: &mut rustls::ClientConnection| {
        session.set_buffer_limit(Some(SESSION_BUFFER));
    };
    let tls = connector.connect_with(name, tcp, bound).await?;
    Ok(Io::TlsClient(Box::new(tls)))
}

/// Returns the crypto provider, which all configurations share.
fn provider() -> &'static Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(aws_lc_rs::default_provider()));
    &PROVIDER
}

fn versions(min: MinimumTlsVersion) -> &'static [&'static SupportedProtocolVersion] {
    static FROM_13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];
    match min {
        MinimumTlsVersion::Tls12 => rustls::ALL_VERSIONS,
        MinimumTlsVersion::Tls13 => FROM_13,
    }
}
