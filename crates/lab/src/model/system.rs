//! The validated parameters of a model: a [`System`] can only be created through its validation.

/// The maximum number of balancers, choices or servers; beyond it results do not change any more.
const MOST: u32 = 1_000_000;

/// How near to 0 and to 1 the utilisation may be before rounding errors dominate the result.
const MARGIN: f64 = 1e-6;

/// Independent balancers in front of equal servers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct System {
    pub(super) balancers: u32,
    pub(super) choices: u32,
    pub(super) utilisation: f64,
}

/// The reason why there is no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The solver has not found the solution.
    #[error(
        "no solution found for {balancers} balancers, {choices} choices, utilisation {utilisation}; \
         please report this"
    )]
    NotConverged {
        /// M.
        balancers: u32,
        /// d.
        choices: u32,
        /// ρ.
        utilisation: f64,
    },
    /// A parameter is out of range.
    #[error("{parameter} = {value} is out of range; valid: {valid}")]
    OutOfRange {
        /// The parameter's name, with its symbol.
        parameter: &'static str,
        /// The value.
        value: String,
        /// The valid range.
        valid: &'static str,
    },
}

impl System {
    /// Creates a system of `balancers` (M) of which each takes the best of `choices` (d) draws,
    /// when servers are busy for the share `utilisation` (ρ) of the time.
    pub fn new(balancers: u32, choices: u32, utilisation: f64) -> Result<Self, Error> {
        check_count("balancers (M)", balancers)?;
        check_count("choices (d)", choices)?;
        if !(MARGIN..=1.0 - MARGIN).contains(&utilisation) {
            return Err(Error::OutOfRange {
                parameter: "utilisation (rho)",
                value: utilisation.to_string(),
                valid: "above 0 and below 1, at least 1e-6 from both",
            });
        }
        Ok(Self {
            balancers,
            choices,
            utilisation,
        })
    }

    pub(super) fn not_converged(&self) -> Error {
        Error::NotConverged {
            balancers: self.balancers,
            choices: self.choices,
            utilisation: self.utilisation,
        }
    }

    /// Returns the same balancers at another utilisation, which is in range by construction.
    pub(super) fn at(&self, utilisation: f64) -> Self {
        Self {
            utilisation,
            ..*self
        }
    }

    /// Returns λ: the requests that one balancer sends to one server in a mean service time.
    pub(super) fn arrivals(&self) -> f64 {
        self.utilisation / f64::from(self.balancers)
    }
}

pub(super) fn check_count(parameter: &'static str, value: u32) -> Result<(), Error> {
    if (1..=MOST).contains(&value) {
        return Ok(());
    }
    Err(Error::OutOfRange {
        parameter,
        value: value.to_string(),
        valid: "1 to 1000000",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_named_with_its_range() {
        for (balancers, choices, utilisation, message) in [
            (
                0,
                2,
                0.5,
                "balancers (M) = 0 is out of range; valid: 1 to 1000000",
            ),
            (
                1,
                0,
                0.5,
                "choices (d) = 0 is out of range; valid: 1 to 1000000",
            ),
            (
                1,
                2,
                1.0,
                "utilisation (rho) = 1 is out of range; \
                 valid: above 0 and below 1, at least 1e-6 from both",
            ),
        ] {
            let error = System::new(balancers, choices, utilisation).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
        for utilisation in [-0.1, 0.0, 1.5, f64::NAN, f64::INFINITY] {
            assert!(System::new(1, 2, utilisation).is_err(), "{utilisation}");
        }
        let system = System::new(1, 2, 0.5).unwrap();
        let error = system.corrected_for(0).unwrap_err();
        assert!(error.to_string().starts_with("servers (N) = 0"), "{error}");
    }
}
