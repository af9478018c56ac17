//! Services to which requests are sent.

use maglor_config::raw;

use crate::index::facts::Key;

/// A Service to which requests are sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Backend {
    /// The Service; `None` if the reference is of any other kind.
    pub service: Option<Key>,
    /// Port of the Service; `None` if the reference contains none.
    pub port: Option<u16>,
    /// Whether a reference without a port means the Service's only port or the port of the original request.
    pub callers_port: bool,
    /// A subset of the Service's pods; `None` for all pods.
    pub subset: Option<String>,
    /// Weight of the backend.
    pub weight: u32,
    /// Header changes for requests to the backend; `None` if there are none.
    pub request_headers: Option<raw::HeaderRules>,
    /// Header changes for responses of the backend; `None` if there are none.
    pub response_headers: Option<raw::HeaderRules>,
    /// The reference as it is written, for messages.
    pub text: String,
}

impl Backend {
    /// Returns whether both lead to the same pods, so that they share a weight.
    pub(in super::super) fn is_same_port(&self, other: &Self) -> bool {
        self.service.is_some()
            && (&self.service, self.port, &self.subset)
                == (&other.service, other.port, &other.subset)
    }

    pub(in super::super) fn has_same_filters(&self, other: &Self) -> bool {
        self.request_headers == other.request_headers
            && self.response_headers == other.response_headers
    }
}
