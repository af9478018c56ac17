//! The reasons why a graph does not fit on the nodes, with the missing amounts.

use std::fmt;

use crate::graph::Graph;
use crate::node::Nodes;
use crate::placement_search::{Problem, State};

/// A limited resource of nodes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Resource {
    /// CPU, in thousandths of a core.
    CpuMillis,
    /// Memory, in MiB.
    MemoryMib,
    /// The number of replicas on a node.
    Pods,
}

impl Resource {
    const ALL: [Self; 3] = [Self::CpuMillis, Self::MemoryMib, Self::Pods];

    /// Returns the name of the resource in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CpuMillis => "cpu_millis",
            Self::MemoryMib => "memory_mib",
            Self::Pods => "pods",
        }
    }
}

/// A shortage on a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Shortage {
    /// The name of the node.
    pub node: String,
    /// The resource that is short.
    pub resource: Resource,
    /// The missing amount.
    pub lacks: u64,
}

/// The reason why there is no placement.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Infeasible {
    /// A placement would have to start a replica on a forbidden node.
    Barred {
        /// The name of the service.
        service: String,
        /// The name of the node.
        node: String,
    },
    /// The replicas that have to stay on their nodes exceed the capacity or limits there.
    Held {
        /// The name of their service.
        service: String,
        /// The minimum number of replicas that would have to leave their node.
        leave: u32,
    },
    /// The nodes have capacity for some replicas of a service, but not for all.
    Places {
        /// The name of the service.
        service: String,
        /// The number of replicas of the service.
        replicas: u32,
        /// The number of replicas that would fit if nothing else ran.
        places: u64,
    },
    /// A replica is larger than every node.
    Replica {
        /// The name of the service.
        service: String,
        /// The shortage on the node where it is smallest.
        nearest: Shortage,
    },
    /// All replicas together need more than all nodes have.
    Total {
        /// The resource.
        resource: Resource,
        /// The amount that the replicas need.
        needs: u64,
        /// The amount that the nodes have.
        have: u64,
    },
    /// The replicas fit by the sum of their needs, but not as whole replicas.
    Whole {
        /// The shortages of the best attempt.
        shortages: Vec<Shortage>,
        /// Whether the search was exhaustive; if not, it only has not found a placement.
        proved: bool,
    },
}

impl fmt::Display for Infeasible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Barred { service, node } => write!(
                f,
                "no feasible placement found without a replica of `{service}` on `{node}`, where it may not run"
            ),
            Self::Held { service, leave } => write!(
                f,
                "`{service}` must not move, but every feasible placement moves {leave} of its replicas, whose node no longer exists or is full"
            ),
            Self::Places {
                service,
                replicas,
                places,
            } => write!(
                f,
                "`{service}` has {replicas} replicas, but nodes and limits leave places for \
                 {places}: {} too few",
                u64::from(*replicas).saturating_sub(*places)
            ),
            Self::Replica { service, nearest } => write!(
                f,
                "no node can hold a replica of `{service}`: the nearest, `{}`, lacks {} {}",
                nearest.node,
                nearest.lacks,
                nearest.resource.name()
            ),
            Self::Total {
                resource,
                needs,
                have,
            } => write!(
                f,
                "all replicas need {needs} {}, all nodes have {have}: {} too little",
                resource.name(),
                needs.saturating_sub(*have)
            ),
            Self::Whole { shortages, proved } => {
                let found = if *proved {
                    "there is no placement"
                } else {
                    "no placement was found"
                };
                write!(f, "{found} of whole replicas; the best attempt lacks")?;
                for (index, shortage) in shortages.iter().enumerate() {
                    let before = if index == 0 { "" } else { "," };
                    let Shortage {
                        node,
                        resource,
                        lacks,
                    } = shortage;
                    write!(f, "{before} {lacks} {} on `{node}`", resource.name())?;
                }
                Ok(())
            }
        }
    }
}

