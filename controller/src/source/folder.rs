//! Reads resources from a directory of YAML or JSON files, for a mesh without Kubernetes.
//!
//! The files contain the same resources as an API server: each file has one or several documents, or a `List`. The
//! directory is watched, but not its subdirectories. If a file cannot be read completely, its readable part is used,
//! and for the rest the resources that were previously read from the file.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use maglor_manifests::inject::yaml;
use notify::{EventKind, RecursiveMode, Watcher as _};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::Event;
use crate::crd::{GROUP, operated};
use crate::index::facts::{Key, Kind, Object, ReadError};

/// Time to wait until there are no more events, because files are written in several operations.
const SETTLE: Duration = Duration::from_millis(100);
/// Maximum time to wait, for directories that change continuously (because of a log file, for example).
const AT_LATEST: Duration = Duration::from_secs(1);

/// Reason why a directory cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The directory cannot be listed.
    #[error("{}: {source}", folder.display())]
    Read {
        /// Path of the directory.
        folder: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The directory cannot be watched, for example because the system's limit of watches is reached.
    #[error("{}: cannot watch: {source}", folder.display())]
    Watch {
        /// Path of the directory.
        folder: PathBuf,
        /// Error of the operating system.
        source: notify::Error,
    },
}

/// A directory, and the resources last read from each of its files.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    files: BTreeMap<PathBuf, Vec<Object>>,
    /// Errors of the last read, which are logged only once: if the log file is in this directory, each message
    /// triggers another read.
    reported: BTreeSet<(String, String)>,
}

impl Folder {
    /// Creates the record of a directory that has not been read yet.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            files: BTreeMap::new(),
            reported: BTreeSet::new(),
        }
    }

    /// Reads all files. Unchanged errors are not logged again.
    ///
    /// # Errors
    /// If the directory itself cannot be listed.
    pub fn read(&mut self) -> Result<Vec<Event>, FolderError> {
        let failed = |source| FolderError::Read {
            folder: self.path.clone(),
            source,
        };
        let mut paths = BTreeSet::new();
        for entry in std::fs::read_dir(&self.path).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            if matches!(extension, Some("json" | "yaml" | "yml")) {
                paths.insert(path);
            }
        }
        let mut events = Vec::new();
        let mut files = BTreeMap::new();
        for path in paths {
            let what = path.display().to_string();
            let read = match std::fs::read_to_string(&path) {
                Ok(text) => contents(&text),
                Err(error) => Contents {
                    refused: vec![error.to_string()],
                    ..Contents::default()
                },
            };
            let before = self.files.remove(&path).unwrap_or_default();
            let mut objects = read.objects;
            if !read.refused.is_empty() {
                // The resources of the unreadable part are unknown, so all previous ones are kept.
                let there: BTreeSet<(Kind, Key)> = objects.iter().map(id).collect();
                let kept = before.into_iter().filter(|one| !there.contains(&id(one)));
                objects.extend(kept);
            }
            let refused = read.refused.into_iter().chain(read.others);
            events.extend(refused.map(|why| Event::Refused {
                what: what.clone(),
                why,
            }));
            files.insert(path, objects);
        }
        self.files = files;
        events.extend(self.resets());
        let mut refused = BTreeSet::new();
        events.retain(|event| match event {
            Event::Refused { what, why } => {
                let one = (what.clone(), why.clone());
                let known = self.reported.contains(&one);
                refused.insert(one);
                !known
            }
            _ => true,
        });
        self.reported = refused;
        Ok(events)
    }

    /// Returns all resources by kind. Of duplicates, the first one is used.
    fn resets(&self) -> Vec<Event> {
        let mut kinds: BTreeMap<Kind, Vec<Object>> = Kind::ALL
            .into_iter()
            .map(|kind| (kind, Vec::new()))
            .collect();
        let mut seen: BTreeMap<(Kind, Key), &Path> = BTreeMap::new();
        let mut events = Vec::new();
        for (path, objects) in &self.files {
            for object in objects {
                let id = id(object);
                if let Some(other) = seen.get(&id) {
                    let kind = object.kind.names().1;
                    events.push(Event::Refused {
                        what: path.display().to_string(),
                        why: format!("{kind} {} is also in {}", object.key, other.display()),
                    });
                    continue;
                }
                seen.insert(id, path);
                kinds.entry(object.kind).or_default().push(object.clone());
            }
        }
        events.extend(kinds.into_iter().map(|(kind, objects)| Event::Reset {
            kind,
            objects,
            unread: Vec::new(),
        }));
        events
    }
}

