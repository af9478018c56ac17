//! Values of the label `status`.

use http::StatusCode;

/// Classes of statuses, values of the label `status`.
pub(super) const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];

/// Returns the index of a status in [`CLASSES`].
pub(super) fn class(status: StatusCode) -> usize {
    match status.as_u16() {
        499 => 5,
        code => usize::from(code / 100).clamp(1, 5) - 1,
    }
}
