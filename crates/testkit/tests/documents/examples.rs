//! Every block of code in a document is covered by a test: by one that runs or parses it, or here.
//!
//! Elsewhere: pages of docs/recipes and the recipe of README.md are executed (`proxy/tests/recipes.rs`), YAML is parsed
//! as resources or as a proxy's file (`controller/tests/documented_yaml.rs`).

use super::commands::{Checked, Programs};
use super::pages::{self, Block};

/// Configurations that a page replaces. Their programs are not installed everywhere.
const OF_OTHER_PROXIES: [&str; 3] = ["caddy", "haproxy", "nginx"];

/// Returns the errors in a block, and the number of its command lines.
pub(crate) fn check(block: &Block, programs: &Programs) -> Checked {
    let executed = is_executed(block);
    let problem = match block.kind.as_str() {
        "sh" => return programs.script(&block.text, !executed),
        "console" => return programs.script(&typed(&block.text), !executed),
        // Diagrams, formulas, output, and commands that need more than a shell; our commands in it are checked.
        "text" => return programs.script(&block.text, false),
        "ini" | "python" => no_file(block),
        "json" => not_json(&block.text),
        "promql" => unknown_metric(&block.text),
        "yaml" if block.page.starts_with("docs/recipes/") => no_file(block),
        "yaml" => not_parsed(block),
        kind if OF_OTHER_PROXIES.contains(&kind) => elsewhere(block),
        "" => Some("a block without its kind, such as ```sh".to_owned()),
        kind => Some(format!("no test covers a block of the kind {kind}")),
    };
    Checked {
        ours: 0,
        problems: problem.into_iter().collect(),
    }
}

/// A shell runs it in the test of recipes, so it has no unknown program.
fn is_executed(block: &Block) -> bool {
    let page = pages::read(&block.page);
    let before = page.lines().take(block.line);
    let marks = before.filter(|line| line.contains("recipe -->"));
    let in_recipe = marks
        .last()
        .is_some_and(|line| line.starts_with("<!-- recipe"));
    block.page.starts_with("docs/recipes/") || in_recipe
}

/// The lines after prompts.
fn typed(text: &str) -> String {
    let lines = text.lines().filter(|line| line.starts_with("$ "));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The test of recipes writes, and reads, the blocks that begin with the name of a file.
fn no_file(block: &Block) -> Option<String> {
    let first = block.text.lines().next().unwrap_or_default();
    let name = first.strip_prefix("# ").unwrap_or_default();
    let named = name.contains('.') && !name.contains(' ');
    let covered = named && is_executed(block);
    (!covered).then(|| "a file of a recipe begins with `# NAME`; no test reads this".to_owned())
}

fn not_parsed(block: &Block) -> Option<String> {
    let name = block.page.strip_prefix("docs/").unwrap_or(&block.page);
    let parsed =
        block.page == "README.md" || block.page.starts_with("docs/") && !name.contains('/');
    (!parsed).then(|| {
        "no test parses YAML of this page; add it to controller/tests/documented_yaml.rs".to_owned()
    })
}

fn not_json(text: &str) -> Option<String> {
    let parsed = serde_json::from_str::<serde_json::Value>(text);
    parsed.err().map(|error| error.to_string())
}

/// Names of ours in a query are those of the tables.
fn unknown_metric(text: &str) -> Option<String> {
    let tables = pages::read("docs/metrics.md");
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let mut names = words.filter(|word| word.starts_with("maglor_"));
    let unknown = names.find(|name| {
        let name = name.strip_suffix("_bucket").unwrap_or(name);
        !tables.contains(&format!("`{name}`"))
    });
    unknown.map(|name| format!("no metric {name}"))
}

fn elsewhere(block: &Block) -> Option<String> {
    (block.page != "docs/recipes/migration.md")
        .then(|| "no test reads files of other proxies".to_owned())
}

#[test]
fn blocks_that_no_test_covers_are_found() {
    let programs = Programs::read();
    let problems = |page: &str, kind: &str, text: &str| {
        let block = Block {
            page: page.to_owned(),
            line: 1,
            kind: kind.to_owned(),
            text: text.to_owned(),
        };
        check(&block, &programs).problems.len()
    };
    for (page, kind, text) in [
        ("docs/cli.md", "", "maglor check"),
        ("docs/cli.md", "sh", "maglor checks"),
        ("docs/cli.md", "console", "$ maglor checks"),
        ("docs/cli.md", "text", "maglor checks"),
        ("docs/cli.md", "toml", "a = 1"),
        ("docs/cli.md", "json", "{"),
        ("docs/cli.md", "nginx", ""),
        (
            "docs/metrics.md",
            "promql",
            "rate(maglor_nothing_total[1m])",
        ),
        ("docs/decisions/README.md", "yaml", "a: 1"),
        ("docs/recipes/grpc.md", "yaml", "a: 1"),
    ] {
        assert_eq!(problems(page, kind, text), 1, "{kind} in {page}: {text}");
    }
    for (kind, text) in [
        ("json", "{}"),
        ("console", "$ maglor check\nmaglor checks"),
        ("promql", "rate(maglor_http_requests_total[1m])"),
        ("yaml", "a: 1"),
    ] {
        assert_eq!(problems("docs/cli.md", kind, text), 0, "{kind}: {text}");
    }
}
