//! Keeps snapshots of the last day in bounded memory.
//!
//! Only numbers are stored, 40 bytes for an edge and 40 for a service; consecutive snapshots with the same names
//! share them. When the total exceeds [`MOST_BYTES`], every second snapshot of the older half is dropped: the history
//! still covers a day, in coarser steps.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::snapshot::{Edge, Service, Snapshot};

/// Maximum number of snapshots: one per minute for a day.
const MOST: usize = 24 * 60;
/// Maximum size of the history in bytes.
const MOST_BYTES: usize = 16 << 20;

/// Sorted names, to which indices refer.
type Names = Arc<[Box<str>]>;

/// The stored snapshots.
#[derive(Debug, Default)]
pub(super) struct History {
    kept: VecDeque<Kept>,
    bytes: usize,
    /// Number of snapshots stored so far.
    next: usize,
}

#[derive(Debug)]
struct Kept {
    number: usize,
    at: Box<str>,
    names: Names,
    services: Box<[KeptService]>,
    edges: Box<[KeptEdge]>,
    /// Size of the snapshot in bytes, including its names unless they are shared with the previous one.
    bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct KeptService {
    name: u32,
    replicas: u32,
    cpu_millis: u32,
    memory_mib: u32,
    cpu_limit_millis: u32,
    memory_limit_mib: u32,
    /// CPU use in thousandths of a core; negative if unknown.
    cpu_used_millis: f32,
    memory_used_mib: f32,
    pending: f32,
    rps: f32,
}

#[derive(Clone, Copy, Debug)]
struct KeptEdge {
    from: u32,
    to: u32,
    rps: f32,
    latency_ms: f32,
    /// Median of the response time in milliseconds; negative if unknown.
    p50_ms: f32,
    p99_ms: f32,
    failures: f32,
    bytes_per_second: f32,
    connections_per_second: f32,
    in_flight: f32,
}

impl History {
    /// Stores a snapshot, which must be newer than all stored snapshots.
    pub(super) fn keep(&mut self, snapshot: &Snapshot) {
        let kept = Kept::new(snapshot, self.kept.back(), self.next);
        self.next += 1;
        self.bytes += kept.bytes;
        self.kept.push_back(kept);
        let oldest = self.next.saturating_sub(MOST);
        while self.kept.front().is_some_and(|first| first.number < oldest) {
            self.kept.pop_front();
            self.count();
        }
        while self.bytes > MOST_BYTES && self.kept.len() > 2 {
            let half = self.kept.len() / 2;
            let mut index = 0;
            self.kept.retain(|_| {
                index += 1;
                index > half || index % 2 == 1
            });
            // With three snapshots `retain` drops none.
            if half < 2 {
                self.kept.pop_front();
            }
            self.count();
        }
    }

    /// Recomputes the size: names that were shared with a dropped snapshot now count for the next one.
    fn count(&mut self) {
        self.bytes = 0;
        let mut names: Option<Names> = None;
        for kept in &mut self.kept {
            let shared = names
                .as_ref()
                .is_some_and(|last| Arc::ptr_eq(last, &kept.names));
            kept.bytes = kept.numbers() + if shared { 0 } else { bytes_of(&kept.names) };
            self.bytes += kept.bytes;
            names = Some(Arc::clone(&kept.names));
        }
    }

