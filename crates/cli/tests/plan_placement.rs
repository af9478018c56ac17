//! `maglor plan placement` on the command line.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const GRAPH: &str = "\
services:
- {name: web, replicas: 2, cpu_millis: 200, memory_mib: 100}
- {name: cart, replicas: 2, cpu_millis: 200, memory_mib: 100}
- {name: db, replicas: 1, cpu_millis: 500, memory_mib: 400}
edges:
- {from: web, to: cart, rps: 30, latency_ms: 3}
- {from: cart, to: db, rps: 20, latency_ms: 9}
- {from: web, to: cart, rps: 10, latency_ms: 5}
";

const NODES: &str = "\
nodes:
- {name: a, cpu_millis: 600, memory_mib: 500}
- {name: b, cpu_millis: 900, memory_mib: 800}
";

fn maglor(folder: &Path, graph: &str, nodes: &str, more: &[&str]) -> Output {
    std::fs::write(folder.join("graph.yaml"), graph).unwrap();
    std::fs::write(folder.join("nodes.yaml"), nodes).unwrap();
    Command::new(env!("CARGO_BIN_EXE_maglor"))
        .args([
            "plan",
            "placement",
            "--graph",
            "graph.yaml",
            "--nodes",
            "nodes.yaml",
        ])
        .args(more)
        .current_dir(folder)
        .output()
        .expect("the binary can be started")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn a_placement_is_printed_and_can_be_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let output = maglor(folder.path(), GRAPH, NODES, &[]);
    assert!(output.status.success(), "{output:?}");
    let plan = json(&output);
    assert_eq!(plan["feasible"], true);
    assert_eq!((&plan["total"], &plan["moves"]), (&60.0.into(), &0.into()));
    // Two replicas fit on the node of the database: half of either service, or both of one.
    assert_eq!(
        (&plan["cut"], &plan["optimal"]),
        (&10.0.into(), &true.into())
    );
    assert_eq!(plan["placement"]["db"]["b"], 1);
    assert_eq!(plan["nodes"]["b"]["cpu_millis"], 900);

    std::fs::write(folder.path().join("plan.json"), &output.stdout).unwrap();
    let again = maglor(folder.path(), GRAPH, NODES, &["--current", "plan.json"]);
    assert_eq!(json(&again)["placement"], plan["placement"]);
    let seed = maglor(folder.path(), GRAPH, NODES, &["--seed", "7"]);
    assert_eq!(
        seed.stdout,
        maglor(folder.path(), GRAPH, NODES, &["--seed", "7"]).stdout
    );
}

#[test]
fn what_ran_on_a_node_that_has_gone_moves() {
    let folder = tempfile::tempdir().unwrap();
    let plan = "placement: {web: {a: 2}, cart: {a: 1, c: 1}, db: {b: 1}}";
    std::fs::write(folder.path().join("plan.yaml"), plan).unwrap();
    let output = maglor(
        folder.path(),
        GRAPH,
        NODES,
        &["--current", "plan.yaml", "--move-cost", "9"],
    );
    let plan = json(&output);
    assert_eq!(plan["moves"], 1, "{plan}");
    assert_eq!(plan["nodes"].as_object().map(serde_json::Map::len), Some(2));
}

