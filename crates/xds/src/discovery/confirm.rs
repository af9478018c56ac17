//! Acknowledgement of workloads' resources once they are in force: a socket that cannot be bound is detected after the
//! response was read.

use super::Discovery;
use crate::Kind;
use crate::client::Update;

/// The last response about workloads that could be read.
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
    /// Says of what is known of workloads whether it is in force, or why it is not. To be called again when that
    /// changes: what was refused may be accepted later, on the same stream.
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
