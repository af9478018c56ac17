//! The names that blocks may refer to, and the resolution of references.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};

use crate::listener::PathNormalization;
use crate::raw;
use crate::report::At;
use crate::suggest::nearest;

/// For each kind of block, whether all names could be read; if not, an unresolved reference may be a consequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) clusters: bool,
    pub(crate) route_tables: bool,
    pub(crate) identity: bool,
    /// Whether the whole configuration has one author. A control plane merges resources of several authors, such as
    /// routes of one and a policy of another.
    pub(crate) one_author: bool,
}

/// The names of the configuration.
pub(crate) struct Scope<'a> {
    known: Known,
    clusters: HashMap<&'a str, &'a raw::Cluster>,
    tables: HashSet<&'a str>,
    identity: bool,
    used_identity: Cell<bool>,
    control_plane: bool,
    used_control_plane: Cell<bool>,
    used_clusters: RefCell<HashSet<&'a str>>,
    used_tables: RefCell<HashSet<&'a str>>,
    /// The least normalization of paths on any listener.
    normalization: PathNormalization,
    /// The number of regular expressions compiled so far.
    pub(super) patterns: Cell<usize>,
}

impl<'a> Scope<'a> {
    /// Creates the scope; `made` are clusters generated for listeners' short forms.
    pub(crate) fn new(raw: &'a raw::Document, made: &'a [raw::Cluster], known: Known) -> Self {
        let clusters = raw
            .clusters
            .iter()
            .chain(made)
            .filter_map(|c| Some((c.name.as_deref()?, c)));
        let tables = raw.route_tables.iter().filter_map(|t| t.name.as_deref());
        Self {
            known,
            clusters: clusters.collect(),
            tables: tables.collect(),
            identity: raw.identity.is_some(),
            used_identity: Cell::new(false),
            control_plane: raw.control_plane.is_some(),
            used_control_plane: Cell::new(false),
            used_clusters: RefCell::default(),
            used_tables: RefCell::default(),
            normalization: normalization(raw),
            patterns: Cell::new(0),
        }
    }

    /// Returns the cluster of that name, or reports an error.
    pub(super) fn resolve_cluster(&self, name: &str, at: &At<'_>) -> Option<&'a raw::Cluster> {
        let found = self.clusters.get_key_value(name);
        if let Some((name, cluster)) = found {
            self.used_clusters.borrow_mut().insert(name);
            return Some(cluster);
        }
        if self.known.clusters {
            report_unknown(name, "cluster", self.clusters.keys().copied(), at);
        }
        None
    }

    /// Returns the cluster of that name, if there is one.
    pub(super) fn known_cluster(&self, name: &str) -> Option<&'a raw::Cluster> {
        self.clusters.get(name).copied()
    }

    /// Returns the normalization of each path that is compared with a route; `None` if the listeners of the routes are
    /// not known.
    pub(super) fn normalization(&self) -> Option<PathNormalization> {
        self.has_one_author().then_some(self.normalization)
    }

    /// Returns whether the configuration has one author.
    pub(super) fn has_one_author(&self) -> bool {
        self.known.one_author
    }

    /// Reports an error if there is no identity, which mesh TLS needs.
    pub(super) fn needs_identity(&self, at: &At<'_>) {
        self.used_identity.set(true);
        if !self.identity && self.known.identity {
            at.error("mesh TLS needs an `identity`").help(
                "add `identity: {certificate: FILE, private_key: FILE, trust_bundle: FILE}` at the top, or `{token_file: FILE, trust_bundle: FILE}`",
            );
        }
    }

    /// Notes that clusters which are discovered may use mesh TLS.
    pub(super) fn may_use_identity(&self) {
        self.used_identity.set(true);
    }

    /// Reports an error if there is no control plane, which discovery needs.
    pub(super) fn needs_control_plane(&self, at: &At<'_>) {
        self.used_control_plane.set(true);
        if !self.control_plane {
            at.error("the field needs a `control_plane`, which is not configured")
                .help("add `control_plane: {cluster: NAME, node: {id: NAME}}` at the top");
        }
    }

    /// Returns whether there is a route table of that name; reports an error if not.
    pub(super) fn resolve_table(&self, name: &str, at: &At<'_>) -> bool {
        if let Some(name) = self.tables.get(name) {
            self.used_tables.borrow_mut().insert(name);
            return true;
        }
        if self.known.route_tables {
            report_unknown(name, "route table", self.tables.iter().copied(), at);
        }
        false
    }

    /// Warns of unused clusters, tables and identities.
    pub(super) fn warn_unused(&self, raw: &raw::Document, at: &At<'_>) {
        if self.identity && !self.used_identity.get() {
            at.field("identity")
                .warning("no listener and no cluster uses the identity")
                .on_key()
                .help("write `tls: mesh` on listeners and clusters for workloads of the mesh");
        }
        if self.control_plane && !self.used_control_plane.get() {
            at.field("control_plane")
                .warning("no listener uses the control plane")
                .on_key()
                .help("add `discovery: {}` to the listeners that need it");
        }
        let (used, clusters) = (self.used_clusters.borrow(), at.field("clusters"));
        for (i, cluster) in raw.clusters.iter().enumerate() {
            unused(
                cluster.name.as_deref(),
                &used,
                &clusters.index(i),
                "no route leads to cluster",
            );
        }
        let (used, tables) = (self.used_tables.borrow(), at.field("route_tables"));
        for (i, table) in raw.route_tables.iter().enumerate() {
            unused(
                table.name.as_deref(),
                &used,
                &tables.index(i),
                "no listener uses route table",
            );
        }
    }
}

/// Returns the least normalization of paths on any listener, since a route may be used by several.
fn normalization(raw: &raw::Document) -> PathNormalization {
    let of_listener = |one: &raw::Listener| {
        let of_chains = one.filter_chains.iter();
        let of_chains = of_chains.filter_map(|chain| chain.http.as_ref());
        let modes = one.http.iter().chain(of_chains);
        modes
            .map(|http| {
                http.path_normalization
                    .map_or_else(PathNormalization::default, PathNormalization::from)
            })
            .min()
    };
    let least = raw.listeners.iter().filter_map(of_listener).min();
    least.unwrap_or_default()
}

fn unused(name: Option<&str>, used: &HashSet<&str>, at: &At<'_>, what: &str) {
    if let Some(name) = name.filter(|name| !used.contains(name)) {
        at.field("name").warning(format!("{what} `{name}`"));
    }
}

fn report_unknown<'n>(name: &str, kind: &str, names: impl Iterator<Item = &'n str>, at: &At<'_>) {
    // Sorted so that the same file always produces the same message.
    let mut names: Vec<&str> = if at.report().is_full() {
        Vec::new()
    } else {
        names.collect()
    };
    names.sort_unstable();
    let help = match nearest(name, names.iter().copied()) {
        Some(near) => Some(format!("did you mean `{near}`?")),
        None if names.is_empty() => None,
        None if names.len() <= 12 => Some(format!("defined: {}", list(&names))),
        None => None,
    };
    at.error(format!("there is no {kind} `{}`", crate::yaml::short(name)))
        .maybe_help(help);
}

fn list(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}
