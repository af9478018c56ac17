//! Flow-control windows.

use super::frame::Malformed;

/// Returns a window enlarged by `increment`.
pub(super) fn grown(window: u32, increment: u32) -> Result<u32, Malformed> {
    let grown = window.checked_add(increment);
    grown
        .filter(|grown| i32::try_from(*grown).is_ok())
        .ok_or(Malformed::FlowControl)
}
