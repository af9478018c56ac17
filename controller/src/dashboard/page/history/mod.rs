//! A day of golden signals in a bounded memory: every 10 s for the last hour, every minute for the last day.
//!
//! A sample has 8 bytes for each service and each edge ([`code`]). Names are numbered once, so a sample has no names:
//! the numbers of a generation only grow, and a new generation begins when most of its names are out of use.

mod code;
mod names;
mod ring;
mod series;

use std::time::Duration;

use self::names::Names;
use self::ring::{Minute, Ring, Sample};
pub(crate) use self::series::{Of, Series};
use crate::dashboard::page::model::{Edge, Mesh, Signals, Vertex};

/// Interval and number of the samples of the last hour.
pub(crate) const FINE: (u64, usize) = (10, 360);
/// Interval and number of the samples of the last day.
pub(crate) const COARSE: (u64, usize) = (60, 1440);
/// Maximum size in bytes. A mesh with more services and edges has a shorter history.
pub(crate) const LIMIT: usize = 9_000_000;

/// The samples of a day.
#[derive(Debug)]
pub(crate) struct History {
    limit: usize,
    /// Generations of names, oldest first; the first one has the number `first`.
    generations: Vec<Names>,
    first: u32,
    fine: Ring,
    coarse: Ring,
    minute: Minute,
}

impl Default for History {
    fn default() -> Self {
        Self::new(LIMIT)
    }
}

impl History {
    /// Creates an empty history of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            generations: vec![Names::default()],
            first: 0,
            fine: Ring::new(FINE),
            coarse: Ring::new(COARSE),
            minute: Minute::default(),
        }
    }

    /// Adds the state at a time in Unix seconds; to be called every 10 s. A time before the last one is ignored.
    pub(crate) fn record(&mut self, at: u64, mesh: &Mesh) {
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        if self.fine.newest().is_some_and(|newest| at <= newest) {
            return;
        }
        self.renew(mesh);
        let generation = self.newest();
        let Some(names) = self.generations.last_mut() else {
            return;
        };
        let mut signals: Vec<(u32, Signals)> = Vec::new();
        for (name, vertex) in &mesh.vertices {
            if let (Some(series), Some(known)) = (names.vertex(name), vertex.signals) {
                signals.push((series, known));
            }
        }
        for edge in &mesh.edges {
            if let Some(series) = names.edge(&edge.from, &edge.to) {
                signals.push((series, edge.signals));
            }
        }
        let sample = Sample::new(at, generation, names.len(), &signals);
        if let Some(minute) = self.minute.add(COARSE.0, &sample, &signals) {
            self.coarse.push(minute);
        }
        self.fine.push(sample);
        self.trim();
    }

    /// Begins a new generation if most names of the present one are out of use.
    fn renew(&mut self, mesh: &Mesh) {
        let used = mesh.vertices.len() + mesh.edges.len();
        let known = self.generations.last().map_or(0, Names::len);
        if known > 64 + 2 * used {
            self.generations.push(Names::default());
            // An unfinished minute has the numbers of the old generation.
            self.minute = Minute::default();
        }
    }

    fn newest(&self) -> u32 {
        self.first + u32::try_from(self.generations.len() - 1).unwrap_or(0)
    }

    /// Removes the oldest samples beyond the limit, and generations without samples.
    fn trim(&mut self) {
        while self.size() > self.limit && (self.coarse.len() > 1 || self.fine.len() > 1) {
            // The hour is the end of the day, so the day is shortened first.
            let shorter = match self.coarse.oldest() < self.fine.oldest() && self.coarse.len() > 1 {
                true => &mut self.coarse,
                false => &mut self.fine,
            };
            shorter.drop_oldest();
        }
        let rings = [&self.fine, &self.coarse];
        let used = rings.into_iter().filter_map(Ring::oldest_generation).min();
        while self.generations.len() > 1 && used.is_some_and(|used| self.first < used) {
            self.generations.remove(0);
            self.first += 1;
        }
    }

    /// Returns the allocated bytes.
    pub(crate) fn size(&self) -> usize {
        let names: usize = self.generations.iter().map(Names::size).sum();
        names + self.fine.size() + self.coarse.size() + self.minute.size()
    }

    /// Returns the times of the oldest and the newest sample; `None` if there is none.
    pub(crate) fn range(&self) -> Option<(u64, u64)> {
        let oldest = [self.coarse.oldest(), self.fine.oldest()];
        let oldest = oldest.into_iter().flatten().min()?;
        Some((u64::from(oldest), u64::from(self.fine.newest()?)))
    }

    fn names(&self, sample: &Sample) -> Option<&Names> {
        let at = sample.generation.checked_sub(self.first)?;
        self.generations.get(at as usize)
    }

    /// Returns the state at a time, which is the last sample until then, or the first one after it.
    pub(crate) fn at(&self, time: u64) -> Option<(u64, Mesh)> {
        let time = u32::try_from(time).unwrap_or(u32::MAX);
        let fine = self.fine.oldest().is_some_and(|oldest| time >= oldest);
        let ring = match fine || self.coarse.len() == 0 {
            true => &self.fine,
            false => &self.coarse,
        };
        let sample = ring.at(time)?;
        let names = self.names(sample)?;
        let mut mesh = Mesh {
            window: Duration::from_secs(ring.step()),
            ..Mesh::default()
        };
        for (series, signals) in sample.signals() {
            if let Some((from, to)) = names.edge_of(series) {
                mesh.edges.push(Edge {
                    from: from.to_owned(),
                    to: to.to_owned(),
                    signals,
                    ..Edge::default()
                });
            } else if let Some(name) = names.vertex_of(series) {
                let vertex = Vertex {
                    meshed: true,
                    signals: Some(signals),
                    ..Vertex::default()
                };
                mesh.vertices.insert(name.to_owned(), vertex);
            }
        }
        // A caller without sidecars of its own has edges only.
        let ends = mesh.edges.iter().flat_map(|edge| [&edge.from, &edge.to]);
        for end in ends {
            if !mesh.vertices.contains_key(end) {
                mesh.vertices.insert(end.clone(), Vertex::default());
            }
        }
        Some((u64::from(sample.at), mesh))
    }
}

#[cfg(test)]
mod allocations;
#[cfg(test)]
mod tests;
