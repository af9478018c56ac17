//! The call graph of services: one service, or the applications of the paper's Fig. 7.

use std::fmt;
use std::str::FromStr;

/// An application. Every service has the same number of servers, and each server of a calling
/// service is a balancer of the services that it calls.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Graph {
    /// S0 calls S1, which calls S2, and so on; a call lasts until those below it have ended
    /// (Fig. 7b).
    Chain {
        /// The number of services, 2–64.
        services: u16,
    },
    /// S0 calls S1, then S2, and so on, one after the other (Fig. 7a).
    Hub {
        /// The number of services, including S0, 2–64.
        services: u16,
    },
    /// One service.
    #[default]
    Single,
}

impl Graph {
    /// The maximum number of services of an application.
    const MAX: u16 = 64;

    /// Returns the number of services.
    #[must_use]
    pub fn services(self) -> u16 {
        match self {
            Self::Chain { services } | Self::Hub { services } => services,
            Self::Single => 1,
        }
    }

    pub(super) fn is_valid(self) -> bool {
        match self {
            Self::Chain { services } | Self::Hub { services } => {
                (2..=Self::MAX).contains(&services)
            }
            Self::Single => true,
        }
    }

    /// Returns the services called after a service's own work.
    pub(super) fn calls(self, service: u16) -> Vec<u16> {
        match self {
            Self::Chain { services } => (service + 1..services).take(1).collect(),
            Self::Hub { services } if service == 0 => (1..services).collect(),
            Self::Hub { .. } | Self::Single => Vec::new(),
        }
    }
}

impl FromStr for Graph {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse =
            || format!("`{text}` is no graph; write single, chain:SERVICES or hub:SERVICES");
        let (name, services) = text.split_once(':').unwrap_or((text, ""));
        let graph = match (name, services.parse().ok()) {
            ("single", None) if services.is_empty() => Self::Single,
            ("chain", Some(services)) => Self::Chain { services },
            ("hub", Some(services)) => Self::Hub { services },
            _ => return Err(refuse()),
        };
        if graph.is_valid() {
            Ok(graph)
        } else {
            Err(format!("{}, with 2-{} services", refuse(), Self::MAX))
        }
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chain { services } => write!(f, "chain:{services}"),
            Self::Hub { services } => write!(f, "hub:{services}"),
            Self::Single => f.write_str("single"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_nest_and_hubs_fan_out() {
        let chain: Graph = "chain:4".parse().unwrap();
        assert_eq!(chain.calls(0), [1]);
        assert_eq!(chain.calls(2), [3]);
        assert!(chain.calls(3).is_empty());
        let hub: Graph = "hub:4".parse().unwrap();
        assert_eq!(hub.calls(0), [1, 2, 3]);
        assert!(hub.calls(1).is_empty());
        for text in ["chain:1", "hub", "hub:99", "single:2", "ring:3"] {
            assert!(text.parse::<Graph>().is_err(), "{text}");
        }
    }
}
