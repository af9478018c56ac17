//! Translates Istio's resources into the proxy's configuration.
//!
//! `DestinationRule`, `VirtualService`, `PeerAuthentication`, `AuthorizationPolicy` and `Telemetry` as Istio 1.31
//! documents them (`networking.istio.io/v1`, `security.istio.io/v1`, `telemetry.istio.io/v1`; the older versions have the
//! same fields) are translated into blocks of the proxy's configuration. The Services, pods and namespaces of the cluster are unknown here; names are
//! kept as written.
//!
//! [`destination_rule`] and [`virtual_service`] translate in the opposite direction.
//!
//! A translation never fails silently: every unsupported field is reported as a [`Finding`] with its path. If ignoring
//! a field could allow a request that should be denied, or route requests to another destination, the whole resource is
//! rejected, or denies more.

mod authorization_policy;
mod block;
mod destination_rule;
mod finding;
mod matching;
mod peer_authentication;
mod pool;
mod retries_and_faults;
mod telemetry;
mod virtual_service;
mod write;

pub use authorization_policy::{ALLOWS_NOTHING, AuthorizationPolicy};
pub use destination_rule::{DestinationRule, Policy, Settings, Subset};
pub use finding::{Effect, Finding, Read};
pub use matching::Match;
pub use peer_authentication::PeerAuthentication;
pub use telemetry::Telemetry;
pub use virtual_service::{Destination, Rule, VirtualService};
pub use write::{Written, destination_rule, virtual_service};

/// The versions of Istio's API groups whose fields are read here.
pub const VERSIONS: [&str; 4] = ["v1", "v1beta1", "v1alpha3", "v1alpha1"];
