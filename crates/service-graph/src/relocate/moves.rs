//! Determines the order of the moves of a plan.

use super::{Params, View};
use crate::partition::rated;
use crate::placement::Placement;
use crate::placement_search::State;

/// A move of a replica to another node.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Move {
    /// The name of the service.
    pub service: String,
    /// The name of the present node.
    pub from: String,
    /// The name of the new node.
    pub to: String,
}

/// The indices of service, present node and new node of a move.
type Step = (usize, usize, usize);

/// Returns the next moves, at most B, beginning with those after which the least traffic leaves its node. A new replica
/// needs capacity in addition to the replica that it replaces, and is not started on a forbidden node.
pub(super) fn next(view: &View<'_>, target: &Placement, params: &Params) -> Vec<Move> {
    let (problem, mut placed) = rated(view.graph, view.nodes, view.present, &params.options);
    // The load while all moves are in progress: no replica has been removed yet.
    let mut loads = view.present.loads(view.graph);
    let mut begun = Vec::new();
    while begun.len() < params.moves {
        let mut best: Option<(f64, Step)> = None;
        for step in steps(view, &placed, target) {
            if !fits(view, &loads, step) {
                continue;
            }
            let (service, from, to) = step;
            let delta = placed.delta(&problem, service, from, to);
            if best.is_none_or(|(least, _)| delta < least) {
                best = Some((delta, step));
            }
        }
        let Some((delta, step)) = best else { break };
        let (service, from, to) = step;
        let Some(unit) = placed.unit_on(&problem, service, from) else {
            break;
        };
        placed.apply(&problem, unit, to, delta);
        let need = demand(view, service);
        for (sum, need) in loads.iter_mut().skip(to).take(1).flatten().zip(need) {
            *sum += need;
        }
        begun.extend(named(view, step));
    }
    begun
}

fn named(view: &View<'_>, (service, from, to): Step) -> Option<Move> {
    let node = |node: usize| Some(view.nodes.all().get(node)?.name.clone());
    Some(Move {
        service: view.graph.services().get(service)?.name.clone(),
        from: node(from)?,
        to: node(to)?,
    })
}

/// Returns each pair of nodes between which a replica of a service has yet to move.
fn steps(view: &View<'_>, placed: &State, target: &Placement) -> Vec<Step> {
    let mut steps = Vec::new();
    for service in 0..view.graph.services().len() {
        let wanted = || target.service(service).iter().enumerate();
        let is = |node: usize| placed.count(service, node);
        let short = || wanted().filter(|(node, wanted)| is(*node) < **wanted);
        for (from, _) in wanted().filter(|(node, wanted)| is(*node) > **wanted) {
            steps.extend(short().map(|(to, _)| (service, from, to)));
        }
    }
    steps
}

fn demand(view: &View<'_>, service: usize) -> [u64; 3] {
    let service = view.graph.services().get(service);
    service.map_or([0; 3], |one| [one.cpu_millis, one.memory_mib, 1])
}

fn fits(view: &View<'_>, loads: &[[u64; 3]], (service, _, to): Step) -> bool {
    let (Some(load), Some(node)) = (loads.get(to), view.nodes.all().get(to)) else {
        return false;
    };
    let room = [
        node.cpu_millis,
        node.memory_mib,
        node.pods.unwrap_or(u64::MAX),
    ];
    let parts = load.iter().zip(demand(view, service)).zip(room);
    let mut parts =
        parts.map(|((load, need), room)| need == 0 || load.saturating_add(need) <= room);
    parts.all(|fits| fits) && !view.bars.is_barred(service, to)
}
