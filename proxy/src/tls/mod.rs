//! TLS on both sides: configurations from PEM files, and handshakes.
//!
//! One provider (aws-lc-rs), given explicitly, so that no process-wide default has to be installed.
//! Memory is bounded: the server keeps no session (tickets are stateless), the client a small cache.
//! Files are read when a configuration is built; on a change the caller builds it again, and
//! [`downstream_files`] and [`upstream_files`] tell it whether it has to.

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
mod client_hello;
pub(crate) mod explain;
mod files;
pub(crate) mod mesh;
mod resolver;
mod server;
#[cfg(test)]
mod tests;

/// Plain text that a session holds while its socket takes none.
const SESSION_BUFFER: usize = 16 * 1024;

/// Why a TLS configuration was not built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A root certificate cannot be used.
    #[error("{}: not usable as a root certificate: {source}", path.display())]
    BadRoot {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        source: rustls::Error,
    },
    /// A private key is of a kind that is not supported.
    #[error("{}: private key not usable: {source}", path.display())]
    BadKey {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        source: rustls::Error,
    },
    /// A certificate cannot be read.
    #[error("{}: certificate {position} is malformed", path.display())]
    BadCertificate {
        /// Its file.
        path: PathBuf,
        /// Counted from 1.
        position: usize,
    },
    /// The certificate is of another key.
    #[error("{}: the private key does not belong to the certificate in {}", key.display(),
        certificate.display())]
    KeyMismatch {
        /// File of the certificate.
        certificate: PathBuf,
        /// File of the key.
        key: PathBuf,
    },
    /// The file holds no certificate.
    #[error("{}: no certificate in this file (expected PEM)", .0.display())]
    NoCertificate(PathBuf),
    /// The file holds no private key.
    #[error("{}: no private key in this file (expected PEM: PKCS#8, PKCS#1 or SEC1)", .0.display())]
    NoKey(PathBuf),
    /// None of the places where systems keep their roots has any.
    #[error("no root certificates found on this system; set `ca` (looked in {0})")]
    NoSystemRoots(String),
    /// The file is not PEM.
    #[error("{}: not PEM: {source}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// Where it stops being PEM.
        source: pem::Error,
    },
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The settings do not fit together.
    #[error("TLS settings: {0}")]
    Settings(#[source] rustls::Error),
}

/// TLS handshake as the server. `seen` is what was already read from the socket.
///
/// # Errors
/// When the handshake fails; the client has been sent an alert.
pub(crate) async fn accept(
    mut tcp: TcpStream,
    mut seen: BytesMut,
    config: Arc<ServerConfig>,
) -> io::Result<Io> {
    client_hello::read(&mut tcp, &mut seen).await?;
    let acceptor = TlsAcceptor::from(config);
    let bound = |session: &mut rustls::ServerConnection| {
        session.set_buffer_limit(Some(SESSION_BUFFER));
    };
    // A handshake takes hundreds of microseconds of CPU, and any client can ask for one.
    let handshake = acceptor.accept_with(Rewind::new(tcp, seen.freeze()), bound);
    let tls = fairness::each(handshake).await?;
    Ok(Io::TlsServer(Box::new(tls)))
}

/// TLS handshake as the client.
///
/// # Errors
/// When the handshake fails or the server is not who it should be.
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

/// The provider, shared by all configurations.
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