#[test]
fn what_does_not_fit_says_why_and_by_how_much() {
    let folder = tempfile::tempdir().unwrap();
    for (graph, nodes, reason) in [
        (
            GRAPH.replace("cpu_millis: 500", "cpu_millis: 1000"),
            NODES.to_owned(),
            "no node can hold a replica of `db`: the nearest, `b`, lacks 100 cpu_millis",
        ),
        (
            GRAPH.to_owned(),
            NODES.replace("cpu_millis: 600", "cpu_millis: 300"),
            "all replicas need 1300 cpu_millis, all nodes have 1200: 100 too little",
        ),
        (
            GRAPH.replace(
                "replicas: 2, cpu_millis: 200",
                "replicas: 2, max_per_node: 1, cpu_millis: 300",
            ),
            NODES.replace("cpu_millis: 600", "cpu_millis: 800"),
            "there is no placement of whole replicas; the best attempt lacks 200 cpu_millis on `b`",
        ),
    ] {
        let output = maglor(folder.path(), &graph, &nodes, &[]);
        let plan = json(&output);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(plan["feasible"], false);
        let said = plan["reason"].as_str().unwrap_or_default();
        assert!(said.starts_with(reason), "{said}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(errors.trim_end(), format!("maglor plan placement: {said}"));
    }
}

#[test]
fn bad_input_is_one_line_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let graph = |from: &str, to: &str| (GRAPH.replacen(from, to, 1), NODES.to_owned());
    let nodes = |from: &str, to: &str| (GRAPH.to_owned(), NODES.replacen(from, to, 1));
    for ((graph, nodes), message) in [
        (
            graph("to: db", "to: bd"),
            "graph.yaml:7: edges[1] (`cart` to `bd`): `bd` is not a service",
        ),
        (
            graph("rps: 20", "rps: -20"),
            "graph.yaml:7: edges[1] (`cart` to `db`): rps is -20",
        ),
        (
            graph("rps: 20", "rps: .nan"),
            "graph.yaml:7: edges[1] (`cart` to `db`): rps is NaN",
        ),
        (
            graph("rps: 20", "rps: many"),
            "graph.yaml:7: edges[1].rps: expected a number, found `many`",
        ),
        (
            graph("rps: 20", "rate: 20"),
            "graph.yaml:7: edges[1].rps is missing",
        ),
        (
            graph("rps: 20", "rps: 20, rate: 1"),
            "graph.yaml:7: edges[1].rate is unknown",
        ),
        (
            graph("name: cart", "name: web"),
            "graph.yaml:3: services[1].name: the service `web` is defined twice",
        ),
        (
            graph("replicas: 1", "replicas: 0"),
            "graph.yaml:4: services[2].replicas of `db` is 0",
        ),
        (
            graph("replicas: 1", "replicas: 1.5"),
            "graph.yaml:4: services[2].replicas: expected a whole number from 0",
        ),
        (
            graph("memory_mib: 400", "memory_mib: -4"),
            "graph.yaml:4: services[2].memory_mib: expected a whole number from 0",
        ),
        (graph("{name: web", "{name: [web"), "graph.yaml:"),
        (
            (String::new(), NODES.to_owned()),
            "graph.yaml: the file is empty",
        ),
        (
            ("services: []".to_owned(), NODES.to_owned()),
            "the graph has no service",
        ),
        (
            (GRAPH.to_owned(), "nodes: []".to_owned()),
            "nodes.yaml:1: nodes: no nodes",
        ),
        (
            nodes("name: b", "name: a"),
            "nodes.yaml:3: nodes[1].name: the node `a` is defined twice",
        ),
        (
            nodes("cpu_millis: 600, ", ""),
            "nodes.yaml:2: nodes[0].cpu_millis is missing",
        ),
    ] {
        let output = maglor(folder.path(), &graph, &nodes, &[]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}: {output:?}");
        assert!(
            errors.starts_with(&format!("maglor plan placement: {message}")),
            "{errors}"
        );
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = maglor(folder.path(), GRAPH, NODES, &["--current", "no.yaml"]);
    let errors = String::from_utf8_lossy(&missing.stderr);
    assert!(
        errors.starts_with("maglor plan placement: no.yaml: "),
        "{errors}"
    );
}

#[test]
fn affinities_name_nodes_and_neighbours() {
    let folder = tempfile::tempdir().unwrap();
    let graph = GRAPH
        .replace("name: web", "name: shop/web")
        .replace("from: web", "from: shop/web");
    let output = maglor(folder.path(), &graph, NODES, &["--emit", "affinity"]);
    assert!(output.status.success(), "{output:?}");
    let documents: Vec<Value> = serde_yaml::Deserializer::from_slice(&output.stdout)
        .map(|document| serde::Deserialize::deserialize(document).unwrap())
        .collect();
    assert_eq!(documents.len(), 3);
    let web = &documents[0];
    assert_eq!(
        web["metadata"],
        serde_json::json!({"name": "web", "namespace": "shop"})
    );
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let database = &documents[2]["spec"]["template"]["spec"]["affinity"];
    let nodes = &database["nodeAffinity"][preferred];
    assert_eq!(nodes[0]["weight"], 100);
    assert_eq!(nodes[0]["preference"]["matchFields"][0]["values"][0], "b");
    let near = &database["podAffinity"][preferred][0]["podAffinityTerm"];
    assert_eq!(near["labelSelector"]["matchLabels"]["app"], "cart");
}

#[test]
fn a_graph_may_come_through_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("nodes.yaml"), NODES).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_maglor"))
        .args(["plan", "placement", "--graph", "-"])
        .args(["--nodes", "nodes.yaml"])
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(GRAPH.as_bytes()).unwrap();
    drop(input);
    assert_eq!(json(&child.wait_with_output().unwrap())["feasible"], true);
}