    /// Returns all snapshots, oldest first. `window` is the averaging window T.
    pub(super) fn all(&self, window: Duration) -> Vec<Snapshot> {
        self.kept.iter().map(|kept| kept.snapshot(window)).collect()
    }
}

fn bytes_of(names: &Names) -> usize {
    names
        .iter()
        .map(|name| name.len() + size_of::<Box<str>>())
        .sum()
}

fn whole(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

impl Kept {
    fn new(snapshot: &Snapshot, before: Option<&Self>, number: usize) -> Self {
        // Services are sorted by name, and both ends of an edge are services.
        let own: Vec<&str> = snapshot.services.iter().map(|one| &*one.name).collect();
        let before = before.map(|before| &before.names);
        let same = before.filter(|names| names.iter().map(|name| &**name).eq(own.iter().copied()));
        let names: Names = match same {
            Some(names) => Arc::clone(names),
            None => own.iter().map(|name| Box::from(*name)).collect(),
        };
        let index = |name: &str| {
            own.binary_search(&name)
                .map_or(0, |index| whole(index as u64))
        };
        let services = snapshot.services.iter().map(|service| KeptService {
            name: index(&service.name),
            replicas: service.replicas,
            cpu_millis: whole(service.cpu_millis),
            memory_mib: whole(service.memory_mib),
            cpu_limit_millis: whole(service.cpu_limit_millis.unwrap_or(0)),
            memory_limit_mib: whole(service.memory_limit_mib.unwrap_or(0)),
            cpu_used_millis: service.cpu_used_millis.map_or(-1.0, |used| used as f32),
            memory_used_mib: service.memory_used_mib.map_or(-1.0, |used| used as f32),
            pending: service.pending as f32,
            rps: service.rps as f32,
        });
        let edges = snapshot.edges.iter().map(|edge| KeptEdge {
            from: index(&edge.from),
            to: index(&edge.to),
            rps: edge.rps as f32,
            latency_ms: edge.latency_ms as f32,
            p50_ms: edge.p50_ms.map_or(-1.0, |time| time as f32),
            p99_ms: edge.p99_ms.map_or(-1.0, |time| time as f32),
            failures: edge.failures as f32,
            bytes_per_second: edge.bytes_per_second as f32,
            connections_per_second: edge.connections_per_second as f32,
            in_flight: edge.in_flight as f32,
        });
        let mut kept = Self {
            number,
            at: snapshot.at.as_str().into(),
            services: services.collect(),
            edges: edges.collect(),
            names,
            bytes: 0,
        };
        kept.bytes = kept.numbers()
            + if same.is_some() {
                0
            } else {
                bytes_of(&kept.names)
            };
        kept
    }

    /// Returns the size of the numbers in bytes, without that of the names.
    fn numbers(&self) -> usize {
        size_of::<Self>() + self.at.len() + size_of_val(&*self.services) + size_of_val(&*self.edges)
    }

    fn snapshot(&self, window: Duration) -> Snapshot {
        let name = |index: u32| {
            let name = self.names.get(index as usize);
            name.map_or_else(String::new, ToString::to_string)
        };
        let known = |value: f32| (value >= 0.0).then(|| f64::from(value));
        let limit = |value: u32| (value > 0).then(|| u64::from(value));
        let services = self.services.iter().map(|one| Service {
            name: name(one.name),
            replicas: one.replicas,
            cpu_millis: one.cpu_millis.into(),
            memory_mib: one.memory_mib.into(),
            cpu_limit_millis: limit(one.cpu_limit_millis),
            memory_limit_mib: limit(one.memory_limit_mib),
            cpu_used_millis: known(one.cpu_used_millis),
            memory_used_mib: known(one.memory_used_mib),
            pending: one.pending.into(),
            rps: one.rps.into(),
            ..Service::default()
        });
        let edges = self.edges.iter().map(|one| Edge {
            from: name(one.from),
            to: name(one.to),
            rps: one.rps.into(),
            latency_ms: one.latency_ms.into(),
            p50_ms: known(one.p50_ms),
            p99_ms: known(one.p99_ms),
            failures: one.failures.into(),
            bytes_per_second: one.bytes_per_second.into(),
            connections_per_second: one.connections_per_second.into(),
            in_flight: one.in_flight.into(),
        });
        Snapshot {
            at: self.at.to_string(),
            window_seconds: window.as_secs(),
            services: services.collect(),
            edges: edges.collect(),
            ..Snapshot::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(minute: usize, services: usize) -> Snapshot {
        let services: Vec<Service> = (0..services)
            .map(|i| Service {
                name: format!("shop/service-{i:05}"),
                replicas: 2,
                cpu_millis: 100,
                cpu_used_millis: (i % 2 == 0).then_some(12.5),
                rps: i as f64,
                ..Service::default()
            })
            .collect();
        let edges = services.windows(2).map(|pair| Edge {
            from: pair[0].name.clone(),
            to: pair[1].name.clone(),
            rps: 0.5,
            latency_ms: 3.25,
            p50_ms: Some(2.5),
            connections_per_second: 0.25,
            ..Edge::default()
        });
        Snapshot {
            at: format!("2026-01-01T{:02}:{:02}:00Z", minute / 60 % 24, minute % 60),
            window_seconds: 60,
            edges: edges.collect(),
            services,
            ..Snapshot::default()
        }
    }

    const WINDOW: Duration = Duration::from_secs(60);

    #[test]
    fn what_is_kept_comes_back() {
        let mut history = History::default();
        for minute in 0..3 {
            history.keep(&snapshot(minute, 4 + minute / 2));
        }
        let all = history.all(WINDOW);
        assert_eq!(all, [snapshot(0, 4), snapshot(1, 4), snapshot(2, 5)]);
        assert!(Arc::ptr_eq(&history.kept[0].names, &history.kept[1].names));
    }

    #[test]
    fn a_day_stays_and_no_more() {
        let mut history = History::default();
        for minute in 0..MOST + 10 {
            history.keep(&snapshot(minute, 3));
        }
        assert_eq!(history.kept.len(), MOST);
        assert!(history.all(WINDOW)[0].at.contains("T00:10"));
        let counted: usize = history.kept.iter().map(|one| one.bytes).sum();
        assert_eq!(counted, history.bytes);
    }

    #[test]
    fn a_large_graph_is_kept_in_coarser_steps() {
        let mut history = History::default();
        for minute in 0..1200 {
            history.keep(&snapshot(minute, 1000));
        }
        assert!(history.bytes <= MOST_BYTES, "{}", history.bytes);
        assert!(history.kept.len() > 60, "{}", history.kept.len());
        let all = history.all(WINDOW);
        assert!(all.is_sorted_by(|one, other| one.at < other.at));
        // The history reaches back for hours.
        assert!(*all[0].at < *"2026-01-01T12", "{}", all[0].at);
        let counted: usize = history.kept.iter().map(|one| one.bytes).sum();
        assert_eq!(counted, history.bytes);
    }
}
