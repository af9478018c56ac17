//! The solver's representation of a problem: services as rows of numbers, and their traffic as an undirected graph.
//!
//! A cut is the same in both directions, so both edges of a pair are one edge here. A service may represent several
//! that are kept together while a problem is coarse ([`super::coarsen`]); a unit of it then consists of units of all of
//! them.

/// An amount of CPU (thousandths of a core), memory (MiB) and pods.
pub(crate) type Demand = [u64; 3];

/// A problem in numbers. Services, nodes and units (single replicas) are identified by indices.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problem {
    /// The number of nodes.
    pub(crate) nodes: usize,
    /// The capacity of each node.
    pub(crate) capacity: Vec<Demand>,
    /// The inverse of the mean capacity, by which overloads of different resources are made comparable.
    pub(crate) scale: [f64; 3],
    /// The number of units of each service.
    pub(crate) replicas: Vec<u32>,
    /// The inverse of the number of units of each service: the share of a unit in the distribution.
    pub(crate) step: Vec<f64>,
    /// The need of a unit of each service.
    pub(crate) demand: Vec<Demand>,
    /// The maximum number of units of each service on a node.
    pub(crate) limit: Vec<u32>,
    /// The cost of starting a unit of each service on a node where none runs.
    pub(crate) move_cost: Vec<f64>,
    /// The number of units that run now, by service and node; empty without a present placement.
    pub(crate) present: Vec<u32>,
    /// The additional cost of starting a unit on a node, by service and node; empty if there is none. On forbidden
    /// nodes it outweighs all other costs, so that any placement without forbidden nodes is better than one with them.
    pub(crate) bars: Vec<f64>,
    /// The index of each service's first neighbour in `adjacent`.
    pub(crate) start: Vec<u32>,
    /// The neighbours of services, each with the weight of the traffic.
    pub(crate) adjacent: Vec<(u32, f64)>,
    /// The weight of all traffic of each service with others.
    pub(crate) weight: Vec<f64>,
    /// The weight of each service's traffic with itself, which leaves its node only if any replica may be called.
    pub(crate) own: Vec<f64>,
    /// The cost of a unit of traffic between two nodes, row by row; empty if it is 1 for all pairs.
    pub(crate) distance: Vec<f64>,
    /// Whether every replica is equally likely to be called, from any node.
    pub(crate) even: bool,
    /// The service of each unit; units of one service are adjacent.
    pub(crate) unit_service: Vec<u32>,
    /// The index of each service's first unit.
    pub(crate) first_unit: Vec<u32>,
}

/// A service, as a row of a problem.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) replicas: u32,
    pub(crate) demand: Demand,
    pub(crate) limit: u32,
    pub(crate) move_cost: f64,
}

impl Problem {
    /// Creates a problem from rows and edges. The weights of several edges of a pair are added up.
    pub(crate) fn new(capacity: Vec<Demand>, items: &[Item], edges: &[(u32, u32, f64)]) -> Self {
        let nodes = capacity.len();
        let scale = std::array::from_fn(|d| {
            let sum: f64 = capacity.iter().map(|c| c[d] as f64).sum();
            if sum > 0.0 { nodes as f64 / sum } else { 1.0 }
        });
        let mut problem = Self {
            nodes,
            capacity,
            scale,
            replicas: items.iter().map(|item| item.replicas).collect(),
            step: items.iter().map(|i| 1.0 / f64::from(i.replicas)).collect(),
            demand: items.iter().map(|item| item.demand).collect(),
            limit: items.iter().map(|item| item.limit).collect(),
            move_cost: items.iter().map(|item| item.move_cost).collect(),
            ..Self::default()
        };
        for (service, item) in items.iter().enumerate() {
            problem.first_unit.push(problem.unit_service.len() as u32);
            let units = std::iter::repeat_n(service as u32, item.replicas as usize);
            problem.unit_service.extend(units);
        }
        problem.first_unit.push(problem.unit_service.len() as u32);
        problem.connect(edges);
        problem
    }

    fn connect(&mut self, edges: &[(u32, u32, f64)]) {
        let mut both: Vec<(u32, u32, f64)> = Vec::with_capacity(edges.len() * 2);
        self.own = vec![0.0; self.services()];
        for &(a, b, w) in edges.iter().filter(|(_, _, w)| *w > 0.0) {
            if a == b {
                self.own[a as usize] += w;
                continue;
            }
            both.push((a, b, w));
            both.push((b, a, w));
        }
        both.sort_by_key(|&(a, b, _)| (a, b));
        both.dedup_by(|next, kept| {
            let same = (next.0, next.1) == (kept.0, kept.1);
            if same {
                kept.2 += next.2;
            }
            same
        });
        let services = self.services();
        self.start = vec![0; services + 1];
        self.weight = vec![0.0; services];
        for &(a, _, w) in &both {
            self.start[a as usize + 1] += 1;
            self.weight[a as usize] += w;
        }
        for at in 0..services {
            self.start[at + 1] += self.start[at];
        }
        self.adjacent = both.into_iter().map(|(_, b, w)| (b, w)).collect();
    }

    pub(crate) fn services(&self) -> usize {
        self.replicas.len()
    }

    pub(crate) fn units(&self) -> usize {
        self.unit_service.len()
    }

    pub(crate) fn neighbours(&self, service: usize) -> &[(u32, f64)] {
        &self.adjacent[self.start[service] as usize..self.start[service + 1] as usize]
    }

    pub(crate) fn units_of(&self, service: usize) -> std::ops::Range<usize> {
        self.first_unit[service] as usize..self.first_unit[service + 1] as usize
    }