/// Returns the reasons that can be found without a search.
pub(crate) fn obvious(graph: &Graph, nodes: &Nodes, problem: &Problem) -> Option<Infeasible> {
    for (index, service) in graph.services().iter().enumerate() {
        let fits = |node: &usize| problem.room(index, &problem.capacity[*node]) > 0;
        if !(0..problem.nodes).any(|node| fits(&node)) {
            let service = service.name.clone();
            let nearest = nearest(nodes, problem, index)?;
            return Some(Infeasible::Replica { service, nearest });
        }
    }
    let total = problem.total();
    for (d, resource) in Resource::ALL.into_iter().enumerate() {
        let have = problem.capacity.iter().map(|capacity| capacity[d]).sum();
        if total[d] > have {
            let needs = total[d];
            return Some(Infeasible::Total {
                resource,
                needs,
                have,
            });
        }
    }
    let places = |index: usize| -> u64 {
        let rooms = problem.capacity.iter();
        rooms.map(|c| u64::from(problem.room(index, c))).sum()
    };
    graph
        .services()
        .iter()
        .enumerate()
        .find_map(|(index, service)| {
            let (replicas, places) = (problem.replicas[index], places(index));
            (places < u64::from(replicas)).then(|| Infeasible::Places {
                service: service.name.clone(),
                replicas,
                places,
            })
        })
}

/// Returns the shortage for one replica on the node where it is smallest, for the resource that is scarcest there.
fn nearest(nodes: &Nodes, problem: &Problem, service: usize) -> Option<Shortage> {
    let demand = &problem.demand[service];
    let lacks = |node: usize, d: usize| demand[d].saturating_sub(problem.capacity[node][d]);
    let relative = |node: usize, d: usize| lacks(node, d) as f64 * problem.scale[d];
    let distance = |node: usize| (0..3).map(|d| relative(node, d)).sum::<f64>();
    let node = (0..problem.nodes).min_by(|&a, &b| distance(a).total_cmp(&distance(b)))?;
    let worst = (0..3).max_by(|&a, &b| relative(node, a).total_cmp(&relative(node, b)))?;
    Some(Shortage {
        node: nodes.all().get(node)?.name.clone(),
        resource: *Resource::ALL.get(worst)?,
        lacks: lacks(node, worst),
    })
}

/// Returns a replica that a placement starts on a forbidden node. Missing replicas have to be started on some node,
/// even if all others stay.
pub(crate) fn barred(
    graph: &Graph,
    nodes: &Nodes,
    problem: &Problem,
    state: &State,
) -> Option<Infeasible> {
    let rows = problem.bars.chunks(problem.nodes).enumerate();
    rows.zip(graph.services())
        .find_map(|((index, bars), service)| {
            let started = |node: usize| {
                let present = problem.present.get(index * problem.nodes + node);
                let present = present.copied().unwrap_or(0);
                state.count(index, node).saturating_sub(present)
            };
            let service = service.name.clone();
            if bars.iter().all(|bar| *bar > 0.0) {
                let all: u32 = (0..problem.nodes).map(started).sum();
                let leave = all.saturating_sub(problem.lacking(index));
                return (leave > 0).then_some(Infeasible::Held { service, leave });
            }
            let node = (0..problem.nodes).find(|&node| bars[node] > 0.0 && started(node) > 0)?;
            let node = nodes.all().get(node)?.name.clone();
            Some(Infeasible::Barred { service, node })
        })
}

/// Returns the shortages of the best attempt of a search.
pub(crate) fn searched(
    nodes: &Nodes,
    problem: &Problem,
    state: &State,
    proved: bool,
) -> Infeasible {
    let mut shortages = Vec::new();
    for (index, node) in nodes.all().iter().enumerate() {
        for (d, resource) in Resource::ALL.into_iter().enumerate() {
            let lacks = state.load(index)[d].saturating_sub(problem.capacity[index][d]);
            if lacks > 0 {
                let node = node.name.clone();
                shortages.push(Shortage {
                    node,
                    resource,
                    lacks,
                });
            }
        }
    }
    Infeasible::Whole { shortages, proved }
}
