//! The command lines of our programs, as their sources define them for clap.
//!
//! The definitions are read, not linked: programs would have to be built for a test of documents. What clap derives is
//! followed: `Parser`, `Args` and `Subcommand`, with `long`, `short`, `flatten`, `subcommand` and their names.

use std::collections::BTreeMap;

use super::derived::{self, Field, Item, Kind};
use super::pages;

/// The arguments of a command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Command {
    /// Flags with their dashes; whether each takes a value.
    pub(crate) flags: BTreeMap<String, bool>,
    /// Flags of all subcommands, too.
    global: BTreeMap<String, bool>,
    pub(crate) subcommands: BTreeMap<String, Command>,
    pub(crate) words: bool,
    /// All arguments after the first belong to another program.
    pub(crate) passes_on: bool,
}

/// The command that the type of a file defines.
pub(crate) fn of(file: &str, name: &str) -> Command {
    let mut reader = Reader::default();
    let mut command = Command::default();
    reader.extend(&mut command, file, name);
    for flag in ["--help", "-h", "--version", "-V"] {
        command.global.insert(flag.into(), false);
    }
    spread(&mut command, &BTreeMap::new());
    command
}

/// Copies global flags into all subcommands.
fn spread(command: &mut Command, above: &BTreeMap<String, bool>) {
    command.global.extend(above.clone());
    command.flags.extend(command.global.clone());
    for subcommand in command.subcommands.values_mut() {
        spread(subcommand, &command.global);
    }
}

#[derive(Default)]
struct Reader {
    files: BTreeMap<String, Vec<Item>>,
}

impl Reader {
    fn items(&mut self, file: &str) -> &[Item] {
        let read = || derived::items(file, &pages::read(file));
        self.files.entry(file.to_owned()).or_insert_with(read)
    }

    /// Adds what the type of a file defines.
    fn extend(&mut self, command: &mut Command, file: &str, name: &str) {
        let mut items = self.items(file).iter();
        let item = items.find(|item| item.name == name).cloned();
        let item = item.unwrap_or_else(|| panic!("{file}: no command line {name}"));
        match item.kind {
            Kind::Fields(fields) => self.fields(command, file, fields),
            Kind::Variants(variants) => {
                for variant in variants {
                    let inner = command.subcommands.entry(variant.name).or_default();
                    self.fields(inner, file, variant.fields);
                    if let Some(of) = variant.of {
                        let (file, name) = self.find(file, &of);
                        self.extend(inner, &file, &name);
                    }
                }
            }
        }
    }

    fn fields(&mut self, command: &mut Command, file: &str, fields: Vec<Field>) {
        for field in fields {
            match field {
                Field::Flag {
                    names,
                    value,
                    global,
                } => {
                    let flags = names.into_iter().map(|name| (name, value));
                    match global {
                        true => command.global.extend(flags),
                        false => command.flags.extend(flags),
                    }
                }
                Field::Of(path) => {
                    let (file, name) = self.find(file, &path);
                    self.extend(command, &file, &name);
                }
                Field::Word { passes_on } => {
                    command.words = true;
                    command.passes_on |= passes_on;
                }
            }
        }
    }

    /// The file and the name of a type that a file names by `path`.
    fn find(&mut self, file: &str, path: &str) -> (String, String) {
        let (modules, name) = path.rsplit_once("::").unwrap_or(("", path));
        if modules.is_empty() && self.items(file).iter().any(|item| item.name == name) {
            return (file.to_owned(), name.to_owned());
        }
        let modules = match modules {
            "" => imported(&pages::read(file), name),
            modules => modules.to_owned(),
        };
        let found = files_of(file, &modules).find(|file| {
            let exists = pages::root().join(file).exists();
            exists && self.items(file).iter().any(|item| item.name == name)
        });
        let found = found.unwrap_or_else(|| panic!("{file}: the file of {path} is not found"));
        (found, name.to_owned())
    }
}

/// The modules from which a file imports a name.
fn imported(text: &str, name: &str) -> String {
    let uses = text.split("\nuse ").skip(1);
    let uses = uses.filter_map(|rest| rest.split(';').next());
    let words = |text: &str| {
        let pieces = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        pieces.map(str::to_owned).collect::<Vec<_>>()
    };
    let mut found = uses.filter(|one| words(one).iter().any(|word| word == name));
    let found = found.next().unwrap_or_default();
    let end = found.find('{').or_else(|| found.rfind("::"));
    let modules = &found[..end.unwrap_or(0)];
    modules.trim_end_matches("::").to_owned()
}

/// The files that can hold modules, seen from another file.
fn files_of(from: &str, modules: &str) -> impl Iterator<Item = String> {
    let (package, _) = from.split_once("/src/").unwrap_or((from, ""));
    let mut folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let own = from.trim_end_matches(".rs").trim_end_matches("/mod");
    let source = format!("{package}/src");
    let mut path = modules.split("::").peekable();
    let mut bases = vec![own.to_owned(), source.clone()];
    while let Some(first) = path.peek() {
        match *first {
            "self" => {}
            "crate" => bases = vec![source.clone()],
            "super" => {
                // The parent module is the folder of a mod.rs or of a file next to it.
                bases = vec![folder.to_owned()];
                folder = folder.rsplit_once('/').map_or("", |(folder, _)| folder);
            }
            other => match other.strip_prefix("maglor_") {
                Some(other) => bases = vec![format!("crates/{}/src/lib", other.replace('_', "-"))],
                None => break,
            },
        }
        path.next();
    }
    let rest: Vec<_> = path.collect();
    let places = bases.into_iter().flat_map(move |base| {
        let place = std::iter::once(base).chain(rest.iter().map(|one| (*one).to_owned()));
        let place = place.collect::<Vec<_>>().join("/");
        [format!("{place}.rs"), format!("{place}/mod.rs")]
    });
    // The modules of a package's root file are in the same folder.
    places.map(|place| {
        place
            .replace("/src/main/", "/src/")
            .replace("/src/lib/", "/src/")
    })
}

#[test]
fn definitions_are_followed() {
    let maglor = of("crates/cli/src/main.rs", "Cli");
    let stat = &maglor.subcommands["stat"];
    assert!(stat.flags["--window"]);
    assert!(!stat.flags["--since-start"]);
    assert!(stat.flags["-o"]);
    assert!(stat.flags.contains_key("--controller"), "{stat:?}");
    let identity = &maglor.subcommands["identity"];
    assert!(
        identity.subcommands["issue"]
            .flags
            .contains_key("--keep-renewed")
    );
    assert!(!identity.subcommands["issue"].flags.contains_key("--finish"));
}
