//! Outcomes of certificate requests: errors, their statuses for clients, and metrics.

use std::time::Duration;

use maglor_identity::Error;
use maglor_telemetry::{Buckets, Counter, Histogram, Registry};
use maglor_xds::grpc_server::{Code, Status};

use crate::identity::authenticate::TokenError;
use crate::identity::signer::SignerError;

/// Reason why no certificate was issued.
#[derive(Debug, thiserror::Error)]
pub enum CertifyError {
    /// The authority cannot sign.
    #[error("{0}")]
    Authority(#[source] Error),
    /// The certificate authority has not been read yet.
    #[error("no authority is loaded yet; see /ready of the controller's admin port")]
    NoAuthority,
    /// The request is malformed or is not signed with the key that it contains.
    #[error("{0}")]
    Request(#[source] Error),
    /// The signer has issued no certificate.
    #[error(transparent)]
    Signer(#[from] SignerError),
    /// The token was rejected.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The source address has recently sent many invalid tokens.
    #[error("too many invalid tokens from this address; retry in {0:?}")]
    Source(Duration),
    /// The workload has recently requested many certificates.
    #[error("too many certificates for this workload; retry in {0:?}")]
    TooOften(Duration),
}

impl CertifyError {
    /// Returns the label of the error in metrics and logs.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Request(_) => "bad-request",
            Self::Signer(error) if error.is_lasting() => "signer",
            Self::Authority(_) | Self::NoAuthority | Self::Signer(_) => "unavailable",
            Self::Token(error) => error.word(),
            Self::Source(_) | Self::TooOften(_) => "too-often",
        }
    }

    /// Returns the gRPC status of the response.
    pub(super) fn status(&self) -> Status {
        let code = match self {
            Self::Request(_) => Code::InvalidArgument,
            Self::Signer(error) if error.is_lasting() => Code::FailedPrecondition,
            Self::Authority(_)
            | Self::NoAuthority
            | Self::Signer(_)
            | Self::Token(TokenError::Unavailable(_)) => Code::Unavailable,
            Self::Token(_) => Code::Unauthenticated,
            Self::Source(_) | Self::TooOften(_) => Code::ResourceExhausted,
        };
        Status::new(code, self.to_string())
    }
}

/// The possible results, as labelled in metrics.
const RESULTS: [&str; 10] = [
    "issued",
    "audience",
    "bad-request",
    "invalid-token",
    "no-service-account",
    "no-token",
    "signer",
    "too-often",
    "unavailable",
    "unnamed",
];

/// Counters of requests by result, and the latency of successful ones.
#[derive(Clone, Debug)]
pub struct CertifyMetrics {
    results: Vec<(&'static str, Counter)>,
    pub(super) issued: Histogram,
}

impl CertifyMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let family = registry.counter(
            "controller_certificates_total",
            "Certificate requests, by result.",
            &["result"],
        );
        let issued = registry.histogram(
            "controller_certificate_seconds",
            "Duration of certificate requests, including token review, in seconds.",
            &[],
            Buckets::latency(),
        );
        Self {
            results: RESULTS.map(|word| (word, family.with(&[word]))).into(),
            issued: issued.with(&[]),
        }
    }

    pub(super) fn count(&self, result: &str) {
        for (_, counter) in self.results.iter().filter(|(word, _)| *word == result) {
            counter.add_shared(1);
        }
    }
}
