//! Mutual TLS between workloads of the mesh, with rustls: TLS 1.3 only, and both sides are authenticated.
//!
//! A peer's chain must lead to a root of the bundle, and its leaf must name exactly one workload of our own trust
//! domain, since the roots are not valid for any other trust domain.

mod client;
mod epoch;
mod server;

use std::time::SystemTime;

use rustls::CommonState;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::CertificateDer;

pub use self::client::{Client, Expected};
pub use self::server::{OpenServer, Server};
pub use crate::authorities::{StrictClients, StrictServers};

use crate::error::SanError;
use crate::provider::provider;
use crate::refusal::PeerError;
use crate::rotating_identity::State;
use crate::{Refusal, SpiffeId, x509};

fn algorithms() -> WebPkiSupportedAlgorithms {
    provider().signature_verification_algorithms
}

/// Returns the SPIFFE ID of the peer of a connection whose handshake has completed.
///
/// A resumed session has the certificate with which it began, which may have expired since. The handshake has verified
/// the chain, except on a connection to an [`OpenServer`]: use [`OpenServer::peer`] for it.
///
/// # Errors
/// [`Refusal::NoCertificate`], [`Refusal::BadSan`] and [`Refusal::Expired`]; the connection must be closed then.
pub fn peer(connection: &CommonState, now: SystemTime) -> Result<SpiffeId, Refusal> {
    Ok(peer_until(connection, now)?.0)
}

/// Returns the same as [`peer`], and the end of the validity period of the certificate.
///
/// # Errors
/// As those of [`peer`].
fn peer_until(
    connection: &CommonState,
    now: SystemTime,
) -> Result<(SpiffeId, SystemTime), Refusal> {
    let chain = connection.peer_certificates().unwrap_or_default();
    let leaf = chain.first().ok_or(Refusal::NoCertificate)?;
    let leaf = x509::parse(leaf).ok_or(Refusal::BadSan)?;
    let id = leaf.workload().map_err(|_| Refusal::BadSan)?;
    match leaf.expires() < now {
        true => Err(Refusal::Expired),
        false => Ok((id, leaf.expires())),
    }
}

/// Returns the workload named by a leaf whose chain has been verified. It must belong to our own trust domain or, as
/// long as we have no identity ourselves, be one of those `expected`.
fn member(
    leaf: &CertificateDer<'_>,
    state: &State,
    expected: &[SpiffeId],
) -> Result<SpiffeId, PeerError> {
    let leaf = x509::parse(leaf).ok_or(SanError::Malformed)?;
    let id = leaf.workload()?;
    let known = match &state.identity {
        Some(own) => id.trust_domain() == own.id().trust_domain(),
        None => expected.contains(&id),
    };
    match known {
        true => Ok(id),
        false => Err(PeerError::Unexpected(id)),
    }
}
