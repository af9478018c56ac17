//! The shape of the workspace, checked: which package may use which, that the folders
//! and modules of the proxy form layers, that files do not use each other in circles and stay readable.
//!
//! A failure states what to change. The tables below are the place to discuss a new edge; see
//! ARCHITECTURE.md.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod architecture {
    pub(crate) mod cycles;
    pub(crate) mod metadata;
    pub(crate) mod sources;
}

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use architecture::{cycles, metadata, sources};

/// Which workspace packages a package may depend on, dev-dependencies left out.
///
/// Edges point from products to libraries: a decision does not depend on its executor.
const ALLOWED_EDGES: &[(&str, &[&str])] = &[
    // Rooms.
    ("maglor-balance", &[]),
    ("maglor-config", &["maglor-balance", "maglor-identity"]),
    ("maglor-identity", &[]),
    ("maglor-manifests", &["maglor-balance", "maglor-config"]),
    ("maglor-service-graph", &["maglor-balance"]),
    ("maglor-telemetry", &[]),
    (
        "maglor-xds",
        &["maglor-balance", "maglor-config", "maglor-identity"],
    ),
    // Products.
    (
        "maglor-proxy",
        &[
            "maglor-balance",
            "maglor-config",
            "maglor-identity",
            "maglor-telemetry",
            "maglor-xds",
        ],
    ),
    (
        "maglor-controller",
        &[
            "maglor-balance",
            "maglor-config",
            "maglor-identity",
            "maglor-manifests",
            "maglor-service-graph",
            "maglor-telemetry",
            "maglor-xds",
        ],
    ),
    (
        "maglor-cli",
        &[
            "maglor-balance",
            "maglor-config",
            "maglor-controller",
            "maglor-identity",
            "maglor-manifests",
            // The demo has one in its process.
            "maglor-proxy",
            "maglor-service-graph",
            "maglor-telemetry",
        ],
    ),
    // Experiments; nothing that is shipped links simulations or charts.
    (
        "maglor-lab",
        &[
            "maglor-balance",
            "maglor-service-graph",
            // For its command line.
            "maglor-telemetry",
            // Its load generator is that of the benchmarks.
            "maglor-testkit",
        ],
    ),
    // Tools. Only tools and the laboratory depend on them.
    (
        "maglor-benches",
        &[
            "maglor-balance",
            "maglor-config",
            "maglor-identity",
            "maglor-lab",
            "maglor-proxy",
            "maglor-telemetry",
            // Its emulated applications, its Kubernetes, and its load generator with a client of less CPU.
            "maglor-testkit",
            // To query the controller like a sidecar.
            "maglor-xds",
        ],
    ),
    // For the generator of random numbers, and the clock.
    ("maglor-testkit", &["maglor-balance"]),
    (
        "maglor-xtask",
        &[
            "maglor-config",
            "maglor-controller",
            "maglor-testkit",
            "maglor-xds",
        ],
    ),
];

/// Packages that must not be linked, however many packages are between. Arguments of cargo follow a name.
const FORBIDDEN: &[(&str, &[&str])] = &[
    // Both ends of the protocol, without a socket.
    ("maglor-xds", &["tokio", "mio", "hyper"]),
    // Decisions are pure: no I/O, no runtime, no randomness except their arguments.
    ("maglor-balance", &["tokio", "mio", "rand", "getrandom"]),
    ("maglor-lab --no-default-features", &["tokio", "mio"]),
    ("maglor-service-graph", &["tokio", "mio", "kube"]),
    ("maglor-config", &["tokio", "hyper"]),
    ("maglor-manifests", &["tokio", "mio", "hyper", "kube"]),
    ("maglor-telemetry", &["tokio", "hyper"]),
    // Simulations and charts are the laboratory's.
    ("maglor-cli", &["maglor-lab", "resvg"]),
    // The data plane learns about Kubernetes from the control plane only; one TLS provider.
    (
        "maglor-proxy",
        &["kube", "k8s-openapi", "maglor-testkit", "ring", "openssl"],
    ),
];

/// The folders of the proxy, each of which may use those before it.
const LAYERS: [&str; 12] = [
    "os",
    "net",
    "protocol",
    "telemetry",
    "tls",
    "runtime",
    "upstream",
    "mesh",
    "routing",
    "http",
    "downstream",
    "control",
];

/// Folders inside of those folders whose modules are nodes of their own.
const SUBDIVIDED: &[&str] = &["mesh::load_feedback"];

/// How many packages the proxy may be made of, itself included.
const PROXY_PACKAGES: usize = 250;

/// How many packages the controller of `cargo xtask demo` may add to those of the proxy and the demo.
const DEMO_PACKAGES: usize = 12;

/// How many lines a source file may have before its tests.
const LINES: usize = 500;

