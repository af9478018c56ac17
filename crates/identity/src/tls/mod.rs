//! Mutual TLS between workloads of the mesh, by rustls: TLS 1.3 only, each side proves who it is.
//!
//! A peer's chain must lead to a root of the bundle, and its leaf must name exactly one workload of
//! our own trust domain: the bundle's roots vouch for no other.

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
use crate::live::State;
use crate::provider::provider;
use crate::refusal::PeerError;
use crate::{Refusal, SpiffeId, x509};

fn algorithms() -> WebPkiSupportedAlgorithms {
    provider().signature_verification_algorithms
}

/// Who is on the other side of a connection whose handshake has ended.
///
/// A resumed session brings the certificate that it began with, which may have expired since. The chain was verified
/// by the handshake; of a connection to an [`OpenServer`] it was not, and [`OpenServer::peer`] is to be asked.
///
/// # Errors
/// [`Refusal::NoCertificate`], [`Refusal::BadSan`] and [`Refusal::Expired`]; the connection must be
/// closed then.
pub fn peer(connection: &CommonState, now: SystemTime) -> Result<SpiffeId, Refusal> {
    Ok(peer_until(connection, now)?.0)
}

/// As [`peer`], and until when its certificate is valid.
///
/// # Errors
/// As [`peer`].
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

/// The workload that a leaf names, whose chain has been verified. It is of our own trust domain, or one
/// of those that are `expected` as long as we have no identity ourselves.
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
