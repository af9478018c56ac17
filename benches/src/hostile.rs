//! Runs the hostile suite with other proxies: which cases each of them accepts.
//!
//! The cases and their runners are `maglor_testkit::hostile`; this module starts the proxies, each
//! with a separate origin that records the arriving requests, and compares.

mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::Parser;
use maglor_testkit::TIMEOUT;
use maglor_testkit::hostile::{self, Case, Class, Http1, Outcome, Recorder, Response, Signer, Tls};

use crate::error::{Error, Result};
use crate::peer::{self, Origin, Peer, Running, Subject};
use crate::scenario::Protocol;
use crate::sys;

/// The time without data after which a peer counts as waiting for more: Envoy closes connections
/// after a second.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Run the hostile suite against Maglor, nginx, HAProxy and Envoy.
#[derive(Debug, Clone, Parser)]
#[command(name = "hostile")]
pub struct Options {
    /// Proxies to run; Maglor always runs.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Subject::PROXIES)]
    pub only: Vec<Subject>,
    /// Only cases whose area or name contains this.
    #[arg(long, default_value = "")]
    pub filter: String,
    /// maglor-proxy binary to run [default: it is built].
    #[arg(long)]
    pub maglor: Option<PathBuf>,
    /// Directory for the results [default: results/DATE-hostile in this crate].
    #[arg(long)]
    pub out: Option<PathBuf>,
}

/// A proxy's outcome of a case, and how it differs from the outcome expected of Maglor.
type Judged = (Outcome, Option<String>);

/// A proxy under test.
struct Fixture {
    origin: Recorder,
    plain: Running,
    /// The same as a TLS server.
    tls: Running,
    root: Signer,
    /// An untrusted root.
    foreign: Signer,
}

impl Fixture {
    fn start(peer: &Peer) -> Result<Self> {
        let cpus = sys::allowed_cpus();
        let origin = Recorder::start();
        let behind = Origin::at(origin.address());
        let (root, foreign) = (Signer::root(), Signer::root());
        let plain = Running::start(peer, &behind, cpus[0])?;
        let tls = Running::start_tls(peer, &behind, cpus[0], |folder| write(&root, folder))?;
        let _ = origin.take();
        Ok(Self {
            origin,
            plain,
            tls,
            root,
            foreign,
        })
    }
}

/// Writes the certificates of a server to the paths in the configurations.
fn write(root: &Signer, folder: &Path) -> std::io::Result<()> {
    let (leaf, key) = root.member("spiffe://mesh.test/ns/shop/sa/server");
    for (name, text) in [
        ("root.pem", root.pem()),
        ("leaf.pem", &leaf),
        ("key.pem", &key),
        ("pair.pem", &format!("{leaf}{key}")),
    ] {
        fs::write(folder.join(name), text)?;
    }
    Ok(())
}

/// The cases of an area, and their runner.
struct Area {
    name: &'static str,
    cases: Vec<Case>,
    run: fn(&Case, &Fixture, Duration) -> Judged,
    patience: fn(&Case) -> Duration,
}

/// The outcomes of a case, in the order of the requested proxies.
#[derive(Debug)]
struct Row {
    area: &'static str,
    case: String,
    expected: String,
    outcomes: Vec<Outcome>,
    /// The difference of Maglor's outcome from the expected one.
    failure: Option<String>,
}

fn areas(filter: &str) -> Vec<Area> {
    let http1 = Area {
        name: "http1-requests",
        cases: hostile::http1_requests(),
        run: |case, at, patience| {
            let seen = Http1::run(case, at.plain.address(Protocol::H1), &at.origin, patience);
            (seen.outcome(), hostile::check_http1(case, &seen).err())
        },
        patience: hostile::patience,
    };
    let http2 = Area {
        name: "http2",
        cases: hostile::http2(),
        run: |case, at, patience| {
            let seen =
                hostile::run_http2(case, at.plain.address(Protocol::H2c), &at.origin, patience);
            (seen.outcome(), hostile::check_http2(case, &seen).err())
        },
        patience: |_| TIMEOUT,
    };
    let responses = Area {
        name: "http1-responses",
        cases: hostile::http1_responses(),
        run: |case, at, patience| {
            let seen = Response::run(case, at.plain.address(Protocol::H1), &at.origin, patience);
            (seen.outcome(), hostile::check_response(case, &seen).err())
        },
        patience: |_| TIMEOUT,
    };
    let mut areas = vec![http1, responses, http2, tls(), certificates()];
    for area in &mut areas {
        let name = area.name;
        area.cases
            .retain(|case| format!("{name}/{}", case.name).contains(filter));
    }
    areas
}

fn tls() -> Area {
    Area {
        name: "tls",
        cases: hostile::tls(),
        run: |case, at, patience| {
            let seen = Tls::run(case, at.tls.address(Protocol::H2c), patience);
            (seen.outcome(), hostile::check_tls(case, &seen).err())
        },
        patience: |case| match case.expected == "waits" {
            true => PATIENCE,
            false => TIMEOUT,
        },
    }
}

