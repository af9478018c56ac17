//! Decodes shares of requests.

use crate::proto::envoy::r#type::v3::{FractionalPercent, fractional_percent::DenominatorType};

/// Returns whether a share includes all requests.
pub(super) fn is_all(share: &FractionalPercent) -> bool {
    share.numerator >= whole(share.denominator())
}

/// Returns a share in percent.
pub(super) fn percent(share: &FractionalPercent) -> f64 {
    f64::from(share.numerator) * 100.0 / f64::from(whole(share.denominator()))
}

/// Returns the denominator as a number.
fn whole(denominator: DenominatorType) -> u32 {
    match denominator {
        DenominatorType::Hundred => 100,
        DenominatorType::TenThousand => 10_000,
        DenominatorType::Million => 1_000_000,
    }
}
