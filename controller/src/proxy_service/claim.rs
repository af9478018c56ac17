//! A `ProxyService` as read by the operator.

use serde_json::Value;

use super::FINALIZER;
use super::auto::Wide;
use crate::crd::{ProxyServiceSpec, check};
use crate::index::facts::Key;

/// A `ProxyService` that applies to the Service.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Namespace and name of the `ProxyService`.
    pub key: Key,
    /// Name of the Service that `targetRef` names; empty without a `targetRef`.
    pub service: String,
    /// Whether there is no `targetRef`, so that the object applies to all Services of a namespace or of the mesh.
    pub is_wide: bool,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// Whether the object is being deleted.
    pub deleting: bool,
    /// Whether the object has the finalizer of this controller.
    pub held: bool,
    /// The specification, or why it is invalid.
    pub spec: Result<ProxyServiceSpec, String>,
}

impl Claim {
    /// Returns the `ProxyService` for many Services that configures the decision rule; `None` for one with a
    /// `targetRef`.
    pub(super) fn wide(&self) -> Option<Wide> {
        let spec = self.spec.as_ref().ok().filter(|_| self.is_wide)?;
        Some(Wide {
            name: self.key.clone(),
            most: spec.max_services(),
        })
    }

    /// Returns whether policies of the callers' sidecars may be used instead of proxies.
    pub(super) fn asks_for_sidecars(&self) -> bool {
        let asks = |spec: &ProxyServiceSpec| spec.is_auto() && spec.sidecar_policies();
        self.spec.as_ref().is_ok_and(asks)
    }

    /// Reads a `ProxyService`.
    #[must_use]
    pub fn read(value: &Value) -> Self {
        let meta = &value["metadata"];
        let text = |name: &str| meta[name].as_str().unwrap_or_default().to_owned();
        let read = check::spec::<ProxyServiceSpec>(value);
        let checked = read.and_then(|spec| spec.check().map(|()| spec));
        let finalizers = meta["finalizers"].as_array().into_iter().flatten();
        let target = &value["spec"]["targetRef"];
        Self {
            key: Key::new(&text("namespace"), &text("name")),
            service: target["name"].as_str().unwrap_or_default().to_owned(),
            is_wide: target.is_null(),
            uid: text("uid"),
            generation: meta["generation"].as_i64(),
            deleting: meta["deletionTimestamp"].is_string(),
            held: finalizers.into_iter().any(|one| one == FINALIZER),
            spec: checked.map_err(|error| error.to_string()),
        }
    }
}
