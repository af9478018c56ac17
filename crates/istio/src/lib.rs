//! Istio's words, in ours.
//!
//! `DestinationRule`, `VirtualService`, `PeerAuthentication` and `AuthorizationPolicy` as Istio 1.31
//! documents them (`networking.istio.io/v1`, `security.istio.io/v1`; the older versions have the same
//! fields), translated into the blocks of the proxy's configuration. What Services, pods and namespaces
//! there are is not known here; names are left as they are written.
//!
//! [`destination_rule`] and [`virtual_service`] go the other way.
//!
//! A translation never fails silently: whatever a resource says that is not done is a [`Finding`] with
//! its path. Where leaving a field out could let something pass that was meant to be stopped, or send
//! requests elsewhere than was meant, the whole resource is refused, or denies more.

mod authorization_policy;
mod block;
mod destination_rule;
mod finding;
mod matching;
mod peer_authentication;
mod pool;
mod retries_and_faults;
mod virtual_service;
mod write;

pub use authorization_policy::{ALLOWS_NOTHING, AuthorizationPolicy};
pub use destination_rule::{DestinationRule, Policy, Settings, Subset};
pub use finding::{Effect, Finding, Read};
pub use peer_authentication::PeerAuthentication;
pub use virtual_service::{Destination, Match, Rule, VirtualService};
pub use write::{Written, destination_rule, virtual_service};

/// Versions of `networking.istio.io` and `security.istio.io` that have the fields read here.
pub const VERSIONS: [&str; 4] = ["v1", "v1beta1", "v1alpha3", "v1alpha1"];
