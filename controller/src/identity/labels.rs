//! Labels of the objects of the identity service.

/// The label of what the controller has made itself.
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Its value.
pub(crate) const CONTROLLER: &str = "maglor-controller";
/// The label of everything that belongs to the mesh.
pub(crate) const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "maglor");
