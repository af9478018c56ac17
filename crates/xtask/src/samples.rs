//! `cargo xtask samples`: runs `maglor analyze` on third-party resources.
//!
//! The samples are those of Istio (`samples/`), the YAML examples in the comments of Istio's API
//! (`*.proto`), and the examples and conformance tests of the Gateway API, each at a pinned commit.
//! Each file is analyzed separately, together with resources that its own project applies with
//! it: the Services, Gateways, and namespaces of its folder, or the base manifests of the
//! conformance tests.

mod report;
mod upstream;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use self::report::{Outcome, Report};
use crate::shell::{self, Cargo};

/// Arguments of `cargo xtask samples`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Folder with `istio`, `istio-api` and `gateway-api` at the pinned commits [default: they are fetched into
    /// `~/.cache/maglor`].
    #[arg(long, value_name = "FOLDER")]
    from: Option<PathBuf>,

    /// Folder for the table, the findings and the chosen cases.
    #[arg(long, value_name = "FOLDER", default_value = "target/samples")]
    out: PathBuf,

    /// The `maglor` program to run [default: it is built].
    #[arg(long, value_name = "PROGRAM")]
    maglor: Option<PathBuf>,

    /// Number of files to choose for a check by hand.
    #[arg(long, default_value_t = 40)]
    cases: usize,

    /// Seed of the choice.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A file, or an example of a comment.
#[derive(Debug)]
struct Sample {
    /// The project and path; an example of a comment has its line, too.
    name: String,
    text: String,
    /// Resources that are analyzed together with it.
    beside: Vec<String>,
}

/// Kinds of the resources of a folder that are analyzed together with each of its files.
const BESIDE: [&str; 5] = [
    "Gateway",
    "GatewayClass",
    "Namespace",
    "ReferenceGrant",
    "Service",
];

pub(crate) fn run(options: &Options) -> ExitCode {
    match try_run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn try_run(options: &Options) -> Result<(), String> {
    let sources = match &options.from {
        Some(folder) => folder.clone(),
        None => upstream::fetch()?,
    };
    let program = match &options.maglor {
        Some(program) => program.clone(),
        None => {
            let build = Cargo::new("build").args(["-p", "maglor-cli", "--bin", "maglor"]);
            if !build.succeeds() {
                return Err("maglor could not be built".to_owned());
            }
            shell::target().join("debug/maglor")
        }
    };
    let samples = all(&sources)?;
    let work = options.out.join("work");
    std::fs::create_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))?;
    let mut report = Report::default();
    for sample in &samples {
        let outcome = analyze(&program, &work, sample)?;
        report.add(&sample.name, outcome);
    }
    report.write(&options.out, options.cases, options.seed)?;
    print!("{}", report.summary());
    println!("Written to {}.", options.out.display());
    std::fs::remove_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))
}

