//! Labels of the objects of the identity service.

/// The label of objects that the controller has created.
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`].
pub(crate) const CONTROLLER: &str = "maglor-controller";
/// The label of all objects that belong to the mesh, and its value.
pub(crate) const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "maglor");