fn id(object: &Object) -> (Kind, Key) {
    (object.kind, object.key.clone())
}

/// The content of a text.
#[derive(Debug, Default)]
pub struct Contents {
    /// The resources of supported kinds.
    pub objects: Vec<Object>,
    /// Resources that are only meaningful to Kubernetes, one line each.
    pub others: Vec<String>,
    /// Documents and resources that cannot be read, each with its line. Other resources are not affected.
    pub refused: Vec<String>,
}

/// Reads a text.
#[must_use]
pub fn contents(text: &str) -> Contents {
    let mut found = Contents::default();
    for (before, text) in yaml::split(text) {
        let documents = match yaml::documents(text) {
            Ok(documents) => documents,
            Err(error) => {
                let (line, message) = (before + error.line, error.message);
                found.refused.push(format!("line {line}: {message}"));
                continue;
            }
        };
        for document in documents {
            let line = before + document.line;
            for mut item in yaml::items(document.value) {
                yaml::without_nulls(&mut item);
                let name = item["metadata"]["name"].as_str().unwrap_or("without name");
                let report = |error: ReadError| format!("document at line {line}, {name}: {error}");
                match Object::read(&item) {
                    Ok(object) => found.objects.push(object),
                    Err(error) if is_others(&item) => {
                        let what = format!("{}; skipped", report(error));
                        found.others.push(what);
                    }
                    Err(error) => found.refused.push(report(error)),
                }
            }
        }
    }
    found
}

/// Other kinds of the core group in manifests of applications.
const OTHERS: [&str; 8] = [
    "ConfigMap",
    "Endpoints",
    "LimitRange",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "ReplicationController",
    "ResourceQuota",
    "ServiceAccount",
];

/// Returns whether an object is of a foreign kind, such as a Deployment next to its Service, and not a misspelt kind
/// of the mesh.
fn is_others(item: &Value) -> bool {
    let text = |name: &str| item[name].as_str().unwrap_or_default();
    match text("apiVersion").split_once('/') {
        None => text("apiVersion") == "v1" && OTHERS.contains(&text("kind")),
        Some((GROUP, _)) => operated::check(item).is_some(),
        Some((group, _)) => {
            let of_group = |kind: &Kind| {
                kind.names()
                    .0
                    .split_once('/')
                    .is_some_and(|own| own.0 == group)
            };
            !text("kind").is_empty() && !Kind::ALL.iter().any(of_group)
        }
    }
}