/// Runs `maglor analyze`, and keeps the findings for the sample itself.
fn analyze(program: &Path, work: &Path, sample: &Sample) -> Result<Outcome, String> {
    let write = |name: &str, text: &str| {
        let path = work.join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    let mut command = Command::new(program);
    command.arg("analyze").current_dir(work);
    for (at, text) in sample.beside.iter().enumerate() {
        let name = format!("beside-{at}.yaml");
        write(&name, text)?;
        command.arg(name);
    }
    write("sample.yaml", &sample.text)?;
    let run = |command: &mut Command| {
        let run = command.arg("sample.yaml").output();
        run.map_err(|error| format!("{}: {error}", program.display()))
    };
    let together = run(&mut command)?;
    // 1: there are errors. Other codes are faults of the program.
    if !matches!(together.status.code(), Some(0 | 1)) {
        return Err(format!(
            "{}: maglor analyze ended with {}: {}",
            sample.name,
            together.status,
            String::from_utf8_lossy(&together.stderr)
        ));
    }
    let text = String::from_utf8_lossy(&together.stdout);
    // The number of the sample's own resources.
    let resources = match sample.beside.is_empty() {
        true => report::resources(&text),
        false => {
            let alone = run(Command::new(program).arg("analyze").current_dir(work))?;
            report::resources(&String::from_utf8_lossy(&alone.stdout))
        }
    };
    Ok(Outcome::read(&text, resources))
}

/// Returns all samples, by name.
fn all(sources: &Path) -> Result<Vec<Sample>, String> {
    let mut samples = folders(&sources.join("istio/samples"), "istio/samples")?;
    samples.extend(examples(&sources.join("istio-api"), "istio-api")?);
    let gateway = sources.join("gateway-api");
    samples.extend(folders(&gateway.join("examples"), "gateway-api/examples")?);
    samples.extend(conformance(&gateway.join("conformance"))?);
    samples.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(samples)
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns files below a folder with these suffixes, sorted.
fn files(folder: &Path, endings: &[&str]) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder);
        for entry in entries.map_err(|error| format!("{}: {error}", folder.display()))? {
            let path = entry.map_err(|error| error.to_string())?.path();
            let ending = path.extension().and_then(|one| one.to_str());
            if path.is_dir() {
                folders.push(path);
            } else if ending.is_some_and(|one| endings.contains(&one)) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

const YAML: [&str; 2] = ["yaml", "yml"];

/// Returns the files of a project, each with the other resources of its folder.
fn folders(root: &Path, name: &str) -> Result<Vec<Sample>, String> {
    let mut all = Vec::new();
    for path in files(root, &YAML)? {
        let inside = path.strip_prefix(root).unwrap_or(&path).to_owned();
        all.push((inside, read(&path)?));
    }
    // `bookinfo` of `bookinfo/networking/a.yaml`, `standard/tls-routing` of `standard/tls-routing/a.yaml`.
    let depth = if name.ends_with("examples") { 2 } else { 1 };
    let application = |path: &Path| -> Option<PathBuf> {
        let folder = path.parent()?;
        (folder.components().count() >= depth).then(|| folder.components().take(depth).collect())
    };
    let sample = |(path, text): &(PathBuf, String)| {
        let own = application(path);
        let others = all
            .iter()
            .filter(|(other, _)| other != path && own.is_some() && application(other) == own);
        let beside = others.map(|(_, text)| only(text, &BESIDE));
        Sample {
            name: format!("{name}/{}", path.display()),
            text: text.clone(),
            beside: beside.filter(|text| !text.is_empty()).collect(),
        }
    };
    Ok(all.iter().map(sample).collect())
}

/// Returns the documents of these kinds.
fn only(text: &str, kinds: &[&str]) -> String {
    let documents = text.split("\n---").map(|one| one.trim_start_matches('-'));
    let wanted = documents.filter(|document| {
        let mut lines = document.lines();
        lines.any(|line| {
            let kind = line.strip_prefix("kind:").map(str::trim);
            kind.is_some_and(|kind| kinds.contains(&kind)) && !document.contains("{{")
        })
    });
    wanted
        .map(|one| format!("---\n{}\n", one.trim_start()))
        .collect()
}

/// Returns the conformance tests, each with their base manifests.
fn conformance(root: &Path) -> Result<Vec<Sample>, String> {
    let base = read(&root.join("base/manifests.yaml"))?;
    let mesh = read(&root.join("mesh/manifests.yaml"))?;
    let mut samples = Vec::new();
    for path in files(&root.join("tests"), &YAML)? {
        let inside = path.strip_prefix(root).unwrap_or(&path);
        let name = format!("gateway-api/conformance/{}", inside.display());
        let is_of_mesh = name.contains("/mesh");
        // The suite replaces these placeholders.
        let text = |text: &str| {
            let text = text.replace("{GATEWAY_CLASS_NAME}", "maglor");
            text.replace("{GATEWAY_CONTROLLER_NAME}", "maglor.dev/gateway")
        };
        samples.push(Sample {
            name,
            text: text(&read(&path)?),
            beside: vec![text(if is_of_mesh { &mesh } else { &base })],
        });
    }
    Ok(samples)
}

/// Returns the resources in comments of `.proto` files.
fn examples(root: &Path, name: &str) -> Result<Vec<Sample>, String> {
    let mut samples = Vec::new();
    for path in files(root, &["proto"])? {
        let inside = path.strip_prefix(root).unwrap_or(&path).display();
        for (line, text) in blocks(&read(&path)?) {
            if text.lines().any(|line| line.starts_with("apiVersion:")) {
                samples.push(Sample {
                    name: format!("{name}/{inside}:{line}"),
                    text,
                    beside: Vec::new(),
                });
            }
        }
    }
    Ok(samples)
}

/// Returns the blocks of YAML in comments, each with the number of its first line.
fn blocks(proto: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (at, line) in proto.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("//");
        let comment = comment.map(|text| text.strip_prefix(' ').unwrap_or(text));
        open = match (open, comment) {
            (None, Some(text)) if text.trim_end() == "```yaml" => Some((at + 2, String::new())),
            (Some(block), Some(text)) if text.trim_end() == "```" => {
                found.push(block);
                None
            }
            (Some((first, mut block)), Some(text)) => {
                block.push_str(text);
                block.push('\n');
                Some((first, block))
            }
            (_, None) | (None, Some(_)) => None,
        };
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_comments_are_read_with_their_lines() {
        let proto = "// Text\n//\n// ```yaml\n// a:\n//   b: 1\n// ```\nmessage A {\n  // ```yaml\n  // c: 2\n  // ```\n}\n// ```yaml\n";
        assert_eq!(
            blocks(proto),
            [(4, "a:\n  b: 1\n".to_owned()), (9, "c: 2\n".to_owned())]
        );
    }

    #[test]
    fn what_is_applied_beside_a_file_is_chosen_by_kind() {
        let text = "kind: Deployment\na: 1\n---\nkind: Service\nb: 2\n---\nkind: Gateway\n";
        let found = only(text, &BESIDE);
        assert!(!found.contains("Deployment"));
        assert_eq!(found, "---\nkind: Service\nb: 2\n---\nkind: Gateway\n\n");
    }
}
