//! Hostile input as data: tables of cases with the expected outcome of each, and their runners.
//!
//! The tables are `hostile/*.txt` in this crate's sources; [`table`] describes their format. A
//! runner of an area sends a case to a proxy and returns the observations: the client's response,
//! and the requests that reached the origin. The same runners are used by the test of the proxy
//! (`proxy/tests/hostile.rs`), which compares with the expected outcome, and by
//! `cargo xtask hostile`, which compares with other proxies. See docs/hostile.md.

pub mod api;
mod certificates;
mod certify;
mod framed;
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
pub use framed::Framed;
pub use http1::{Http1, check as check_http1, patience};
pub use http2::{check as check_http2, run as run_http2};
pub use port::{Port, check as check_port};
pub use recorder::{Arrival, Recorder};
pub use responses::{Response, check as check_response};
pub use table::Case;
pub use tls::{Tls, check as check_tls};
pub use transport::{check as check_transport, run as run_transport};
pub use yaml::{Yaml, check as check_yaml};

/// The class of a proxy's reaction to a case.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Class {
    /// It was forwarded, or got a success response.
    Accepted,
    /// An error response, a reset, or the end of the connection.
    Refused,
    /// Nothing: the proxy waits for more bytes.
    Waits,
    /// The proxy no longer serves requests.
    Dead,
}

impl Class {
    /// Returns the name in results.
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
    /// The class.
    pub class: Class,
    /// The observed outcome, in one line.
    pub detail: String,
}

/// Returns a table; with `HOSTILE_TABLES`, the one in that folder, so that cases can be run without
/// building anything.
fn read(name: &str, text: &str) -> Vec<Case> {
    let folder = std::env::var_os("HOSTILE_TABLES").map(std::path::PathBuf::from);
    let other = folder.map(|folder| std::fs::read_to_string(folder.join(format!("{name}.txt"))));
    match other {
        Some(text) => table::parse(&text.expect("a table in HOSTILE_TABLES")),
        None => table::parse(text),
    }
}

/// Returns requests in HTTP/1.1.
#[must_use]
pub fn http1_requests() -> Vec<Case> {
    read(
        "http1-requests",
        include_str!("../hostile/http1-requests.txt"),
    )
}

/// Returns responses of an HTTP/1.1 origin.
#[must_use]
pub fn http1_responses() -> Vec<Case> {
    read(
        "http1-responses",
        include_str!("../hostile/http1-responses.txt"),
    )
}

/// Returns frames of HTTP/2.
#[must_use]
pub fn http2() -> Vec<Case> {
    read("http2", include_str!("../hostile/http2.txt"))
}

/// Returns frames of the mesh transport.
#[must_use]
pub fn transport() -> Vec<Case> {
    read("transport", include_str!("../hostile/transport.txt"))
}

/// Returns certificates of peers of the mesh.
#[must_use]
pub fn certificates() -> Vec<Case> {
    read("certificates", include_str!("../hostile/certificates.txt"))
}

/// Returns requests to a proxy's admin port.
#[must_use]
pub fn admin() -> Vec<Case> {
    read("admin", include_str!("../hostile/admin.txt"))
}

/// Returns requests to a controller's admin port.
#[must_use]
pub fn admin_controller() -> Vec<Case> {
    read(
        "admin-controller",
        include_str!("../hostile/admin-controller.txt"),
    )
}

/// Returns ClientHellos and records of TLS.
#[must_use]
pub fn tls() -> Vec<Case> {
    read("tls", include_str!("../hostile/tls.txt"))
}

/// Returns files in YAML.
#[must_use]
pub fn yaml() -> Vec<Case> {
    read("yaml", include_str!("../hostile/yaml.txt"))
}

/// Returns reviews and other requests for a controller's webhook.
#[must_use]
pub fn webhook() -> Vec<Case> {
    read("webhook", include_str!("../hostile/webhook.txt"))
}

/// Returns requests for a controller's external metrics.
#[must_use]
pub fn external_metrics() -> Vec<Case> {
    read(
        "external-metrics",
        include_str!("../hostile/external-metrics.txt"),
    )
}

/// Returns requests for certificates.
#[must_use]
pub fn requests_for_certificates() -> Vec<Case> {
    read(
        "requests-for-certificates",
        include_str!("../hostile/requests-for-certificates.txt"),
    )
}

/// Returns discovery messages of members.
#[must_use]
pub fn discovery() -> Vec<Case> {
    read("discovery", include_str!("../hostile/discovery.txt"))
}