#[test]
fn numbers_that_are_nothing_have_no_sign() {
    let folder = tempfile::tempdir().unwrap();
    let graph = "services:\n- {name: web, replicas: 2, cpu_millis: 100, memory_mib: 10}\n";
    for edges in ["", "edges: [{from: web, to: web, rps: -0.0}]\n"] {
        let output = maglor(folder.path(), &format!("{graph}{edges}"), NODES, &[]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains("\"cut\": 0.0") && !text.contains('-'),
            "{text}"
        );
    }
}

#[test]
fn a_whole_service_is_on_one_node_and_a_pinned_one_stays() {
    let folder = tempfile::tempdir().unwrap();
    let plan = json(&maglor(folder.path(), GRAPH, NODES, &["--whole-services"]));
    for service in ["web", "cart"] {
        let nodes = plan["placement"][service].as_object().unwrap();
        assert_eq!(
            nodes.values().map(Value::as_u64).collect::<Vec<_>>(),
            [Some(2)],
            "{plan}"
        );
    }
    let roomy = NODES
        .replace("cpu_millis: 600", "cpu_millis: 2000")
        .replace("memory_mib: 500", "memory_mib: 900");
    std::fs::write(
        folder.path().join("now.yaml"),
        "placement: {web: {a: 2}, cart: {a: 2}, db: {b: 1}}",
    )
    .unwrap();
    let current = ["--current", "now.yaml"];
    let moved = json(&maglor(folder.path(), GRAPH, &roomy, &current));
    assert_eq!(
        (&moved["cut"], &moved["placement"]["db"]["a"]),
        (&0.0.into(), &1.into()),
        "{moved}"
    );
    let pinned = GRAPH.replace("memory_mib: 400", "memory_mib: 400, pinned: true");
    let stayed = json(&maglor(folder.path(), &pinned, &roomy, &current));
    assert_eq!(stayed["placement"]["db"]["b"], 1, "{stayed}");
}