    /// Returns whether all nodes are equally far apart.
    pub(crate) fn is_equidistant(&self) -> bool {
        self.distance.is_empty()
    }

    /// Returns whether costs are half of Σ|p − q|, whose terms are separable by node.
    pub(crate) fn is_uniform(&self) -> bool {
        self.is_equidistant() && !self.even
    }

    /// Returns the cost of a unit of traffic between two services with these distributions.
    pub(crate) fn apart(&self, p: impl Fn(usize) -> f64, q: impl Fn(usize) -> f64) -> f64 {
        let nodes = 0..self.nodes;
        if self.is_uniform() {
            return 0.5 * nodes.map(|n| f64::abs(p(n) - q(n))).sum::<f64>();
        }
        if self.even {
            if self.is_equidistant() {
                return 1.0 - nodes.map(|n| p(n) * q(n)).sum::<f64>();
            }
            let from = |a: usize| {
                let to = (0..self.nodes).map(|b| q(b) * self.distance[a * self.nodes + b]);
                p(a) * to.sum::<f64>()
            };
            return nodes.map(from).sum();
        }
        let gap = |n: usize| p(n) - q(n);
        let (mut apart, mut cost) = (0.0, 0.0);
        for a in nodes.filter(|&a| gap(a) > 0.0) {
            apart += gap(a);
            for b in (0..self.nodes).filter(|&b| gap(b) < 0.0) {
                cost -= gap(a) * gap(b) * self.distance[a * self.nodes + b];
            }
        }
        if apart > 0.0 { cost / apart } else { 0.0 }
    }

    /// Returns the weight of all traffic.
    pub(crate) fn traffic(&self) -> f64 {
        // Traffic between two services is counted at both ends.
        self.weight.iter().sum::<f64>() / 2.0 + self.own.iter().sum::<f64>()
    }

    /// Returns the cost of a service's traffic with itself, for this distribution. It is zero with local-first routing,
    /// because as many calls begin on each node as the node receives.
    pub(crate) fn apart_from_itself(&self, service: usize, p: impl Fn(usize) -> f64) -> f64 {
        match self.own.get(service) {
            Some(&own) if self.even && own > 0.0 => own * self.apart(&p, &p),
            _ => 0.0,
        }
    }

    /// Returns the smallest distance between two different nodes.
    pub(crate) fn least_distance(&self) -> f64 {
        if self.is_equidistant() {
            return 1.0;
        }
        let rows = self.distance.chunks(self.nodes).enumerate();
        let apart = rows.flat_map(|(a, row)| {
            let others = row.iter().enumerate().filter(move |(b, _)| *b != a);
            others.map(|(_, distance)| *distance)
        });
        let least = apart.fold(f64::INFINITY, f64::min);
        if least.is_finite() { least } else { 0.0 }
    }

    /// Returns the number of units of a service for which a remaining capacity is sufficient.
    pub(crate) fn room(&self, service: usize, left: &Demand) -> u32 {
        let demand = &self.demand[service];
        let fits = demand.iter().zip(left);
        let fits = fits.filter(|(demand, _)| **demand > 0);
        let most = fits.map(|(demand, left)| left / demand).min();
        let most = most.map_or(u32::MAX, |most| u32::try_from(most).unwrap_or(u32::MAX));
        most.min(self.limit[service])
    }

    /// Returns the cost of starting those of a service's `units` on a node that did not run there before.
    pub(crate) fn start_cost(&self, service: usize, node: usize, units: u32) -> f64 {
        match self.present.get(service * self.nodes + node) {
            Some(&present) => {
                self.start_price(service, node) * f64::from(units.saturating_sub(present))
            }
            None => 0.0,
        }
    }

    /// Returns the cost of starting one unit of a service on a node where none runs.
    pub(crate) fn start_price(&self, service: usize, node: usize) -> f64 {
        let bar = self.bars.get(service * self.nodes + node);
        self.move_cost[service] + bar.copied().unwrap_or(0.0)
    }

    /// Returns whether no unit of a service may be started on a node.
    pub(crate) fn is_barred(&self, service: usize, node: usize) -> bool {
        let bar = self.bars.get(service * self.nodes + node);
        bar.is_some_and(|bar| *bar > 0.0)
    }

    /// Returns the number of units of a service that do not run yet.
    pub(crate) fn lacking(&self, service: usize) -> u32 {
        let row = self.present.iter().skip(service * self.nodes);
        let runs = row.take(self.nodes).map(|&units| u64::from(units)).sum();
        let lacking = u64::from(self.replicas[service]).saturating_sub(runs);
        u32::try_from(lacking).unwrap_or(u32::MAX)
    }

    /// Returns the need of the units on a node that may not be started on another node.
    pub(crate) fn held(&self, node: usize) -> Demand {
        let mut held = [0; 3];
        if self.present.is_empty() {
            return held;
        }
        for (service, bars) in self.bars.chunks(self.nodes.max(1)).enumerate() {
            if bars.iter().all(|bar| *bar > 0.0) {
                let units = u64::from(self.present[service * self.nodes + node]);
                for (sum, need) in held.iter_mut().zip(&self.demand[service]) {
                    *sum += need * units;
                }
            }
        }
        held
    }

    /// Returns the total need of all units.
    pub(crate) fn total(&self) -> Demand {
        let mut total = [0; 3];
        for (demand, &replicas) in self.demand.iter().zip(&self.replicas) {
            for (sum, need) in total.iter_mut().zip(demand) {
                *sum += need * u64::from(replicas);
            }
        }
        total
    }
}
