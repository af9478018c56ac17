//! Numbers of services and edges.

use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of series.
const MOST: usize = 65_536;

/// The names of a generation, numbered in the order of their first appearance.
#[derive(Debug, Default)]
pub(super) struct Names {
    series: Vec<Name>,
    vertices: HashMap<Arc<str>, u32>,
    edges: HashMap<(u32, u32), u32>,
    bytes: usize,
}

#[derive(Debug)]
enum Name {
    Vertex(Arc<str>),
    /// The numbers of the vertices.
    Edge(u32, u32),
}

impl Names {
    pub(super) fn len(&self) -> usize {
        self.series.len()
    }

    /// Returns the number of a vertex, which it gets now if it has none; `None` if there are too many.
    pub(super) fn vertex(&mut self, name: &str) -> Option<u32> {
        if let Some(series) = self.vertices.get(name) {
            return Some(*series);
        }
        let name: Arc<str> = name.into();
        let series = self.push(Name::Vertex(Arc::clone(&name)))?;
        // The two counters of an `Arc`.
        self.bytes += name.len() + 2 * size_of::<usize>();
        self.vertices.insert(name, series);
        Some(series)
    }

    /// Returns the number of an edge, which it gets now if it has none; `None` if there are too many.
    pub(super) fn edge(&mut self, from: &str, to: &str) -> Option<u32> {
        let pair = (self.vertex(from)?, self.vertex(to)?);
        if let Some(series) = self.edges.get(&pair) {
            return Some(*series);
        }
        let series = self.push(Name::Edge(pair.0, pair.1))?;
        self.edges.insert(pair, series);
        Some(series)
    }

    fn push(&mut self, name: Name) -> Option<u32> {
        let number = u32::try_from(self.series.len()).ok()?;
        if self.series.len() >= MOST {
            return None;
        }
        self.series.push(name);
        Some(number)
    }

    /// Returns the number of a vertex; `None` if it has none.
    pub(super) fn find_vertex(&self, name: &str) -> Option<u32> {
        self.vertices.get(name).copied()
    }

    /// Returns the number of an edge; `None` if it has none.
    pub(super) fn find_edge(&self, from: &str, to: &str) -> Option<u32> {
        let pair = (self.find_vertex(from)?, self.find_vertex(to)?);
        self.edges.get(&pair).copied()
    }

    /// Returns the numbers of all vertices.
    pub(super) fn vertices(&self) -> impl Iterator<Item = u32> {
        self.vertices.values().copied()
    }

    /// Returns the name of a series if it is a vertex.
    pub(super) fn vertex_of(&self, series: u32) -> Option<&str> {
        match self.series.get(series as usize)? {
            Name::Vertex(name) => Some(name),
            Name::Edge(..) => None,
        }
    }

    /// Returns the names of both ends of a series if it is an edge.
    pub(super) fn edge_of(&self, series: u32) -> Option<(&str, &str)> {
        match self.series.get(series as usize)? {
            Name::Vertex(_) => None,
            Name::Edge(from, to) => Some((self.vertex_of(*from)?, self.vertex_of(*to)?)),
        }
    }

    /// Returns the allocated bytes. A hash table has an eighth of empty slots at least, and a byte a slot.
    pub(super) fn size(&self) -> usize {
        let slots = |capacity: usize, entry: usize| (capacity * 8 / 7 + 1) * (entry + 1);
        self.series.capacity() * size_of::<Name>()
            + slots(self.vertices.capacity(), size_of::<(Arc<str>, u32)>())
            + slots(self.edges.capacity(), size_of::<((u32, u32), u32)>())
            + self.bytes
    }
}
