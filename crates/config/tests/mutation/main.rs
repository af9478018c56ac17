//! 10 000 valid configurations with random damage: each is accepted or refused with an error, never
//! a panic, never slowly. Half of them are damaged as text, half as structure. `SEED` repeats a run,
//! `MUTATIONS` sets its length.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

mod bytes;
mod structure;

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use maglor_balance::Rng;
use maglor_config::{Errors, Loaded, Origin, parse, raw};

/// Longest time for one file in an unoptimised build; the examples take about 1 ms.
const PATIENCE: Duration = Duration::from_secs(5);

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is not a number")),
    )
}

fn seed() -> u64 {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let seed = setting("SEED").unwrap_or(now.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    println!("repeat with SEED={seed}");
    seed
}

/// The files of some folders.
fn files(folders: &[&str]) -> Vec<String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in folders {
        let folder = std::fs::read_dir(here.join(folder)).unwrap();
        files.extend(folder.map(|entry| entry.unwrap().path()));
    }
    files.retain(|file| file.extension().is_some_and(|e| e == "yaml"));
    files.sort();
    files
        .iter()
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect()
}

#[derive(Default)]
struct Tally {
    accepted: u64,
    refused: u64,
    slowest: Duration,
}

impl Tally {
    fn judge(&mut self, text: &str) {
        let start = Instant::now();
        let result = parse(text, "mutated.yaml");
        let took = start.elapsed();
        assert!(took < PATIENCE, "{took:?} for\n{text}");
        self.slowest = self.slowest.max(took);
        match result {
            Ok(loaded) => {
                self.accepted += 1;
                check_accepted(text, &loaded);
            }
            Err(errors) => {
                self.refused += 1;
                check_refused(text, &errors);
            }
        }
    }
}

/// An accepted configuration is the same when printed and parsed again, and for another YAML parser.
fn check_accepted(text: &str, loaded: &Loaded) {
    let again = parse(&loaded.yaml, "printed.yaml").unwrap_or_else(|e| panic!("{e}\nof\n{text}"));
    assert_eq!(again.yaml, loaded.yaml);
    assert_eq!(
        format!("{:?}", again.config),
        format!("{:?}", loaded.config)
    );
    if let Ok(theirs) = serde_yaml::from_str::<raw::Document>(text) {
        assert_eq!(*theirs.to_yaml().unwrap(), *loaded.yaml, "\nof\n{text}");
    }
}

/// An error has a message and a position in the file.
fn check_refused(text: &str, errors: &Errors) {
    assert!(!errors.0.is_empty());
    let lines = text.split(['\n', '\r']).count();
    for error in &errors.0 {
        assert!(!error.message.is_empty());
        if let Origin::Place { line, column, .. } = error.origin {
            assert!(
                (1..=lines + 1).contains(&line) && column >= 1,
                "{error}\nin\n{text}"
            );
        }
    }
    assert!(errors.to_string().len() < 1 << 20);
}

#[test]
fn mutated_configurations_are_accepted_or_refused() {
    let mut rng = Rng::seed(seed());
    let count = setting("MUTATIONS").unwrap_or(10_000);
    // Valid files are damaged; the bad ones only provide fragments.
    let mut texts = files(&["../../deploy/examples", "tests/warn"]);
    let valid = texts.len();
    texts.extend(files(&["tests/bad"]));
    let read = |text: &String| serde_yaml::from_str(text).unwrap_or_default();
    let documents: Vec<serde_yaml::Value> = texts.iter().map(read).collect();
    let (mut as_text, mut as_structure) = (Tally::default(), Tally::default());
    for i in 0..count {
        if i % 2 == 0 {
            as_text.judge(&bytes::mutate(&texts, valid, &mut rng));
        } else {
            as_structure.judge(&structure::mutate(&documents, valid, &mut rng));
        }
    }
    for (name, tally) in [("text", as_text), ("structure", as_structure)] {
        let Tally {
            accepted,
            refused,
            slowest,
        } = tally;
        println!("{name}: {accepted} accepted, {refused} refused, slowest {slowest:?}");
        assert!(count < 1000 || (accepted > count / 100 && refused > count / 10));
    }
}
