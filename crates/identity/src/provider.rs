//! The cryptography provider of all TLS configurations, aws-lc-rs, which is passed explicitly.

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, kx_group};

/// Returns the provider, which all configurations share.
///
/// Its first key exchange group is the hybrid of X25519 and ML-KEM-768, so that traffic recorded today stays secret
/// from future quantum computers. The hybrid costs a kilobyte in each direction, and 0.13 ms of the 0.4 ms that a full
/// handshake takes on both sides together (`cargo bench -p maglor-identity`, fastest samples).
pub(crate) fn provider() -> &'static Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        Arc::new(CryptoProvider {
            kx_groups: vec![
                kx_group::X25519MLKEM768,
                kx_group::X25519,
                kx_group::SECP256R1,
                kx_group::SECP384R1,
            ],
            ..aws_lc_rs::default_provider()
        })
    });
    &PROVIDER
}