/// Reads a directory and reports changes until the receiver is dropped.
///
/// # Errors
/// If the directory cannot be read at the start, or cannot be watched.
pub async fn watch(path: &Path, events: mpsc::Sender<Event>) -> Result<(), FolderError> {
    let (sender, mut changed) = mpsc::unbounded_channel();
    let failed = |source| FolderError::Watch {
        folder: path.to_owned(),
        source,
    };
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // An error may mean that events were lost, so the directory is read again.
        let relevant = |event: notify::Event| !matches!(event.kind, EventKind::Access(_));
        if event.map_or(true, relevant) {
            let _ = sender.send(());
        }
    })
    .map_err(failed)?;
    // The watch begins before the first read, so that no change in between is missed.
    watcher
        .watch(path, RecursiveMode::NonRecursive)
        .map_err(failed)?;
    let mut folder = Folder::new(path);
    let mut read = folder.read()?;
    loop {
        for event in read {
            if events.send(event).await.is_err() {
                return Ok(());
            }
        }
        tokio::select! {
            () = events.closed() => return Ok(()),
            change = changed.recv() => if change.is_none() { return Ok(()) },
        }
        let latest = Instant::now() + AT_LATEST;
        let quiet = || latest.min(Instant::now() + SETTLE);
        while let Ok(Some(())) = timeout_at(quiet(), changed.recv()).await {}
        read = folder.read().unwrap_or_else(|error| {
            vec![Event::Refused {
                what: path.display().to_string(),
                why: error.to_string(),
            }]
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: &str =
        "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80}]}\n";

    fn count(events: &[Event], kind: Kind) -> usize {
        let found = events.iter().find_map(|event| match event {
            Event::Reset {
                kind: one, objects, ..
            } if *one == kind => Some(objects.len()),
            _ => None,
        });
        found.unwrap()
    }

    fn refused(events: &[Event]) -> Vec<&str> {
        let why = events.iter().filter_map(|event| match event {
            Event::Refused { why, .. } => Some(why.as_str()),
            _ => None,
        });
        why.collect()
    }

    #[test]
    fn documents_and_lists_are_read() {
        let text = format!(
            "{SERVICE}---\n---\napiVersion: v1\nkind: List\nitems:\n- {{apiVersion: v1, kind: Node, metadata: {{name: node}}}}\n"
        );
        assert_eq!(contents(&text).objects.len(), 2);
        assert!(contents("").objects.is_empty());
        for (text, expected) in [
            ("a: [", "line 2: "),
            ("a: 1\nb: 2\na: 3\n", "line 3: `a` is defined twice"),
            (
                "{apiVersion: v1, kind: Servis, metadata: {name: s}}",
                "document at line 1, s: apiVersion `v1`, kind `Servis`",
            ),
            (
                "{apiVersion: maglor.dev/v1alpha1, kind: TraficPolicy, metadata: {name: s}}",
                "kind `TraficPolicy` is not supported",
            ),
            (
                "{apiVersion: v1, kind: Node}",
                "document at line 1, without name: metadata.name is missing",
            ),
        ] {
            let errors = contents(text).refused;
            assert!(errors[0].contains(expected), "{errors:?}");
        }
    }

    /// An error affects only its own document or resource.
    #[test]
    fn what_is_beside_a_fault_is_read() {
        let node = "{apiVersion: v1, kind: Node, metadata: {name: one}}";
        for bad in [
            "a: [",
            "a: 1\na: 2",
            "\t- a",
            "%YAML 9\n--- {",
            "kind: Servis",
            "apiVersion: v1\nkind: List\nitems: [{kind: x}, {apiVersion: v1, kind: Node}]",
            "{apiVersion: v1, kind: Service, metadata: {name: b}, spec: 5}",
            "a: &a [*a]",
        ] {
            for text in [
                format!("{SERVICE}---\n{bad}\n---\n{node}\n"),
                format!("{bad}\n---\n{SERVICE}---\n{node}\n"),
                format!("{SERVICE}---\n{node}\n---\n{bad}"),
            ] {
                let read = contents(&text);
                assert_eq!(read.objects.len(), 2, "{text}: {read:?}");
                assert!(!read.refused.is_empty(), "{text}");
            }
        }
        let beside = "apiVersion: v1\nkind: List\nitems:\n- {kind: x}\n- {apiVersion: v1, kind: Node, metadata: {name: one}}\n";
        let read = contents(beside);
        assert_eq!((read.objects.len(), read.refused.len()), (1, 1));
    }

    #[test]
    fn fields_that_are_null_are_not_there() {
        let nulls =
            "metadata:\n  name: a\n  annotations:\n  labels:\n  namespace: null\n  generation: ~\n";
        for rest in [
            "apiVersion: v1\nkind: Service\nspec:\n  clusterIP:\n  selector:\n  ports: [{port: 80, name: null}]\n",
            "apiVersion: v1\nkind: Pod\nspec:\n  serviceAccountName:\n  containers:\nstatus:\n",
            "apiVersion: v1\nkind: Namespace\nspec:\n",
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nports:\nendpoints:\n- {addresses: [10.0.0.1], conditions: null, nodeName: null}\n",
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nspec:\n  parentRefs:\n  hostnames:\n  rules: [{matches: null, backendRefs: [{name: a, port: 80, weight: null}]}]\n",
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nspec: {hosts: [a], gateways: null, http: [{match: null, route: [{destination: {host: a, port: null}}]}]}\n",
            "apiVersion: maglor.dev/v1alpha1\nkind: TrafficPolicy\nspec: {targetRefs: null, cluster: {policy: random, limits: null}}\n",
        ] {
            let read = contents(&format!("{rest}{nulls}"));
            assert_eq!(
                (read.objects.len(), read.refused),
                (1, Vec::new()),
                "{rest}"
            );
        }
    }

    /// 1 kB that would expand to 976 MB.
    #[test]
    fn aliases_are_bounded() {
        let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for (of, name) in ["ab", "bc", "cd", "de", "ef", "fg"].map(|pair| pair.split_at(1)) {
            let list = vec![format!("*{of}"); 10].join(", ");
            bomb.push_str(&format!("{name}: &{name} [{list}]\n"));
        }
        let read = contents(&format!("{SERVICE}---\n{bomb}"));
        assert_eq!(read.objects.len(), 1);
        assert!(read.refused[0].contains("write the values out"), "{read:?}");
        let long = format!(
            "a: &a {}\nb: [{}]\n",
            "x".repeat(100_000),
            "*a,".repeat(1000)
        );
        let refused = contents(&long).refused;
        assert!(refused[0].contains("write the values out"), "{refused:?}");
    }

    /// Manifests of an application can be read unchanged.
    #[test]
    fn what_is_kubernetes_own_is_passed_over() {
        let text = format!(
            "{SERVICE}---\n{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: a}}}}\n---\n\
             {{apiVersion: v1, kind: ConfigMap, metadata: {{name: a}}}}\n---\n\
             {{apiVersion: maglor.dev/v1alpha1, kind: ProxyService, metadata: {{name: a}}, spec: {{targetRef: {{name: a}}}}}}\n"
        );
        let read = contents(&text);
        assert_eq!((read.objects.len(), read.others.len()), (1, 3));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.yaml"), &text).unwrap();
        let mut read = Folder::new(folder.path());
        let events = read.read().unwrap();
        assert_eq!(count(&events, Kind::Service), 1);
        assert!(refused(&events)[0].contains("kind `Deployment`"));
        assert_eq!(refused(&read.read().unwrap()).len(), 0, "logged once");
    }

    #[test]
    fn a_file_that_breaks_leaves_what_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yaml");
        std::fs::write(&file, SERVICE).unwrap();
        std::fs::write(folder.path().join("notes.txt"), "not: [read").unwrap();
        let mut read = Folder::new(folder.path());
        let events = read.read().unwrap();
        assert_eq!(
            (count(&events, Kind::Service), refused(&events).len()),
            (1, 0)
        );
        std::fs::write(&file, "apiVersion: [").unwrap();
        let events = read.read().unwrap();
        assert_eq!(
            (count(&events, Kind::Service), refused(&events).len()),
            (1, 1)
        );
        // The error is logged once, until it changes.
        assert_eq!(refused(&read.read().unwrap()).len(), 0);
        std::fs::write(&file, "kind: [").unwrap();
        assert_eq!(refused(&read.read().unwrap()).len(), 0, "the same fault");
        std::fs::write(&file, "a: 1\na: 2\n").unwrap();
        assert_eq!(refused(&read.read().unwrap()).len(), 1, "another one");
        std::fs::write(&file, SERVICE).unwrap();
        assert_eq!(refused(&read.read().unwrap()).len(), 0);
        std::fs::write(&file, "a: 1\na: 2\n").unwrap();
        assert_eq!(refused(&read.read().unwrap()).len(), 1, "again");
        // Valid resources replace earlier ones, also in a file with an error; resources that the error may affect stay.
        let renamed = SERVICE.replace("name: a", "name: b");
        std::fs::write(&file, format!("{renamed}---\na: 1\na: 2\n")).unwrap();
        assert_eq!(count(&read.read().unwrap(), Kind::Service), 2);
        std::fs::write(&file, &renamed).unwrap();
        assert_eq!(count(&read.read().unwrap(), Kind::Service), 1);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(count(&read.read().unwrap(), Kind::Service), 0);
    }

    #[test]
    fn of_two_that_are_the_same_the_first_holds() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.yaml", "b.yml"] {
            std::fs::write(folder.path().join(name), SERVICE).unwrap();
        }
        let events = Folder::new(folder.path()).read().unwrap();
        assert_eq!(count(&events, Kind::Service), 1);
        assert!(refused(&events)[0].starts_with("Service default/a is also in "));
        assert!(Folder::new(&folder.path().join("gone")).read().is_err());
    }
}
