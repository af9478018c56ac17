//! The command: finds the proxies, measures them, writes the results.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Doing, Result};
use crate::measure::{Bench, Cpus, Results};
use crate::options::Options;
use crate::peer::{self, Credentials, Origin, Peer, Running, Subject};
use crate::report::{self, Machine};
use crate::sys;

/// Compares, writes and prints; returns whether all runs counted and all bars were reached.
///
/// # Errors
/// The comparison cannot be made, or its results cannot be written.
pub fn run(options: Options) -> Result<bool> {
    let cpus = Cpus::share(&sys::allowed_cpus())?;
    peer::sweep();
    let peers = locate_all(&options)?;
    let limit = sys::raise_file_limit().doing("raise the limit of open files")?;
    eprintln!(
        "open files: {limit}; proxies on CPU {}, load on CPU {}",
        cpus.proxy, cpus.load
    );
    let machine = Machine::look(&peers);
    let directory = directory(&options, &machine)?;
    sys::pin(cpus.load).doing("pin the harness")?;
    let origin = Origin::start(cpus.origin)?;
    for peer in &peers {
        Running::start(peer, &origin, cpus.proxy)?.verify()?;
    }
    let raw = fs::File::create(directory.join("raw.csv")).doing("make raw.csv")?;
    let mut results = Results::new(Box::new(raw))?;
    let bench = Bench {
        options,
        peers,
        cpus,
        origin,
    };
    bench.run(&mut results)?;
    let summary = report::summary(&bench, &results);
    fs::write(directory.join("summary.md"), &summary.document).doing("write summary.md")?;
    let readme = report::readme(&bench, &machine);
    fs::write(directory.join("README.md"), readme).doing("write README.md")?;
    report::print(&summary);
    eprintln!("written to {}", directory.display());
    Ok(summary.passed)
}

fn locate_all(options: &Options) -> Result<Vec<Peer>> {
    let credentials = options.pair.then(Credentials::new).transpose()?;
    let pair = credentials.map(Arc::new);
    let located = |subject| {
        let passed = match subject {
            Subject::Earlier => &options.earlier,
            _ => &options.maglor,
        };
        let peer = peer::locate(subject, passed.as_deref())?;
        let pair = pair.clone();
        Ok(Peer { pair, ..peer })
    };
    Subject::ALL
        .into_iter()
        .filter(|subject| match subject {
            Subject::Earlier => options.earlier.is_some(),
            _ => options.only.contains(subject),
        })
        .map(located)
        .collect()
}

/// Returns the directory of the results. Quick results replace each other; others never do.
fn directory(options: &Options, machine: &Machine) -> Result<PathBuf> {
    let results = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("results");
    let label = options
        .label
        .clone()
        .or_else(|| options.quick.then(|| "quick".into()))
        .or_else(|| options.pair.then(|| "pair".into()));
    let name = match label {
        Some(label) => format!("{}-{label}", machine.date),
        None => machine.date.clone(),
    };
    let directory = match &options.out {
        Some(out) => out.clone(),
        None if options.quick => results.join(name),
        None => (1..)
            .map(|count| {
                if count == 1 {
                    name.clone()
                } else {
                    format!("{name}-{count}")
                }
            })
            .map(|name| results.join(name))
            .find(|path| !path.exists())
            .unwrap_or(results),
    };
    fs::create_dir_all(&directory).doing("make the directory of results")?;
    Ok(directory)
}
