//! The functions seen by callgrind, and their order.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use super::{Error, dumps};

/// The share of a program's dumps from which on a function counts as executed by every request; a
/// dump covers a few requests, and periodic work of every second is in few of them.
const OF_EVERY_REQUEST: f64 = 0.75;

/// The executed functions of a program.
#[derive(Debug, Default)]
pub(super) struct Functions {
    of: HashMap<String, Executed>,
}

#[derive(Debug, Default)]
struct Executed {
    /// Its own instructions.
    instructions: u64,
    /// The number of callgrind's files that contain it.
    dumps: usize,
    /// The largest share of one program's files that contain it.
    share: f64,
}

impl Functions {
    /// Parses `NAME.PID.N` for all programs and all their dumps; `name` ends with a dot.
    pub(super) fn read(folder: &Path, name: &str) -> Result<Self, Error> {
        let files = dumps(folder, name).map_err(|error| Error::File(folder.into(), error))?;
        let mut programs: HashMap<String, Vec<_>> = HashMap::new();
        for path in files {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let of = file[name.len()..].split('.').next().unwrap_or_default();
            programs.entry(of.to_owned()).or_default().push(path);
        }
        let mut functions = Self::default();
        for paths in programs.into_values() {
            let mut program = Self::default();
            for path in &paths {
                let text = fs::read(path).map_err(|error| Error::File(path.clone(), error))?;
                program.add(&String::from_utf8_lossy(&text));
            }
            functions.join(program, paths.len());
        }
        Ok(functions)
    }

    /// Adds one of callgrind's files.
    fn add(&mut self, text: &str) {
        let (mut ours, mut of_a_call, mut function) = (false, false, "");
        let mut here: HashMap<&str, u64> = HashMap::new();
        for line in text.lines() {
            if let Some(object) = line.strip_prefix("ob=") {
                ours = object.ends_with("/maglor-proxy");
            } else if let Some(name) = line.strip_prefix("fn=") {
                // A recursive function is listed again as NAME'2.
                function = name.split('\'').next().unwrap_or(name);
            } else if line.starts_with("calls=") {
                of_a_call = true;
            } else if line.starts_with(|c: char| c.is_ascii_digit()) {
                let own = !std::mem::take(&mut of_a_call) && ours;
                let instructions = line.split_ascii_whitespace().nth(1).map(str::parse::<u64>);
                if let (true, Some(Ok(instructions))) = (own, instructions) {
                    *here.entry(function).or_default() += instructions;
                }
            }
        }
        for (name, instructions) in here {
            let executed = self.of.entry(name.to_owned()).or_default();
            executed.instructions += instructions;
            executed.dumps += 1;
        }
    }

    /// Adds the functions of one program, with its number of dumps.
    #[expect(clippy::cast_precision_loss, reason = "some thousand dumps")]
    fn join(&mut self, program: Self, dumps: usize) {
        for (name, seen) in program.of {
            let executed = self.of.entry(name).or_default();
            executed.instructions += seen.instructions;
            executed.dumps += seen.dumps;
            executed.share = executed.share.max(seen.dumps as f64 / dumps as f64);
        }
    }

    /// Returns the functions executed by every request of some program, the busiest first.
    fn of_every_request(&self) -> Vec<&str> {
        let mut names = self.sorted(|seen| Reverse(seen.instructions));
        names.retain(|name| self.of[*name].share >= OF_EVERY_REQUEST);
        names
    }

    fn sorted<K: Ord>(&self, key: impl Fn(&Executed) -> K) -> Vec<&str> {
        let mut names: Vec<_> = self
            .of
            .iter()
            .map(|(name, seen)| (key(seen), &**name))
            .collect();
        names.sort();
        names.into_iter().map(|(_, name)| name).collect()
    }
}

/// Returns the order: functions executed by every request without a mesh, then the additional ones
/// in a mesh; other functions that serve requests, by instructions; then those that a sidecar uses
/// repeatedly, then those it uses once.
pub(super) fn in_order<'a>(
    plain: &'a Functions,
    mesh: &'a Functions,
    sidecar: &'a Functions,
) -> Vec<&'a str> {
    let rarely = [
        plain.sorted(|seen| Reverse(seen.instructions)),
        mesh.sorted(|seen| Reverse(seen.instructions)),
        sidecar.sorted(|seen| (Reverse(seen.dumps), Reverse(seen.instructions))),
    ];
    let always = [plain.of_every_request(), mesh.of_every_request()];
    let mut listed = HashSet::new();
    let all = always.into_iter().chain(rarely).flatten();
    all.filter(|name| listed.insert(*name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "\
version: 1
events: Ir

ob=/x/maglor-proxy
fl=???
fn=serve
0 5
cob=/lib/libc.so.6
cfn=memcpy
calls=3 0
0 1000
0 2

fn=serve'2
0 10

fn=handle
0 40

ob=/lib/libc.so.6
fn=memcpy
0 1000
";

    /// A program of these dumps.
    fn program(dumps: &[&str]) -> Functions {
        let (mut program, mut all) = (Functions::default(), Functions::default());
        dumps.iter().for_each(|dump| program.add(dump));
        all.join(program, dumps.len());
        all
    }

    #[test]
    fn instructions_are_the_functions_own() {
        let functions = program(&[DUMP]);
        assert_eq!(functions.of.len(), 2);
        assert_eq!(functions.of["serve"].instructions, 17);
    }

    #[test]
    fn functions_of_the_program_are_put_in_order() {
        let with = |function: &str| format!("ob=/x/maglor-proxy\nfn={function}\n0 900\n");
        let often = format!("{DUMP}{}", with("scrape"));
        let plain = program(&[DUMP, &often, DUMP, DUMP]);
        let (encrypt, once) = (with("encrypt"), with("start"));
        let mesh = program(&[&encrypt]);
        let connect = "ob=/x/maglor-proxy\nfn=connect\n0 1\n";
        let sidecar = program(&[&once, connect, connect]);
        assert_eq!(
            in_order(&plain, &mesh, &sidecar),
            ["handle", "serve", "encrypt", "scrape", "connect", "start"]
        );
    }
}
