//! Options of a cluster.

use std::time::Duration;

use crate::cluster::addresses::MOST_NODES;
use crate::cluster::delay;
use crate::cluster::error::ClusterError;

/// The options of a cluster.
///
/// # Defaults
///
/// - `name`: `maglor`.
/// - `nodes`: 2.
/// - `delay`: none.
/// - `simulated_nodes`: none.
/// - `say`: messages are discarded.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name: lower-case letters, digits and `-`, at most 20 characters. Clusters with different names are isolated
    /// from each other.
    pub name: String,
    /// The number of nodes that run containers, 1 to 16.
    pub nodes: u8,
    /// The one-way delay of packets between nodes, at most 5 s.
    pub delay: Duration,
    /// The number of additional nodes that exist only in the API; kwok reports their pods as running.
    pub simulated_nodes: u16,
    /// The receiver of progress messages.
    pub say: fn(&str),
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "maglor".into(),
            nodes: 2,
            delay: Duration::ZERO,
            simulated_nodes: 0,
            say: |_| {},
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), ClusterError> {
        let invalid = |field, reason: &str| {
            let reason = reason.to_owned();
            Err(ClusterError::Invalid { field, reason })
        };
        check_name(&self.name)?;
        if !(1..=MOST_NODES).contains(&self.nodes) {
            return invalid("nodes", &format!("must be 1 to {MOST_NODES}"));
        }
        if self.delay > delay::MOST {
            return invalid("delay", "must be at most 5 s");
        }
        Ok(())
    }
}

/// Validates a name, because it becomes the name of a folder that is removed with all of its contents, and part of
/// paths that must be short.
pub(crate) fn check_name(name: &str) -> Result<(), ClusterError> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > 20 || !name.chars().all(allowed) {
        return Err(ClusterError::Invalid {
            field: "name",
            reason: "must be 1 to 20 lower case letters, digits and hyphens".into(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_make_no_sense_are_refused_by_name() {
        let good = Options::default();
        assert!(good.check().is_ok());
        let bad = [
            (
                "name",
                Options {
                    name: "A".into(),
                    ..good.clone()
                },
            ),
            (
                "name",
                Options {
                    name: "../x".into(),
                    ..good.clone()
                },
            ),
            (
                "name",
                Options {
                    name: String::new(),
                    ..good.clone()
                },
            ),
            (
                "nodes",
                Options {
                    nodes: 0,
                    ..good.clone()
                },
            ),
            (
                "nodes",
                Options {
                    nodes: 17,
                    ..good.clone()
                },
            ),
            (
                "delay",
                Options {
                    delay: Duration::from_secs(6),
                    ..good.clone()
                },
            ),
        ];
        for (expected, options) in bad {
            let Err(ClusterError::Invalid { field, .. }) = options.check() else {
                panic!("{options:?} is refused")
            };
            assert_eq!(field, expected);
        }
    }
}
