//! Files made to hurt: each is answered within seconds, in an unoptimised build.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

use std::fmt::Write as _;
use std::time::Duration;

use maglor_config::{Errors, Loaded, parse};

const PATIENCE: Duration = Duration::from_secs(20);

/// The processor time of this thread, independent of other load on the machine.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds = text.split(' ').next().unwrap().parse().unwrap();
    Duration::from_nanos(nanoseconds)
}

#[track_caller]
fn timed(name: &str, text: &str) -> Result<Loaded, Errors> {
    let start = processor_time();
    let result = parse(text, name);
    let took = processor_time() - start;
    println!("{name}: {} bytes, {took:?}", text.len());
    assert!(took < PATIENCE, "{name}: {took:?}");
    result
}

#[track_caller]
fn refused(name: &str, text: &str) -> String {
    let errors = timed(name, text).unwrap_err();
    assert!(errors.0.len() <= 101, "{name}");
    let text = errors.to_string();
    assert!(
        text.len() < 200_000,
        "{name}: {} bytes of errors",
        text.len()
    );
    text
}

#[test]
fn deep_nesting() {
    for open in ["[", "{a: ", "- ", "? ", "[[{a: ", "a:\n", "&a "] {
        refused("deep", &open.repeat(200_000));
    }
    let mut steps = String::new();
    for depth in 0..2000 {
        writeln!(steps, "{}a:", " ".repeat(depth)).unwrap();
    }
    assert!(refused("steps", &steps).contains("nested more than 48 deep"));
}

#[test]
fn alias_bombs() {
    let mut lists = "a0: &a0 [x]\n".to_owned();
    let mut maps = "a0: &a0 {x: x}\n".to_owned();
    let mut chain = "a0: &a0 [x]\n".to_owned();
    for i in 1..1000 {
        let p = i - 1;
        writeln!(
            lists,
            "a{i}: &a{i} [{}*a{p}]",
            format!("*a{p}, ").repeat(30)
        )
        .unwrap();
        writeln!(maps, "a{i}: &a{i} {{a: *a{p}, b: *a{p}}}").unwrap();
        writeln!(chain, "a{i}: &a{i} [*a{p}]").unwrap();
    }
    assert!(refused("lists", &lists).contains("more than 500000 values"));
    refused("maps", &maps);
    assert!(refused("chain", &chain).contains("nested more than 48 deep"));
}

#[test]
fn huge_files() {
    assert!(refused("too large", &"#".repeat(9 << 20)).contains("maximum 8388608"));
    refused("one scalar", &"x".repeat(8 << 20));
    refused("quoted", &format!("\"{}\"", "\\n".repeat(4 << 20)));
    refused("comments", &"#\n".repeat(4 << 20));
    refused("spaces", &" ".repeat(8 << 20));
    refused("dashes", &"- \n".repeat(1 << 20));
    refused(
        "keys",
        &(0..300_000).map(|i| format!("k{i}:\n")).collect::<String>(),
    );
    refused("colons", &"a: ".repeat(1 << 20));
    refused("anchors", &"&a ".repeat(1 << 20));
    refused("literal", &format!("a: |\n{}", "  x\n".repeat(2 << 20)));
    refused("flow", &format!("[{}]", "{},".repeat(1 << 20)));
    refused("duplicates", &"a: 1\n".repeat(200_000));
}

#[test]
fn many_errors() {
    let clusters: String = (0..100_000)
        .map(|i| format!("- {{name: c{i}, x{i}: 1}}\n"))
        .collect();
    refused("unknown fields", &format!("clusters:\n{clusters}"));
    let routes: String = (0..30_000)
        .map(|i| format!("      - {{match: {{path: /{i}}}, cluster: d{i}}}\n"))
        .collect();
    let clusters: String = (0..30_000).map(|i| format!("- {{name: c{i}}}\n")).collect();
    let text = format!(
        "listeners:\n- name: a\n  address: 127.0.0.1:80\n  http:\n    virtual_hosts:\n    \
         - domains: '*'\n      routes:\n{routes}clusters:\n{clusters}"
    );
    assert!(refused("dangling", &text).contains("further errors are not shown"));
    let patterns = "      - {match: {path: {regex: '(\\w{30}){20}'}}, cluster: c0}\n".repeat(5000);
    let text = text.replace(&routes, &patterns);
    refused("patterns", &text);
    let names: String = (0..400).map(|i| format!("a{i}.b, ")).collect();
    let nets: String = (0..250).map(|i| format!("10.0.{i}.0/24, ")).collect();
    let chain = format!(
        "  - {{match: {{server_names: [{names}], source: [{nets}]}}, tcp: {{cluster: c}}}}\n"
    );
    let text = format!(
        "listeners:\n- name: a\n  address: 127.0.0.1:80\n  filter_chains:\n{}",
        chain.repeat(100)
    );
    refused("combinations", &text);
}

/// Large and right: a thousand listeners, ten thousand routes, fifty thousand endpoints.
#[test]
fn large_configurations_are_accepted() {
    let mut text = "listeners:\n".to_owned();
    for i in 0..1000 {
        writeln!(
            text,
            "- {{name: l{i}, address: '127.0.0.1:{}', http: {{routes: t}}}}",
            i + 1
        )
        .unwrap();
    }
    text.push_str("route_tables:\n- name: t\n  virtual_hosts:\n");
    for i in 0..1000 {
        writeln!(text, "  - domains: [h{i}.example.com]\n    routes:").unwrap();
        for r in 0..10 {
            writeln!(text, "    - {{match: {{path: /r{r}}}, cluster: c{i}}}").unwrap();
        }
    }
    text.push_str("clusters:\n");
    for i in 0..1000 {
        let endpoints: Vec<_> = (1..51)
            .map(|e| format!("'10.0.{}.{e}:80'", i % 256))
            .collect();
        writeln!(
            text,
            "- {{name: c{i}, endpoints: [{}]}}",
            endpoints.join(", ")
        )
        .unwrap();
    }
    let loaded = timed("large", &text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(loaded.warnings, []);
    assert_eq!(loaded.config.clusters.len(), 1000);
}
