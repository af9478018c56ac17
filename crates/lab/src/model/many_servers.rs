//! The corrected model in the limit of many servers, in which each balancer sees its averages
//! exactly.

use super::System;
use super::classic;
use super::equilibrium::Climb;
use super::product_form::ProductForm;

/// Returns the mean number of requests at a server, or `None` if it was not found.
pub(super) fn requests(system: &System) -> Option<f64> {
    ManyServers::new(system).requests(system.utilisation)
}

/// One system at rising utilisation.
pub(super) struct ManyServers {
    system: System,
    climb: Climb,
}

impl ManyServers {
    pub(super) fn new(system: &System) -> Self {
        Self {
            system: *system,
            climb: Climb::new(*system),
        }
    }

    /// Returns the mean number of requests at a server. The utilisation must not fall from call to
    /// call.
    pub(super) fn requests(&mut self, utilisation: f64) -> Option<f64> {
        let System {
            balancers, choices, ..
        } = self.system;
        if balancers == 1 || choices == 1 {
            // One balancer sees all requests; with one choice nothing is compared. Both have known
            // solutions.
            return Some(classic::supermarket(utilisation, choices));
        }
        let tails = self.climb.to(utilisation, |system| ProductForm {
            balancers: f64::from(balancers),
            arrivals: system.arrivals(),
            choices: f64::from(choices),
        })?;
        Some(f64::from(balancers) * tails.mean())
    }
}
