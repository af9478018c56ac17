//! Typical mistakes, and the expected messages: `mistakes/*.txt`.
//!
//! A case is a title (`== …`), an edit of a correct configuration (`<` the line that is replaced, `>` what stands there
//! instead; without `<` the lines are the whole file), and what the messages must contain (`=`): the place, and what to
//! write. `PRINT=1 cargo test -p maglor-config --test mistakes -- --nocapture` prints all messages.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

use std::path::Path;

/// The configuration that cases edit.
const CORRECT: &str = r#"admin: {address: 127.0.0.1:9901}
listeners:
- name: web
  address: 127.0.0.1:8080
  http:
    virtual_hosts:
    - domains: ["*"]
      routes:
      - match: {path: /api}
        cluster: app
      - cluster: app
clusters:
- name: app
  endpoints: [127.0.0.1:9001]
"#;

#[derive(Debug, Default)]
struct Case {
    title: String,
    replaced: Option<String>,
    written: Vec<String>,
    expected: Vec<String>,
}

impl Case {
    fn text(&self) -> String {
        let written = self.written.join("\n") + "\n";
        let Some(replaced) = &self.replaced else {
            return written;
        };
        let (before, after) = CORRECT
            .split_once(&format!("{replaced}\n"))
            .unwrap_or_else(|| panic!("{}: no line `{replaced}`", self.title));
        format!("{before}{written}{after}")
    }
}

fn cases(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("== ") {
            cases.push(Case {
                title: title.to_owned(),
                ..Case::default()
            });
            continue;
        }
        let Some(case) = cases.last_mut() else {
            continue;
        };
        let rest = line.get(1..).unwrap_or_default();
        let rest = rest.strip_prefix(' ').unwrap_or(rest);
        match line.chars().next() {
            Some('<') => case.replaced = Some(rest.to_owned()),
            Some('>') => case.written.push(rest.to_owned()),
            Some('=') => case.expected.push(rest.to_owned()),
            None => {}
            Some(_) => panic!("{}: `{line}`", case.title),
        }
    }
    cases
}

/// All messages about a configuration, errors and warnings.
fn said(text: &str) -> String {
    match maglor_config::parse(text, "maglor.yaml") {
        Err(errors) => errors.to_string(),
        Ok(loaded) => {
            let warnings: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
            warnings.join("\n\n")
        }
    }
}

fn check(file: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes");
    let text = std::fs::read_to_string(folder.join(file)).unwrap();
    let mut wrong = Vec::new();
    for case in cases(&text) {
        let said = said(&case.text());
        if std::env::var_os("PRINT").is_some() {
            println!("== {}\n{said}\n", case.title);
        }
        let lacks = |piece: &&String| !said.contains(piece.as_str());
        let lacking: Vec<_> = case.expected.iter().filter(lacks).collect();
        if !lacking.is_empty() || case.expected.is_empty() || said.is_empty() {
            wrong.push(format!("{}: lacks {lacking:?} in\n{said}", case.title));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn the_edited_configuration_is_correct() {
    assert_eq!(said(CORRECT), "");
}

#[test]
fn messages_about_fields_say_where_and_what_to_write() {
    check("fields.txt");
}

#[test]
fn messages_about_values_say_where_and_what_to_write() {
    check("values.txt");
}

#[test]
fn messages_about_yaml_say_where_and_what_to_write() {
    check("yaml.txt");
}

#[test]
fn messages_about_files_of_other_proxies_say_what_to_write() {
    check("others.txt");
}