/// Returns the area of client certificates: the peers verify chains as configured, and Envoy SPIFFE
/// IDs in addition.
fn certificates() -> Area {
    let mut cases = hostile::certificates();
    let of_servers = |case: &Case| {
        let mut names = case.name.split('/');
        names.any(|name| name.starts_with("server "))
    };
    cases.retain(|case| !of_servers(case));
    Area {
        name: "certificates",
        cases,
        run: |case, at, _| {
            let shown = at.root.make(case, &at.foreign);
            let served = hostile::is_served(&shown, at.tls.mutual());
            let _ = at.origin.take();
            let outcome = hostile::certificate_outcome(served);
            (outcome, hostile::check_certificate(case, served).err())
        },
        patience: |_| TIMEOUT,
    }
}

/// Runs the suite; returns false if a case does not have its expected outcome, or Maglor accepts
/// what all peers reject.
///
/// # Errors
/// A proxy cannot be started, or the results cannot be written.
pub fn run(options: &Options) -> Result<bool> {
    peer::sweep();
    let mut subjects = vec![Subject::Maglor];
    subjects.extend(options.only.iter().filter(|&&one| one != Subject::Maglor));
    let locate = |&subject: &Subject| peer::locate(subject, options.maglor.as_deref());
    let peers: Vec<_> = subjects.iter().map(locate).collect::<Result<_>>()?;
    let runs: Vec<_> = thread::scope(|scope| {
        let start = |peer| scope.spawn(move || all_of(peer, &options.filter));
        let runs: Vec<_> = peers.iter().map(start).collect();
        let joined = runs.into_iter().map(|run| {
            let panicked = |_| Err(Error::protocol("a runner has panicked; see above"));
            run.join().unwrap_or_else(panicked)
        });
        joined.collect::<Result<_>>()
    })?;
    let rows = rows(&options.filter, runs);
    let report = report::Report {
        peers: &peers,
        rows: &rows,
    };
    print!("{}", report.write(options.out.as_deref())?);
    let is_good = |row: &Row| row.failure.is_none() && !row.is_alone_in_accepting();
    Ok(rows.iter().all(is_good))
}

/// Runs all cases with one proxy.
fn all_of(peer: &Peer, filter: &str) -> Result<Vec<Judged>> {
    let fixture = Fixture::start(peer)?;
    let mut outcomes = Vec::new();
    for area in areas(filter) {
        for case in &area.cases {
            let patience = match peer.subject {
                Subject::Maglor => (area.patience)(case),
                _ => PATIENCE,
            };
            outcomes.push((area.run)(case, &fixture, patience));
        }
    }
    Ok(outcomes)
}

fn rows(filter: &str, runs: Vec<Vec<Judged>>) -> Vec<Row> {
    let cases = areas(filter).into_iter().flat_map(|area| {
        let name = area.name;
        area.cases.into_iter().map(move |case| (name, case))
    });
    let mut rows: Vec<_> = cases
        .map(|(area, case)| Row {
            area,
            case: case.name,
            expected: case.expected,
            outcomes: Vec::new(),
            failure: None,
        })
        .collect();
    for (number, run) in runs.into_iter().enumerate() {
        for (row, (outcome, failure)) in rows.iter_mut().zip(run) {
            row.outcomes.push(outcome);
            // Expected outcomes are Maglor's, which is the first.
            if number == 0 {
                row.failure = failure;
            }
        }
    }
    rows
}

impl Row {
    fn class(&self) -> Class {
        self.outcomes[0].class
    }

    fn peers(&self) -> &[Outcome] {
        &self.outcomes[1..]
    }

    /// Returns whether Maglor accepts what every peer rejects.
    fn is_alone_in_accepting(&self) -> bool {
        let refuses = |outcome: &Outcome| outcome.class == Class::Refused;
        self.class() == Class::Accepted
            && !self.peers().is_empty()
            && self.peers().iter().all(refuses)
    }

    /// Returns whether Maglor rejects what some peer accepts.
    fn is_stricter(&self) -> bool {
        let accepts = |outcome: &Outcome| outcome.class == Class::Accepted;
        self.class() == Class::Refused && self.peers().iter().any(accepts)
    }

    /// Returns whether Maglor accepts what some peer rejects.
    fn is_more_lenient(&self) -> bool {
        let refuses = |outcome: &Outcome| outcome.class == Class::Refused;
        self.class() == Class::Accepted && self.peers().iter().any(refuses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(classes: &[Class]) -> Row {
        let outcome = |&class: &Class| Outcome {
            class,
            detail: String::new(),
        };
        Row {
            area: "a",
            case: "c".into(),
            expected: "400".into(),
            outcomes: classes.iter().map(outcome).collect(),
            failure: None,
        }
    }

    #[test]
    fn outcomes_are_compared() {
        use Class::{Accepted, Refused, Waits};
        assert!(row(&[Accepted, Refused, Refused]).is_alone_in_accepting());
        assert!(!row(&[Accepted, Refused, Waits]).is_alone_in_accepting());
        assert!(!row(&[Accepted]).is_alone_in_accepting());
        assert!(row(&[Refused, Accepted, Refused]).is_stricter());
        assert!(!row(&[Refused, Refused]).is_stricter());
        assert!(row(&[Accepted, Refused, Accepted]).is_more_lenient());
    }

    #[test]
    fn the_command_line_is_consistent() {
        let options = Options::try_parse_from(["hostile", "--only", "nginx", "--filter", "te"]);
        assert_eq!(options.unwrap().only, [Subject::Nginx]);
        assert!(
            areas("no such case")
                .iter()
                .all(|area| area.cases.is_empty())
        );
    }
}
