//! Classification of success rates, used by tables and pictures.

/// How successful requests are.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Health {
    /// At least 99 % of the requests succeed.
    Good,
    /// At least 95 % of the requests succeed.
    Degraded,
    /// Less than 95 % of the requests succeed.
    Failing,
}

impl Health {
    /// Classifies a share of successful requests.
    pub(crate) fn of(success: f64) -> Self {
        match success {
            success if success < 0.95 => Self::Failing,
            success if success < 0.99 => Self::Degraded,
            _ => Self::Good,
        }
    }

    /// Returns the symbol for tables, the same as in `maglor check`, so that the class is recognizable without
    /// colours.
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::Good => "✓",
            Self::Degraded => "!",
            Self::Failing => "✗",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_one_judgement() {
        let shares = [1.0, 0.99, 0.9899, 0.95, 0.9499, 0.0];
        let signs = shares.map(|share| Health::of(share).sign());
        assert_eq!(signs, ["✓", "✓", "!", "!", "✗", "✗"]);
    }
}
