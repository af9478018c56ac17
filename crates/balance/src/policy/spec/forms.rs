//! The known policies, with their parameters and the valid values of these: the notation that the parser accepts, for
//! schemas and suggestions.

use super::bounds;
use crate::policy::Choices;
use crate::policy::fallback::Fallback;
use crate::policy::maglev::MaglevParams;
use crate::policy::peak_ewma::PeakEwmaParams;
use crate::policy::probe::Probe;
use crate::policy::ring_hash::RingHashParams;
use crate::policy::subset::SubsetParams;

/// The notation of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// The name of the policy.
    pub name: &'static str,
    /// The parameters of the policy, all of them optional.
    pub parameters: &'static [Parameter],
}

/// A parameter of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The name of the parameter.
    pub name: &'static str,
    /// The minimum and maximum number; `None` if the value is a word. Some values in between may be rejected: the size
    /// of a table must be a prime.
    pub numbers: Option<(u32, u32)>,
    /// The allowed words; empty if the value is a number.
    pub words: &'static [&'static str],
}

const fn number(name: &'static str, least: u32, most: u32) -> Parameter {
    Parameter {
        name,
        numbers: Some((least, most)),
        words: &[],
    }
}

const CHOICES: Parameter = Parameter {
    name: "choices",
    numbers: Some((1, Choices::MAX)),
    words: &["all"],
};

const FALLBACK: Parameter = Parameter {
    name: "fallback",
    numbers: None,
    words: Fallback::WORDS,
};

const HASH_BALANCE_FACTOR: Parameter = number("hash_balance_factor", 100, 100_000);

/// The notations of all policies, ordered by name.
pub(super) const FORMS: &[Form] = &[
    Form {
        name: "a-lsq",
        parameters: &[CHOICES, number("overhead", 1, bounds::OVERHEAD)],
    },
    Form {
        name: "bounce",
        parameters: &[number("tries", 1, bounds::ATTEMPTS)],
    },
    Form {
        name: "ledger",
        parameters: &[number("group", 1, bounds::GROUP), FALLBACK],
    },
    Form {
        name: "lor",
        parameters: &[CHOICES],
    },
    Form {
        name: "maglev",
        parameters: &[
            number("table_size", 2, MaglevParams::MAX_TABLE_SIZE),
            HASH_BALANCE_FACTOR,
        ],
    },
    Form {
        name: "peak-ewma",
        parameters: &[
            number("choices", 1, PeakEwmaParams::MAX_CHOICES),
            number("decay_ms", 1, PeakEwmaParams::MAX_MS),
            number("default_rtt_ms", 1, PeakEwmaParams::MAX_MS),
        ],
    },
    Form {
        name: "probe",
        parameters: &[number("choices", 1, Probe::MAX_CHOICES)],
    },
    Form {
        name: "random",
        parameters: &[],
    },
    Form {
        name: "ring-hash",
        parameters: &[
            number("min", 1, RingHashParams::LIMIT),
            number("max", 1, RingHashParams::LIMIT),
            HASH_BALANCE_FACTOR,
        ],
    },
    Form {
        name: "round-robin",
        parameters: &[],
    },
    Form {
        name: "subset",
        parameters: &[
            number("size", 1, SubsetParams::MAX_SIZE),
            number("client", 0, SubsetParams::MAX_CLIENT),
            number("choices", 1, SubsetParams::MAX_CHOICES),
        ],
    },
];

/// The names of all policies.
pub(super) const NAMES: [&str; FORMS.len()] = {
    let mut names = [""; FORMS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = FORMS[at].name;
        at += 1;
    }
    names
};

impl Form {
    /// Returns the notation of a known policy.
    pub(super) fn of(name: &str) -> Option<&'static Self> {
        FORMS.iter().find(|form| form.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PolicySpec, SpecError};
    use super::*;

    fn accepts(name: &str, parameter: &str, value: &str) -> bool {
        format!("{name}({parameter}={value})")
            .parse::<PolicySpec>()
            .is_ok()
    }

    #[test]
    fn each_form_is_what_the_parser_accepts() {
        for form in FORMS {
            assert!(form.name.parse::<PolicySpec>().is_ok(), "{}", form.name);
            let other = format!("{}(other=1)", form.name).parse::<PolicySpec>();
            let Err(SpecError::UnknownParameter { known, .. }) = other else {
                panic!("{other:?}");
            };
            let names: Vec<&str> = form.parameters.iter().map(|one| one.name).collect();
            assert_eq!(known, names, "{}", form.name);
            for parameter in form.parameters {
                let accepts = |value: &str| accepts(form.name, parameter.name, value);
                let what = format!("{} {}", form.name, parameter.name);
                assert!(!accepts("neither"), "{what}");
                assert!(parameter.words.iter().all(|word| accepts(word)), "{what}");
                let Some((least, most)) = parameter.numbers else {
                    assert!(!accepts("1"), "{what}");
                    continue;
                };
                // Not below the default of `min`.
                let above_min = what == "ring-hash max";
                assert!(accepts(&least.to_string()) || above_min, "{what}");
                assert!(accepts(&most.to_string()), "{what}");
                assert!(least == 0 || !accepts(&(least - 1).to_string()), "{what}");
                assert!(!accepts(&(most + 1).to_string()), "{what}");
            }
        }
    }
}
