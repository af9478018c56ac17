//! Hostile input as data: tables of cases with the expected outcome of each, and what runs them.
//!
//! The tables are `hostile/*.txt` beside this crate's sources; [`table`] describes their format. A runner of an area
//! sends a case to a proxy and returns the observations: what the client got, and what reached the origin. The same
//! runners serve the test of the proxy (`proxy/tests/hostile.rs`), which compares with the expected outcome, and
//! `cargo xtask hostile`, which compares with other proxies. See docs/hostile.md.

pub mod api;
mod certificates;
mod certify;
mod http1;
mod http2;
mod port;
mod recorder;
mod responses;
pub mod table;
mod tls;
mod transport;
mod yaml;

pub use certificates::{
    Impostor, Shown, Signer, check as check_certificate, is_served, outcome as certificate_outcome,
};
pub use certify::{SigningRequest, signing_request};
pub use http1::{Http1, check as check_http1, patience};
pub use http2::{Http2, check as check_http2};
pub use port::{Port, check as check_port};
pub use recorder::{Arrival, Recorder};
pub use responses::{Response, check as check_response};
pub use table::Case;
pub use tls::{Tls, check as check_tls};
pub use transport::{Transport, check as check_transport};
pub use yaml::{Yaml, check as check_yaml};

/// What a proxy did with a case.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Class {
    /// It was forwarded, or answered with success.
    Accepted,
    /// An error answer, a reset, or the end of the connection.
    Refused,
    /// Nothing: the proxy waits for more bytes.
    Waits,
    /// The proxy does not serve any more.
    Dead,
}

impl Class {
    /// The name in results.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Refused => "refused",
            Self::Waits => "waits",
            Self::Dead => "dead",
        }
    }
}

/// The outcome of a case at one proxy.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// In short.
    pub class: Class,
    /// What was observed, in one line.
    pub detail: String,
}

/// A table; with `HOSTILE_TABLES`, the one in that folder, so that cases can be run without building anything.
fn read(name: &str, text: &str) -> Vec<Case> {
    let folder = std::env::var_os("HOSTILE_TABLES").map(std::path::PathBuf::from);
    let other = folder.map(|folder| std::fs::read_to_string(folder.join(format!("{name}.txt"))));
    match other {
        Some(text) => table::parse(&text.expect("a table in HOSTILE_TABLES")),
        None => table::parse(text),
    }
}

/// Requests in HTTP/1.1.
#[must_use]
pub fn http1_requests() -> Vec<Case> {
    read(
        "http1-requests",
        include_str!("../hostile/http1-requests.txt"),
    )
}

/// Responses of an HTTP/1.1 origin.
#[must_use]
pub fn http1_responses() -> Vec<Case> {
    read(
        "http1-responses",
        include_str!("../hostile/http1-responses.txt"),
    )
}

/// Frames of HTTP/2.
#[must_use]
pub fn http2() -> Vec<Case> {
    read("http2", include_str!("../hostile/http2.txt"))
}

/// Frames of the mesh transport.
#[must_use]
pub fn transport() -> Vec<Case> {
    read("transport", include_str!("../hostile/transport.txt"))
}

/// Certificates of peers of the mesh.
#[must_use]
pub fn certificates() -> Vec<Case> {
    read("certificates", include_str!("../hostile/certificates.txt"))
}

/// Requests to a proxy's admin port.
#[must_use]
pub fn admin() -> Vec<Case> {
    read("admin", include_str!("../hostile/admin.txt"))
}

/// Requests to a controller's admin port.
#[must_use]
pub fn admin_controller() -> Vec<Case> {
    read(
        "admin-controller",
        include_str!("../hostile/admin-controller.txt"),
    )
}

/// ClientHellos and records of TLS.
#[must_use]
pub fn tls() -> Vec<Case> {
    read("tls", include_str!("../hostile/tls.txt"))
}

/// Files in YAML.
#[must_use]
pub fn yaml() -> Vec<Case> {
    read("yaml", include_str!("../hostile/yaml.txt"))
}

/// Reviews and other requests for a controller's webhook.
#[must_use]
pub fn webhook() -> Vec<Case> {
    read("webhook", include_str!("../hostile/webhook.txt"))
}

/// Questions for a controller's external metrics.
#[must_use]
pub fn external_metrics() -> Vec<Case> {
    read(
        "external-metrics",
        include_str!("../hostile/external-metrics.txt"),
    )
}

/// Requests for certificates.
#[must_use]
pub fn requests_for_certificates() -> Vec<Case> {
    read(
        "requests-for-certificates",
        include_str!("../hostile/requests-for-certificates.txt"),
    )
}

/// What members send for discovery.
#[must_use]
pub fn discovery() -> Vec<Case> {
    read("discovery", include_str!("../hostile/discovery.txt"))
}