#[test]
fn packages_depend_only_where_the_table_allows() {
    let allowed: BTreeMap<_, _> = ALLOWED_EDGES.iter().copied().collect();
    let mut wrong = Vec::new();
    for (package, uses) in metadata::workspace_edges() {
        let Some(allowed) = allowed.get(package.as_str()) else {
            wrong.push(format!("{package} is not in ALLOWED_EDGES"));
            continue;
        };
        for used in uses.iter().filter(|used| !allowed.contains(&used.as_str())) {
            wrong.push(format!("{package} must not depend on {used}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn forbidden_packages_are_not_linked() {
    let mut wrong = Vec::new();
    for (package, forbidden) in FORBIDDEN {
        let words = Vec::from_iter(package.split(' '));
        let linked = metadata::Linked::of(words[0], &words[1..]);
        let linked = linked.unwrap_or_else(|| panic!("the workspace has no {package}"));
        for target in *forbidden {
            if let Some(path) = linked.way_to(target) {
                wrong.push(format!(
                    "{package} must not link {target}: {}",
                    path.join(" -> ")
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    let proxy = metadata::Linked::of("maglor-proxy", &[]).expect("the workspace has a proxy");
    let count = proxy.names().len();
    println!("the proxy is made of {count} packages");
    assert!(
        proxy.way_to("tokio").is_some(),
        "the search finds something"
    );
    assert!(
        count <= PROXY_PACKAGES,
        "the proxy is made of {count} packages, more than {PROXY_PACKAGES}"
    );
}

/// `cargo xtask demo` builds the controller without Kubernetes, so that the first request of a fresh clone takes minutes.
#[test]
fn the_controller_of_the_demo_is_small() {
    let of = |flags: &[&str]| metadata::Linked::of("maglor-controller", flags).unwrap();
    let whole = of(&[]);
    assert!(whole.way_to("kube").is_some(), "the search finds something");
    let small = of(&["--no-default-features"]);
    let proxy = metadata::Linked::of("maglor-proxy", &[]).unwrap();
    // Without the command line, for the first hour.
    let demo = metadata::Linked::of("maglor-cli", &["--no-default-features"]).unwrap();
    for package in ["kube", "kube-client", "k8s-openapi"] {
        assert_eq!(small.way_to(package), None);
        assert_eq!(demo.way_to(package), None);
    }
    let (small, proxy, demo) = (small.names(), proxy.names(), demo.names());
    let built: BTreeSet<&str> = proxy.union(&demo).copied().collect();
    let more = Vec::from_iter(small.difference(&built));
    println!("the controller adds {} packages: {more:?}", more.len());
    assert!(more.len() <= DEMO_PACKAGES, "{more:?}");
}

/// Features of the controller are not scattered: they select whole modules, imports from these, and the derive of kube.
#[test]
fn the_feature_of_the_controller_selects_modules() {
    let mut wrong = Vec::new();
    for (path, text) in sources::files(&metadata::root()) {
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        for pair in lines.windows(2).filter(|_| path.starts_with("controller/")) {
            let selects = pair[0].starts_with("#[cfg(") && pair[0].contains("\"kubernetes\"");
            let item = pair[1]
                .trim_start_matches("pub(crate) ")
                .trim_start_matches("pub ");
            let is_whole = ["mod ", "use ", "#["]
                .iter()
                .any(|one| item.starts_with(one));
            if selects && !is_whole {
                wrong.push(format!("{path}: {}", pair[1]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Dependencies that no source names: they choose a version or a feature of another package.
const UNNAMED: [(&str, &str); 1] = [("maglor-proxy", "idna_adapter")];

#[test]
fn dependencies_are_used() {
    let mut unused = Vec::new();
    for (package, folder, dependencies) in metadata::dependencies() {
        let words = sources::words(&folder);
        for dependency in dependencies {
            if !words.contains(&dependency.replace('-', "_")) {
                unused.push((package.clone(), dependency));
            }
        }
    }
    let unnamed = UNNAMED.map(|(package, name)| (package.to_owned(), name.to_owned()));
    assert_eq!(unused, unnamed, "dependencies that no source names");
}

/// A package with one program for many files of tests lists its programs; cargo looks for no others there.
#[test]
fn each_file_of_tests_is_in_a_program() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for package in metadata::targets() {
        let modules = package.tests.iter().flat_map(|main| sources::modules(main));
        let modules = BTreeSet::from_iter(modules);
        let mains = package.tests.iter().filter_map(|main| main.parent());
        let folders = BTreeSet::from_iter(
            mains
                .map(Path::to_owned)
                .chain([package.folder.join("tests")]),
        );
        for file in folders
            .iter()
            .flat_map(|folder| sources::directly_in(folder))
        {
            let module = file.file_stem().unwrap().to_string_lossy();
            count += 1;
            if !package.tests.contains(&file) && !modules.contains(&*module) {
                wrong.push(format!("{}: a module of main.rs", file.display()));
            }
        }
    }
    assert!(count > 100, "files of tests were found");
    assert!(wrong.is_empty(), "add to a program:\n{}", wrong.join("\n"));
}

/// A target without tests is not linked for them, too.
#[test]
fn tests_are_not_turned_off() {
    let root = metadata::root();
    let files = sources::files(&root);
    let mut wrong = Vec::new();
    for main in metadata::targets()
        .iter()
        .flat_map(|package| &package.untested)
    {
        let folder = main.parent().unwrap();
        let modules = sources::modules(main);
        let is_part = |path: &Path| {
            let below = path.strip_prefix(folder).ok();
            let module = below.and_then(|below| below.iter().next());
            let module = module.map(|name| name.to_string_lossy());
            path == main
                || module.is_some_and(|name| modules.contains(name.trim_end_matches(".rs")))
        };
        let parts = files.iter().filter(|(path, _)| is_part(&root.join(path)));
        let with_tests = parts.filter(|(_, text)| text.contains("#[cfg(test)]"));
        wrong.extend(with_tests.map(|(path, _)| path));
    }
    assert!(
        wrong.is_empty(),
        "remove `test = false` in Cargo.toml: {wrong:?}"
    );
}

/// Looking for examples takes a second or more of each library, so that those without any turn it off.
#[test]
fn examples_in_comments_are_tested() {
    let root = metadata::root();
    let files = sources::files(&root);
    let (mut wrong, mut count) = (Vec::new(), 0);
    for package in metadata::targets() {
        let Some(doctest) = package.doctest else {
            continue;
        };
        let src = package.folder.strip_prefix(&root).unwrap().join("src");
        let mut texts = files
            .iter()
            .filter(|(path, _)| path.starts_with(&*src.to_string_lossy()));
        let has_examples = texts.any(|(_, text)| sources::has_example(text));
        count += usize::from(has_examples);
        if has_examples != doctest {
            wrong.push(format!(
                "{}: `[lib] doctest = {has_examples}`",
                src.display()
            ));
        }
    }
    assert!(count > 0, "examples were found");
    assert!(
        wrong.is_empty(),
        "write in Cargo.toml:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn the_folders_of_the_proxy_form_layers() {
    let modules = proxy();
    let folder = |name: &str| name.split("::").next().map(str::to_owned);
    let folders = modules.grouped(|name| folder(name).filter(|folder| !folder.is_empty()));
    let names = BTreeSet::from_iter(folders.names());
    assert_eq!(names, BTreeSet::from_iter(LAYERS), "LAYERS has all folders");
    let layer = |name: &str| LAYERS.iter().position(|layer| *layer == name);
    let upwards = folders
        .edges()
        .filter(|(user, used, _)| layer(user) < layer(used));
    let wrong: Vec<_> = upwards
        .map(|(user, used, place)| format!("{user} must not use {used}, as it does at {place}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_modules_of_the_proxy_form_layers() {
    let modules = proxy();
    let modules = modules.grouped(|name| {
        let names: Vec<_> = name.split("::").collect();
        let is_folder = |depth: &usize| {
            let folder = names[..*depth].join("::");
            modules.is_facade(&folder) && (*depth < 2 || SUBDIVIDED.contains(&&*folder))
        };
        // Modules directly in a folder; the folder itself only re-exports names.
        let depth = (1..=names.len()).find(|depth| !is_folder(depth))?;
        Some(names[..depth].join("::")).filter(|name| !name.is_empty())
    });
    assert!(modules.names().len() > 70, "the proxy's modules were found");
    if let Some(cycle) = modules.cycle() {
        let components = modules.components();
        panic!(
            "modules of the proxy use each other in a circle:\n{cycle}\n\
             all of these are in circles with each other: {components:?}\n\
             move what both sides need into a module below them"
        );
    }
}

#[test]
fn files_use_each_other_in_no_circle() {
    let root = metadata::root();
    let mut found = BTreeSet::new();
    for package in sources::packages(&root) {
        for main in ["lib.rs", "main.rs"] {
            let src = root.join(&package).join("src");
            let modules = cycles::read(&src, main).without_nesting();
            let components = modules.components().into_iter();
            found
                .extend(components.map(|component| {
                    format!("{package}: {}", Vec::from_iter(component).join(" "))
                }));
        }
    }
    assert!(
        found.is_empty(),
        "files that use each other in a circle; move what they share into one below them:\n{}",
        Vec::from_iter(found).join("\n")
    );
}

fn proxy() -> cycles::Modules {
    cycles::read(&metadata::root().join("proxy/src"), "lib.rs")
}

#[test]
fn files_stay_readable() {
    let long: BTreeSet<_> = sources::files(&metadata::root())
        .into_iter()
        .filter_map(|(path, text)| {
            let lines = sources::lines_before_tests(&text);
            (lines > LINES).then(|| format!("{path}: {lines} lines"))
        })
        .collect();
    assert!(
        long.is_empty(),
        "files with more than {LINES} lines before their tests:\n{}",
        Vec::from_iter(long).join("\n")
    );
}
