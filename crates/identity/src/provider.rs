//! The cryptography provider of all TLS configurations: aws-lc-rs, passed explicitly.

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, kx_group};

/// Returns the provider, shared by all configurations.
///
/// The first key exchange group is the hybrid of X25519 and ML-KEM-768: traffic recorded today
/// stays secret from future quantum computers. It costs a kilobyte each way and 0.13 ms of a full
/// handshake's 0.4 ms, both sides together (`cargo bench -p maglor-identity`, fastest samples).
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
