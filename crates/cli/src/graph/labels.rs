//! The texts in pictures of the graph, and the space that they need.

use maglor_controller::graph::{Edge, Service};

/// Maximum length of a name in a box, in characters; the tooltip contains the whole name.
const LONGEST_NAME: usize = 28;

/// Returns the lines of a service for Graphviz.
pub(super) fn lines(service: &Service) -> Vec<String> {
    let mut lines = vec![service.name.clone(), replicas(service)];
    lines.extend(amounts(service));
    lines
}

/// Returns the lines in the box of a service: name, namespace and replicas, resources.
pub(super) fn box_lines(service: &Service, itself: Option<&Edge>) -> Vec<String> {
    let (namespace, name) = match service.name.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, &*service.name),
    };
    let second = match namespace {
        Some(namespace) => format!("{} · {}", shortened(namespace), replicas(service)),
        None => replicas(service),
    };
    let mut lines = vec![shortened(name), second];
    lines.extend(amounts(service));
    lines.extend(itself.map(|edge| format!("itself: {}", label(edge))));
    lines
}

fn replicas(service: &Service) -> String {
    match service.replicas {
        1 => "1 replica".to_owned(),
        count => format!("{count} replicas"),
    }
}

/// Formats the used and requested CPU and memory; `None` if they are unknown.
fn amounts(service: &Service) -> Option<String> {
    let amount = |used: Option<f64>, requested: u64, unit: &str| match (used, requested) {
        (Some(used), 0) => Some(format!("{used:.0} {unit}")),
        (Some(used), requested) => Some(format!("{used:.0}/{requested} {unit}")),
        (None, 0) => None,
        (None, requested) => Some(format!("{requested} {unit}")),
    };
    let cpu = amount(service.cpu_used_millis, service.cpu_millis, "mCPU");
    let memory = amount(service.memory_used_mib, service.memory_mib, "MiB");
    let amounts: Vec<String> = cpu.into_iter().chain(memory).collect();
    (!amounts.is_empty()).then(|| amounts.join(" · "))
}

/// Removes the middle of a long name, because its ends are distinctive.
fn shortened(name: &str) -> String {
    let signs: Vec<char> = name.chars().collect();
    if signs.len() <= LONGEST_NAME {
        return name.to_owned();
    }
    let kept = LONGEST_NAME - 1;
    let (start, end) = (&signs[..kept.div_ceil(2)], &signs[signs.len() - kept / 2..]);
    format!("{}…{}", String::from_iter(start), String::from_iter(end))
}

/// Returns whether an edge has bytes of TCP connections but no calls.
pub(super) fn is_tcp(edge: &Edge) -> bool {
    edge.rps == 0.0 && edge.bytes_per_second > 0.0
}

/// Returns the share of calls that succeed; `None` if there are no calls.
pub(super) fn success(rps: f64, failures: f64) -> Option<f64> {
    (rps > 0.0).then(|| 1.0 - failures / rps)
}

/// Formats a rate.
pub(super) fn rate(rps: f64) -> String {
    match rps {
        rps if rps >= 10.0 => format!("{rps:.0}/s"),
        rps => format!("{rps:.1}/s"),
    }
}

/// Formats λ and r or, for TCP connections, the bytes.
pub(super) fn traffic(edge: &Edge) -> String {
    if is_tcp(edge) {
        return format!("{:.1} kB/s", edge.bytes_per_second / 1000.0);
    }
    let failed = match edge.failures > 0.0 && edge.rps > 0.0 {
        true => format!(" · {:.1} % fail", 100.0 * edge.failures / edge.rps),
        false => String::new(),
    };
    format!("{} · {:.2} ms{failed}", rate(edge.rps), edge.latency_ms)
}

/// Formats λ and r in three digits, and failures only if they are not rounded to zero.
pub(super) fn label(edge: &Edge) -> String {
    if is_tcp(edge) {
        return format!("{:.1} kB/s", edge.bytes_per_second / 1000.0);
    }
    let latency = match edge.latency_ms {
        ms if ms >= 100.0 => format!("{ms:.0} ms"),
        ms if ms >= 10.0 => format!("{ms:.1} ms"),
        ms => format!("{ms:.2} ms"),
    };
    let failed = success(edge.rps, edge.failures).map_or(0.0, |share| 100.0 * (1.0 - share));
    match failed >= 0.05 {
        true => format!("{} · {latency} · {failed:.1} % fail", rate(edge.rps)),
        false => format!("{} · {latency}", rate(edge.rps)),
    }
}

/// Estimates the width of a text in a common sans-serif typeface, which is overestimated rather than underestimated.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let of_sign = |sign: char| match sign {
        'i' | 'j' | 'l' | 't' | 'f' | 'r' | '.' | ',' | ':' | '·' | '/' | ' ' | '-' | '|' => 0.4,
        'm' | 'w' | 'M' | 'W' | '%' | '…' => 0.98,
        sign if sign.is_ascii_uppercase() => 0.74,
        sign if sign.is_ascii() => 0.62,
        _ => 1.0,
    };
    text.chars().map(of_sign).sum::<f64>() * size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_their_ends() {
        let name = "recommendation-service-of-the-first-version";
        assert_eq!(shortened(name), "recommendation…first-version");
        assert_eq!(shortened("cart"), "cart");
    }

    #[test]
    fn labels_have_three_digits() {
        let edge = |rps, latency_ms, failures| Edge {
            rps,
            latency_ms,
            failures,
            ..Edge::default()
        };
        assert_eq!(label(&edge(412.3, 3.254, 0.0)), "412/s · 3.25 ms");
        assert_eq!(label(&edge(4.0, 32.54, 0.001)), "4.0/s · 32.5 ms");
        assert_eq!(
            label(&edge(40.0, 325.4, 4.0)),
            "40/s · 325 ms · 10.0 % fail"
        );
        let tcp = Edge {
            bytes_per_second: 1500.0,
            ..Edge::default()
        };
        assert_eq!(label(&tcp), "1.5 kB/s");
    }
}