/// Replicas beyond the usable part of a node move, at any cost.
#[test]
fn what_runs_outside_of_what_is_to_be_used_moves() {
    let folder = tempfile::tempdir().unwrap();
    let graph = "\
services:
- {name: web, replicas: 4, cpu_millis: 100, memory_mib: 10}
- {name: cart, replicas: 4, cpu_millis: 50, memory_mib: 10}
edges: [{from: web, to: cart, rps: 100}]
";
    let nodes = NODES.replace("600", "900").replace("500", "800");
    for (current, more, expected) in [
        (
            "{web: {a: 4}, cart: {a: 4}}",
            ["--balance", "0"],
            [Some(300); 2],
        ),
        (
            "{web: {a: 3, b: 1}, cart: {a: 2, b: 2}}",
            ["--balance", "0"],
            [Some(300); 2],
        ),
        (
            "{web: {b: 4}, cart: {b: 4}}",
            ["--use", "1"],
            [Some(600), Some(0)],
        ),
    ] {
        let now = format!("placement: {current}\n");
        std::fs::write(folder.path().join("now.yaml"), now).unwrap();
        let stays = ["--current", "now.yaml", "--move-cost", "50"];
        let plan = json(&maglor(
            folder.path(),
            graph,
            &nodes,
            &[&stays[..], &more].concat(),
        ));
        let loads = ["a", "b"].map(|node| plan["nodes"][node]["cpu_millis"].as_u64());
        assert_eq!(loads, expected, "{current}: {plan}");
        let kept = json(&maglor(folder.path(), graph, &nodes, &stays));
        assert_eq!(kept["moves"], 0, "{current}: {kept}");
    }
}

/// Missing replicas of a pinned service start somewhere; replicas that have lost their node are listed; without
/// `--current` nothing is pinned.
#[test]
fn who_is_pinned_may_grow_but_not_move() {
    let folder = tempfile::tempdir().unwrap();
    let db =
        "{name: db, replicas: 2, cpu_millis: 100, memory_mib: 10, max_per_node: 1, pinned: true}";
    let web = "{name: web, replicas: 1, cpu_millis: 400, memory_mib: 10}";
    let graph = format!("services: [{db}, {web}]\nedges: [{{from: web, to: db, rps: 5}}]\n");
    let free = json(&maglor(folder.path(), &graph, NODES, &[]));
    assert_eq!(free["placement"]["db"]["a"], 1, "{free}");
    assert_eq!(free["placement"]["db"]["b"], 1, "{free}");
    for (current, expected) in [
        ("{db: {a: 1}, web: {a: 1}}", Ok([1, 1])),
        ("{db: {a: 2}, web: {a: 1}}", Ok([2, 0])),
        ("{web: {a: 1}}", Ok([1, 1])),
        (
            "{db: {gone: 1, a: 1}}",
            Err("`db` must not move, but every feasible placement moves 1 of its replicas"),
        ),
    ] {
        let now = format!("placement: {current}\n");
        std::fs::write(folder.path().join("now.yaml"), now).unwrap();
        let plan = json(&maglor(
            folder.path(),
            &graph,
            NODES,
            &["--current", "now.yaml"],
        ));
        match expected {
            Ok(counts) => {
                let on = |node: &str| plan["placement"]["db"][node].as_u64().unwrap_or(0);
                assert_eq!([on("a"), on("b")], counts, "{current}: {plan}");
                assert_eq!(plan["moves"], 0, "{current}: {plan}");
            }
            Err(reason) => {
                let said = plan["reason"].as_str().unwrap_or_default();
                assert!(said.starts_with(reason), "{current}: {plan}");
            }
        }
    }
}

/// A node that is not to be used has room for what stays there, but no more than it has.
#[test]
fn no_service_is_pinned_to_a_full_node() {
    let folder = tempfile::tempdir().unwrap();
    let now = "placement: {web: {b: 1}, db: {a: 1}}\n";
    std::fs::write(folder.path().join("now.yaml"), now).unwrap();
    let graph = "\
services:
- {name: web, replicas: 1, cpu_millis: 100, memory_mib: 100}
- {name: db, replicas: 1, cpu_millis: 100, memory_mib: 600, pinned: true}
";
    for more in [&[][..], &["--use", "1"], &["--use", "fewest"]] {
        let arguments = [&["--current", "now.yaml"], more].concat();
        let output = maglor(folder.path(), graph, NODES, &arguments);
        let plan = json(&output);
        assert_eq!(plan["feasible"], false, "{more:?}: {plan}");
        let roomy = NODES.replace("memory_mib: 500", "memory_mib: 600");
        let plan = json(&maglor(folder.path(), graph, &roomy, &arguments));
        assert_eq!(plan["placement"]["db"]["a"], 1, "{more:?}: {plan}");
    }
}

