//! The product form against the Markov chain of a server that serves in order of arrival: its
//! state is the line of waiting requests, each with its balancer, every one written out.

use std::collections::HashMap;

use super::*;

/// How often a server has `k` requests of a balancer.
///
/// A balancer with `k` requests sends at the rate `rates[k]`, and not at all when `k` is the number
/// of rates.
fn in_order_of_arrival(balancers: u8, rates: &[f64]) -> Vec<f64> {
    let (lines, numbers) = all_lines(balancers, rates.len());
    let own = |line: &[u8], balancer| line.iter().filter(|b| **b == balancer).count();
    let fastest = 1.0 + f64::from(balancers) * rates.iter().copied().fold(0.0, f64::max);
    let mut moves = Vec::new();
    for (state, line) in lines.iter().enumerate() {
        if !line.is_empty() {
            moves.push((state, numbers[&line[1..]], 1.0 / fastest));
        }
        for balancer in 0..balancers {
            if let Some(rate) = rates.get(own(line, balancer)) {
                let longer = [&line[..], &[balancer]].concat();
                moves.push((state, numbers[&longer[..]], rate / fastest));
            }
        }
    }
    let mut now = vec![1.0 / lines.len() as f64; lines.len()];
    for _ in 0..4000 {
        let mut next = now.clone();
        for (from, to, part) in &moves {
            next[*to] += now[*from] * part;
            next[*from] -= now[*from] * part;
        }
        now = next;
    }
    let mut chances = vec![0.0; rates.len() + 1];
    for (line, chance) in lines.iter().zip(now) {
        chances[own(line, 0)] += chance;
    }
    chances
}

/// All lines with at most `most` requests of each balancer, and their numbers.
fn all_lines(balancers: u8, most: usize) -> (Vec<Vec<u8>>, HashMap<Vec<u8>, usize>) {
    let mut lines = vec![vec![]];
    let mut at = 0;
    while at < lines.len() {
        for balancer in 0..balancers {
            let line = &lines[at];
            if line.iter().filter(|b| **b == balancer).count() < most {
                let longer = [&line[..], &[balancer]].concat();
                lines.push(longer);
            }
        }
        at += 1;
    }
    let numbers = lines.iter().cloned().zip(0..).collect();
    (lines, numbers)
}

/// The same by the product form.
fn by_product_form(balancers: f64, rates: &[f64]) -> Vec<f64> {
    let logarithms: Vec<_> = rates.iter().map(|rate| rate.ln()).collect();
    let integrand = Integrand::new(balancers, &logarithms);
    let integrals = integrand.view().log_integrals;
    let both = integrals.iter().zip(&integrand.log_weights);
    let parts: Vec<_> = both.map(|(a, b)| (a + b).exp()).collect();
    let total: f64 = parts.iter().sum();
    parts.iter().map(|part| part / total).collect()
}

#[test]
fn the_product_form_is_that_of_service_in_order_of_arrival() {
    for (balancers, rates) in [
        (1, &[0.7, 0.5, 0.2, 0.01][..]),
        (2, &[0.45, 0.2, 0.05]),
        (3, &[0.4, 0.15]),
        (5, &[0.3]),
    ] {
        let expected = in_order_of_arrival(balancers, rates);
        let actual = by_product_form(f64::from(balancers), rates);
        for (actual, expected) in actual.iter().zip(&expected) {
            assert!(
                (actual - expected).abs() < 1e-9,
                "{balancers} balancers, {rates:?}: {actual}, expected {expected}"
            );
        }
    }
}

#[test]
fn slopes_are_those_of_the_rates() {
    let departures = ProductForm {
        balancers: 7.0,
        arrivals: 0.12,
        choices: 2.0,
    };
    let log_drops = [-1.5, -0.4, 0.2];
    let at = departures.rates(&Tails::new(log_drops.to_vec()));
    for j in 0..log_drops.len() {
        let moved = |change: f64| {
            let mut moved = log_drops.to_vec();
            moved[j] += change;
            departures.rates(&Tails::new(moved)).logs
        };
        let (more, less) = (moved(1e-6), moved(-1e-6));
        for k in 0..log_drops.len() {
            let slope = (more[k] - less[k]) / 2e-6;
            let expected = at.slopes[k][j];
            assert!(
                (slope - expected).abs() < 1e-7,
                "rate {k}, tail {j}: {slope}, expected {expected}"
            );
        }
    }
}

#[test]
fn a_constant_rate_makes_a_geometric_line() {
    // Every balancer sends at its own rate, independent of its count: M/M/1, and of each balancer
    // a geometric number, too.
    for (balancers, utilisation) in [(1.0, 0.5), (20.0, 0.9), (1e6, 0.75), (1e6, 0.9999)] {
        let arrivals: f64 = utilisation / balancers;
        let own = arrivals / (1.0 - utilisation + arrivals);
        let chances = by_product_form(balancers, &[arrivals; 60]);
        for (k, actual) in (0..3).zip(chances) {
            let expected = (1.0 - own) * own.powi(k);
            assert!(
                (actual / expected - 1.0).abs() < 1e-9,
                "{balancers}, {utilisation}: {actual}, expected {expected}"
            );
        }
    }
}
