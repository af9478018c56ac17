//! Amounts as Kubernetes writes them: `10m`, `16Mi`, `1.5`, `1e3`.

/// Whether a text is a quantity that is not negative (k8s.io/apimachinery, `resource.Quantity`).
pub(crate) fn is_quantity(text: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = digits(whole) && digits(fraction) && whole.len() + fraction.len() > 0;
    let is_exponent = || {
        let exponent = suffix.strip_prefix(['e', 'E']).unwrap_or_default();
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    };
    let is_suffix = matches!(
        suffix,
        "" | "n"
            | "u"
            | "m"
            | "k"
            | "M"
            | "G"
            | "T"
            | "P"
            | "E"
            | "Ki"
            | "Mi"
            | "Gi"
            | "Ti"
            | "Pi"
            | "Ei"
    );
    is_number && (is_suffix || is_exponent())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_told_from_other_words() {
        for text in [
            "0", "10m", "16Mi", "1.5", ".5", "5.", "1e3", "2E", "1E-2", "100k",
        ] {
            assert!(is_quantity(text), "{text}");
        }
        for text in [
            "", ".", "m", "-1", "1 Mi", "1mi", "1.2.3", "1e", "1MiB", "ten",
        ] {
            assert!(!is_quantity(text), "{text}");
        }
    }
}
