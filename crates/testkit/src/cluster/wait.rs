//! Waits for conditions.

use std::thread;
use std::time::{Duration, Instant};

use crate::cluster::error::ClusterError;

/// The interval between polls, most of which start a program.
const INTERVAL: Duration = Duration::from_millis(250);

/// Polls until there is a value, and returns it.
///
/// # Errors
///
/// A poll fails, or there is no value within `limit`; `hint` describes where to look then.
pub(crate) fn until<T>(
    limit: Duration,
    what: &str,
    hint: &str,
    mut look: impl FnMut() -> Result<Option<T>, ClusterError>,
) -> Result<T, ClusterError> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = look()? {
            return Ok(value);
        }
        if Instant::now() > deadline {
            return Err(ClusterError::TimedOut {
                what: what.to_owned(),
                limit,
                hint: hint.to_owned(),
            });
        }
        thread::sleep(INTERVAL);
    }
}
