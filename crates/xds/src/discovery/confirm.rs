//! Acknowledges the resources of workloads only after they have been applied, since a socket that cannot be bound is
//! detected after the response was read.

use super::Discovery;
use crate::Kind;
use crate::client::Update;

/// The last response about workloads: its nonce if it was valid, and whether it was rejected.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed {
    nonce: Option<String>,
    refused: bool,
}

impl Unconfirmed {
    pub(super) fn came(&mut self, update: &Update, readable: bool) {
        self.nonce = readable.then(|| update.nonce.clone());
        self.refused = false;
    }
}

impl Discovery {
    /// Acknowledges the known workloads as applied, or rejects them with a reason. It must be called again when the
    /// outcome changes: a rejected response may be accepted later, on the same stream.
    pub fn confirm_workloads(&mut self, outcome: Result<(), &str>) {
        let last = &mut self.unconfirmed;
        let Some(nonce) = last
            .nonce
            .as_ref()
            .filter(|_| last.refused != outcome.is_err())
        else {
            return;
        };
        last.refused = outcome.is_err();
        self.client.correct(Kind::Inbound, nonce, outcome.err());
    }
}
