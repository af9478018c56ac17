//! `maglor-proxy init`: its arguments, and its rules in the kernel of a namespace of their own. For the effect
//! of the rules on connections see `redirect.rs`.

use std::process::{Command, Output};

use crate::support::netns::Namespace;

const BINARY: &str = env!("CARGO_BIN_EXE_maglor-proxy");

/// All supported arguments.
const EVERYTHING: &str = "init --inbound-port 15006 --outbound-port 15001 --proxy-uid 2102 \
     --proxy-gid 2103 --skip-inbound-ports 22,9901 --skip-outbound-ports 8000-8010 \
     --skip-subnets 10.9.0.0/16,10.8.0.0/13,192.0.2.7,fd00::1,fd80::/9";

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn maglor_proxy(arguments: &str) -> Output {
    Command::new(BINARY)
        .args(words(arguments))
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn nonsense_is_refused_with_exit_code_2() {
    for (arguments, why) in [
        ("init", "nothing to redirect"),
        ("init --inbound-port 0", "0 is not in 1..=65535"),
        ("init --inbound-port 65536", "65536 is not in"),
        ("init --inbound-port http", "invalid value 'http'"),
        (
            "init --inbound-port 1 --outbound-port 1 --proxy-uid 1",
            "both 1",
        ),
        ("init --outbound-port 1", "--proxy-uid"),
        (
            "init --inbound-port 1 --skip-inbound-ports 9-8",
            "is below the first",
        ),
        (
            "init --inbound-port 1 --skip-outbound-ports 80,,81",
            "port from 1 to 65535",
        ),
        (
            "init --inbound-port 1 --skip-subnets 10.0.0.0/33",
            "10.0.0.0/8 or fd00::/8",
        ),
        (
            "init --inbound-port 1 --skip-subnets 10.0.0.1/8",
            "did you mean 10.0.0.0/8?",
        ),
        ("init --remove --inbound-port 1", "cannot be used with"),
        ("--config a.yaml init", "cannot be used with"),
    ] {
        let output = maglor_proxy(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {said}");
        assert!(
            said.lines().next().unwrap().contains(why),
            "{arguments}: {said}"
        );
    }
}

#[test]
fn a_dry_run_prints_the_rules_and_needs_no_privilege() {
    let output = maglor_proxy(&format!("{EVERYTHING} --dry-run"));
    assert!(output.status.success());
    let rules = text(&output.stdout);
    for part in [
        "table inet maglor {",
        "type nat hook prerouting priority dstnat",
        "type nat hook output",
        "redirect to :15006",
        "redirect to :15001",
        "meta skuid 2102 return",
    ] {
        assert!(rules.contains(part), "{part} is not in\n{rules}");
    }
    let output = maglor_proxy("init --remove --dry-run");
    assert!(text(&output.stdout).ends_with("delete table inet maglor\n"));
}

/// Returns the rule set that `nft` lists; `None` if that program is not installed.
fn ruleset(host: &Namespace) -> Option<String> {
    let output = host.run("nft", &["list", "ruleset"]);
    if !output.status.success() {
        eprintln!("not compared: there is no nft program");
        return None;
    }
    Some(text(&output.stdout).to_owned())
}

/// Runs the proxy's binary inside the namespace.
fn init(host: &Namespace, arguments: &str) -> Output {
    host.run(BINARY, &words(arguments))
}

#[test]
fn twice_is_once_and_the_kernel_has_what_the_dry_run_prints() {
    let Some(host) = Namespace::new() else { return };
    for _ in 0..2 {
        let output = init(&host, EVERYTHING);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let dry = maglor_proxy(&format!("{EVERYTHING} --dry-run"));
        let (_, rules) = text(&dry.stdout)
            .split_once("delete table inet maglor\n")
            .unwrap();
        if let Some(found) = ruleset(&host) {
            assert_eq!(found, rules);
        }
    }
    // Other settings replace them.
    assert!(init(&host, "init --inbound-port 7").status.success());
    if let Some(found) = ruleset(&host) {
        assert!(found.contains(":7 ") && !found.contains("15006") && !found.contains("output"));
    }
    for _ in 0..2 {
        let output = init(&host, "init --remove");
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(ruleset(&host).unwrap_or_default(), "");
    }
}

#[test]
fn rules_of_others_stay() {
    let Some(host) = Namespace::new() else { return };
    let others = "table inet other {\n\tchain input {\n\t}\n}\n";
    host.run("nft", &words("add table inet other"));
    host.run("nft", &words("add chain inet other input"));
    for arguments in [EVERYTHING, "init --remove"] {
        assert!(init(&host, arguments).status.success());
        if let Some(found) = ruleset(&host) {
            assert!(found.contains(others), "{found}");
        }
    }
}

#[test]
fn without_the_capability_it_says_so() {
    let Some(host) = Namespace::new() else { return };
    let before = ruleset(&host);
    for arguments in [EVERYTHING, "init --remove"] {
        let dropped = "--reuid 2102 --clear-groups --inh-caps=-net_admin --bounding-set=-net_admin";
        let mut command = words(dropped);
        command.push(BINARY);
        command.extend(words(arguments));
        let output = host.run("setpriv", &command);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(
            said.contains("CAP_NET_ADMIN") && said.lines().count() == 1,
            "{said}"
        );
    }
    assert_eq!(ruleset(&host), before);
}
