//! The priority of changes of a service: first additional replicas, then the settings of callers, then requests of
//! replicas, and last fewer replicas.

use super::{Change, Part, Seen, Wait};
use crate::advise::Room;

/// A change that is wanted, because a setting differs from the recommendation.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    pub(super) change: Change,
    pub(super) reason: String,
    /// The reason why the change is impossible, regardless of other changes; `None` if it is possible.
    pub(super) barred: Option<Wait>,
}

impl Wanted {
    fn new(change: Change, reason: String) -> Self {
        Self {
            change,
            reason,
            barred: None,
        }
    }

    pub(super) fn part(&self) -> Part {
        match self.change {
            Change::Replicas { .. } => Part::Replicas,
            Change::Requests { .. } => Part::Requests,
            Change::Traffic => Part::Traffic,
        }
    }

    /// Returns whether the change adds replicas, so that it does not wait for other changes.
    pub(super) fn is_urgent(&self) -> bool {
        matches!(self.change, Change::Replicas { from, to } if to > from)
    }

    /// Returns the sort key: urgent changes are first, and among these the one with the largest deficit.
    pub(super) fn rank(&self) -> (u8, u64) {
        match self.change {
            Change::Replicas { from, to } if to > from => {
                let lack = u64::from(to) * 1000 / u64::from(from.max(1));
                (0, u64::MAX - lack)
            }
            Change::Traffic => (1, 0),
            Change::Requests { .. } => (2, 0),
            Change::Replicas { .. } => (3, 0),
        }
    }
}

/// Returns the number of replicas of this size for which the nodes have capacity; replicas without requests fit on
/// every node.
pub(super) fn places(rooms: &[Room], cpu_millis: u64, memory_mib: u64) -> u32 {
    let each = rooms.iter().map(|room| {
        let by = |have: u64, needed: u64| have.checked_div(needed).unwrap_or(u64::from(u32::MAX));
        by(room.cpu_millis, cpu_millis).min(by(room.memory_mib, memory_mib))
    });
    let sum = each.fold(0, u64::saturating_add);
    u32::try_from(sum).unwrap_or(u32::MAX)
}

/// Returns all wanted changes of a service, beginning with the most important one.
pub(super) fn wanted(seen: &Seen<'_>, margin: f64) -> Vec<Wanted> {
    let mut all: Vec<Wanted> = [replicas(seen), traffic(seen), requests(seen, margin)]
        .into_iter()
        .flatten()
        .collect();
    all.sort_by_key(Wanted::rank);
    all
}

fn replicas(seen: &Seen<'_>) -> Option<Wanted> {
    let advised = seen.advice?.replicas.as_ref()?;
    let (from, now) = (seen.present.replicas, &seen.present);
    // Zero replicas are intended.
    if seen.held.replicas || from == 0 || advised.value == from {
        return None;
    }
    let room = from.saturating_add(places(&seen.rooms, now.cpu_millis, now.memory_mib));
    let to = advised.value.min(room.max(from));
    let short = advised.value > from && to == from;
    let mut wanted = Wanted::new(
        Change::Replicas {
            from,
            to: if short { advised.value } else { to },
        },
        advised.reason.clone(),
    );
    wanted.barred = short.then_some(Wait::NoRoom);
    Some(wanted)
}

fn traffic(seen: &Seen<'_>) -> Option<Wanted> {
    let advised = seen.advice?.traffic.as_ref()?;
    let differs = seen.traffic_differs && !seen.held.traffic;
    differs.then(|| Wanted::new(Change::Traffic, advised.max_requests.reason.clone()))
}

fn requests(seen: &Seen<'_>, margin: f64) -> Option<Wanted> {
    let (advice, now) = (seen.advice?, &seen.present);
    // The recommended CPU is for the recommended number of replicas.
    let replicas = advice.replicas.as_ref();
    let other = replicas.is_some_and(|one| one.value != now.replicas && !seen.held.replicas);
    if other || now.replicas == 0 {
        return None;
    }
    let cpu = advice.cpu_millis.as_ref().filter(|_| !seen.held.cpu);
    let memory = advice.memory_mib.as_ref().filter(|_| !seen.held.memory);
    let differs =
        |advised: u64, present: u64| advised.abs_diff(present) as f64 > margin * present as f64;
    let far = [(cpu, now.cpu_millis), (memory, now.memory_mib)]
        .into_iter()
        .filter_map(|(advised, present)| advised.filter(|one| differs(one.value, present)));
    let far = far.map(|one| &*one.reason);
    let reasons: Vec<&str> = far.chain(seen.shares_differ.as_deref()).collect();
    if reasons.is_empty() {
        return None;
    }
    let cpu_millis = cpu.map_or(now.cpu_millis, |one| one.value);
    let memory_mib = memory.map_or(now.memory_mib, |one| one.value);
    let change = Change::Requests {
        cpu_millis,
        memory_mib,
    };
    let mut wanted = Wanted::new(change, reasons.join("; "));
    // A rollout has one replica more for a while.
    let fits = places(&seen.rooms, cpu_millis, memory_mib) > 0;
    wanted.barred = (!fits).then_some(Wait::NoRoom);
    Some(wanted)
}
