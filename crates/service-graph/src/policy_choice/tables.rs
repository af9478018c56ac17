//! Two simulated tables for quantities without a formula, with confidence intervals below two per cent of a mean.
//!
//! They are read by interpolation, linear in the load and in the logarithm of the count.

/// The values of M of the columns of [`RECOVERED`].
const BALANCERS: [f64; 11] = [
    1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 300.0, 1000.0, 100_000.0,
];

/// `lor(choices=2)`: the position of M balancers between one balancer (0) and random choice (1), by
/// load. Nearly the same for 40 and 200 servers, and so the mean of both. From `maglor-lab sim --policy
/// 'lor(choices=2)' --balancers M --servers 40|200 --rho R --requests 1200000 --runs 4`; the last
/// column continues f/(1 − f) ∝ M^0.8, which the others follow.
const RECOVERED: [(f64, [f64; 11]); 6] = [
    (
        0.3,
        [
            0.000, 0.295, 0.455, 0.620, 0.785, 0.888, 0.957, 0.981, 0.998, 1.000, 1.000,
        ],
    ),
    (
        0.5,
        [
            0.000, 0.197, 0.320, 0.472, 0.657, 0.797, 0.909, 0.953, 0.986, 0.999, 1.000,
        ],
    ),
    (
        0.7,
        [
            0.000, 0.117, 0.198, 0.311, 0.474, 0.631, 0.798, 0.879, 0.953, 0.986, 1.000,
        ],
    ),
    (
        0.8,
        [
            0.000, 0.080, 0.139, 0.224, 0.358, 0.503, 0.685, 0.794, 0.912, 0.973, 0.999,
        ],
    ),
    (
        0.9,
        [
            0.000, 0.044, 0.077, 0.129, 0.214, 0.320, 0.484, 0.608, 0.783, 0.912, 0.997,
        ],
    ),
    (
        0.95,
        [
            0.000, 0.025, 0.043, 0.073, 0.125, 0.194, 0.311, 0.418, 0.592, 0.757, 0.992,
        ],
    ),
];

/// The values of N of the columns of [`SHORTEST`].
const SERVERS: [f64; 7] = [1.0, 5.0, 10.0, 20.0, 40.0, 100.0, 200.0];

/// One balancer with `lor(choices=all)`: mean waiting in service times, times N·(1 − ρ), by load. In
/// heavy traffic it tends to 1, the single queue of all servers together (Foschini and Salz, 1978).
/// From `maglor-lab sim --policy 'lor(choices=all)' --balancers 1 --servers N --rho R --requests
/// 1200000 --runs 4`; the column of N = 1 is the M/M/1 queue's ρ.
const SHORTEST: [(f64, [f64; 7]); 8] = [
    (0.0, [0.000, 0.000, 0.000, 0.000, 0.000, 0.000, 0.000]),
    (0.3, [0.300, 0.058, 0.007, 0.000, 0.000, 0.000, 0.000]),
    (0.5, [0.500, 0.272, 0.122, 0.020, 0.000, 0.000, 0.000]),
    (0.7, [0.700, 0.590, 0.480, 0.303, 0.108, 0.015, 0.000]),
    (0.8, [0.800, 0.755, 0.711, 0.604, 0.408, 0.110, 0.020]),
    (0.9, [0.900, 0.899, 0.912, 0.925, 0.900, 0.675, 0.380]),
    (0.95, [0.950, 0.945, 0.969, 1.013, 1.094, 1.118, 1.010]),
    (1.0, [1.000, 1.000, 1.000, 1.050, 1.100, 1.150, 1.150]),
];

/// Returns the position between one balancer (0) and random choice (1).
pub(super) fn recovered(balancers: f64, rho: f64) -> f64 {
    read(&RECOVERED, &BALANCERS, balancers, rho)
}

/// Returns the waiting time for the shortest of all queues, times N·(1 − ρ).
pub(super) fn shortest_queue(servers: f64, rho: f64) -> f64 {
    read(&SHORTEST, &SERVERS, servers, rho)
}

/// Interpolates in a table; outside of it, its edge is used.
fn read<const N: usize>(table: &[(f64, [f64; N])], columns: &[f64; N], x: f64, rho: f64) -> f64 {
    let (row, across) = place(rho, table.len(), |at| table[at].0);
    let (column, along) = place(x.ln(), N, |at| columns[at].ln());
    let in_row = |at: usize| {
        let row = &table[at].1;
        row[column] * (1.0 - along) + row[(column + 1).min(N - 1)] * along
    };
    in_row(row) * (1.0 - across) + in_row((row + 1).min(table.len() - 1)) * across
}

/// Returns the grid point at or below `x`, and the position of `x` between it and the next one.
fn place(x: f64, points: usize, point: impl Fn(usize) -> f64) -> (usize, f64) {
    let below = (0..points).rev().find(|at| point(*at) <= x).unwrap_or(0);
    let above = (below + 1).min(points - 1);
    if above == below {
        return (below, 0.0);
    }
    let way = (x - point(below)) / (point(above) - point(below));
    (below, way.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grid_points_are_met_and_others_lie_between() {
        assert!((recovered(20.0, 0.8) - 0.503).abs() < 1e-12);
        assert!((shortest_queue(40.0, 0.9) - 0.9).abs() < 1e-12);
        let between = recovered(30.0, 0.75);
        assert!(between > 0.503 && between < 0.798, "{between}");
        assert!(recovered(1e6, 0.3) >= 1.0 && recovered(1.0, 0.99).abs() < 1e-12);
        assert!((shortest_queue(1.0, 0.6) - 0.6).abs() < 1e-12);
    }
}