/// 0.55 × 100 = 55: in binary it is a little more, and 56 would fit, too.
#[test]
fn shares_and_parts_that_are_whole_are_not_rounded() {
    let folder = tempfile::tempdir().unwrap();
    let graph = "\
services:
- {name: web, replicas: 100, cpu_millis: 1, memory_mib: 1}
- {name: cart, replicas: 1, cpu_millis: 1, memory_mib: 1}
edges: [{from: cart, to: web, rps: 100}]
";
    let plan = json(&maglor(
        folder.path(),
        graph,
        NODES,
        &["--max-share", "0.55"],
    ));
    let mut counts: Vec<u64> = ["a", "b"]
        .iter()
        .filter_map(|node| plan["placement"]["web"][node].as_u64())
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, [45, 55], "{plan}");

    // Half of 414 is 206.999… of 300 in binary; were it 206, the parts would be widened, and `c` go to `a`.
    let graph = "\
services:
- {name: a, replicas: 1, cpu_millis: 207, memory_mib: 0}
- {name: b, replicas: 1, cpu_millis: 205, memory_mib: 0}
- {name: c, replicas: 1, cpu_millis: 2, memory_mib: 0}
edges: [{from: a, to: c, rps: 100}]
";
    let nodes = NODES.replace("600", "300").replace("900", "300");
    let plan = json(&maglor(folder.path(), graph, &nodes, &["--balance", "0"]));
    let loads = ["a", "b"].map(|node| plan["nodes"][node]["cpu_millis"].as_u64());
    assert_eq!(loads, [Some(207); 2], "{plan}");
}

#[test]
fn even_routing_puts_together_what_local_first_may_halve() {
    let folder = tempfile::tempdir().unwrap();
    let graph = "\
services:
- {name: web, replicas: 2, cpu_millis: 200, memory_mib: 100}
- {name: cart, replicas: 2, cpu_millis: 200, memory_mib: 100}
- {name: mail, replicas: 2, cpu_millis: 200, memory_mib: 100}
edges:
- {from: web, to: cart, rps: 30}
- {from: cart, to: mail, rps: 10}
";
    let nodes = NODES.replace("cpu_millis: 900", "cpu_millis: 800");
    let halves = json(&maglor(folder.path(), graph, &nodes, &[]));
    assert_eq!(halves["cut"], 0.0, "{halves}");
    let even = json(&maglor(
        folder.path(),
        graph,
        &nodes,
        &["--routing", "even"],
    ));
    assert_eq!(even["cut"], 10.0, "{even}");
    let together = |service: &str| {
        even["placement"][service]
            .as_object()
            .map(serde_json::Map::len)
    };
    assert_eq!(
        (together("web"), together("cart")),
        (Some(1), Some(1)),
        "{even}"
    );
}

#[test]
fn a_number_out_of_its_range_is_refused_by_the_name_of_its_option() {
    let folder = tempfile::tempdir().unwrap();
    let graph = "services: [{name: web, replicas: 1, cpu_millis: 1, memory_mib: 1}]\nedges: []\n";
    for (option, value, valid) in [
        ("--effort", "0", "above 0 and at most 1000"),
        ("--max-share", "1.1", "above 0 and at most 1"),
        ("--max-share", "nan", "above 0 and at most 1"),
        ("--move-cost", "-1", "from 0"),
        ("--tau", "inf", "from 0"),
        ("--balance", "-0.1", "from 0"),
    ] {
        let output = maglor(folder.path(), graph, NODES, &[option, value]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        let named = said.contains(&format!("'{option} <")) && said.contains(valid);
        assert!(named, "{option} {value}: {said}");
    }
}
