//! Every accepted resource reaches proxies: encoded, decoded, validated by the proxy's own checks, with the values that
//! were written.
//!
//! Valid resources are changed at random places to hostile texts. Accepted parts must be in
//! effect, with the same result in any order, as after a restart; `schedules` makes them unusable and
//! restarts. `SEED=` repeats a run.

mod schedules;
mod templates;

use maglor_balance::Rng;
use maglor_config::resource;
use maglor_controller::index::facts::{Key, Kind, Object};
use maglor_controller::index::{Endpoint, Index, Resource, ResourceId, ResourceKind};
use maglor_controller::resource_server::Table;
use maglor_xds::{decode, encode};
use serde_json::{Value, json};

use crate::support::{self, published, rendered};
use templates::AROUND;

/// Sets of resources; `ROUNDS=` for more.
const ROUNDS: usize = 40;

/// Texts that something between a resource and a proxy may take for something else.
fn hostile() -> Vec<String> {
    let short = [
        "",
        "%",
        "%%",
        "100%",
        "%REQ(x)%",
        "%START_TIME%",
        "%41",
        "\"",
        "'",
        "a\"b'c",
        "\\",
        "\\1",
        "\n",
        "a\r\nb: c",
        "\t",
        "\0",
        "\u{1b}",
        "\u{7f}",
        "\u{85}",
        "\u{2028}",
        "\u{feff}",
        "\u{202e}",
        "é",
        "日本",
        "🦀",
        "*",
        "**",
        "*a",
        "a*",
        "a*b",
        "..",
        "/../",
        "//",
        "/",
        "/a/../b",
        "/%2e%2e/",
        "a b",
        " a",
        "a ",
        "#",
        "a#b",
        "?",
        "{",
        "}",
        "{a}",
        "[",
        "]",
        "~",
        "null",
        "true",
        "yes",
        "1",
        "-1",
        "0",
        "65536",
        "0x10",
        "1e3",
        ".inf",
        "-",
        "- a",
        ": ",
        "a: b",
        "&a",
        "!x",
        "|",
        ">",
        "@",
        "`",
        "$1",
        "${x}",
        "$$",
        "(",
        ")",
        ".*",
        "(a+)+",
        "(?x)a #",
        ",",
        "a,b",
        "/*",
        "0s",
        "9999999999h",
        "1ms",
        "GET",
        "get",
        "host",
        ":path",
        "connection",
        "x-a",
        "X-A",
        "a/b",
        "a/#1",
        "10.0.0.0/8",
        "maglor/no-backend",
        "cluster.local",
    ];
    let mut all: Vec<String> = short.iter().map(|text| (*text).to_owned()).collect();
    all.extend([64, 254, 5000, 70_000].map(|length| "a".repeat(length)));
    all
}

struct Draw {
    rng: Rng,
    hostile: Vec<String>,
}

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.rng.below(u32::try_from(n.max(1)).unwrap()) as usize
    }

    fn text(&mut self, was: &str) -> String {
        let at = self.below(self.hostile.len());
        let text = &self.hostile[at].clone();
        match self.below(4) {
            0 => format!("{was}{text}"),
            1 => format!("{text}{was}"),
            _ => text.clone(),
        }
    }

    /// Changes the text, or the key, at a position, counted through the tree.
    fn change(&mut self, value: &mut Value, at: &mut usize) {
        let here = *at == 0;
        *at = at.wrapping_sub(1);
        match value {
            Value::String(text) if here => *text = self.text(text),
            Value::Array(list) => list.iter_mut().for_each(|one| self.change(one, at)),
            Value::Object(map) => {
                if here
                    && let Some((key, one)) = map
                        .iter()
                        .next()
                        .map(|(key, one)| (key.clone(), one.clone()))
                {
                    // Names of headers and labels are keys; others are unknown fields then.
                    map.remove(&key);
                    let key = self.text(&key);
                    map.insert(key, one);
                }
                map.values_mut().for_each(|one| self.change(one, at));
            }
            _ => {}
        }
    }

    fn shuffled<T>(&mut self, mut list: Vec<T>) -> Vec<T> {
        for at in (1..list.len()).rev() {
            let with = self.below(at + 1);
            list.swap(at, with);
        }
        list
    }
}

fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(size).sum(),
        Value::Object(map) => map.values().map(size).sum(),
        _ => 0,
    }
}

/// A resource as a proxy has it.
fn read_back(id: &ResourceId, resource: &Resource) -> Result<Value, String> {
    let text = |error: &dyn std::fmt::Display| format!("{id:?}: {error}");
    let json = |value: Result<Value, serde_json::Error>| value.unwrap();
    match resource {
        Resource::Cluster(raw) => {
            let wire = encode::cluster(raw).map_err(|e| text(&e))?;
            let got = decode::cluster(&id.name, &wire.body).map_err(|e| text(&e))?;
            resource::cluster(&got.raw, true).map_err(|e| text(&e))?;
            Ok(json(serde_json::to_value(&got.raw)))
        }
        Resource::Endpoints(list) => {
            let list: Vec<_> = list.iter().map(Endpoint::served).collect();
            let wire = encode::endpoints(&id.name, &list).map_err(|e| text(&e))?;
            let usable = decode::usable_endpoints(&id.name, &wire.body).map_err(|e| text(&e))?;
            Ok(json!(usable.len()))
        }
        Resource::Inbound(inbound) => {
            let wire = encode::inbound(&id.name, &inbound.described(), &inbound.ahead)
                .map_err(|e| text(&e))?;
            let (got, _) = decode::inbound(&id.name, &wire.body).map_err(|e| text(&e))?;
            got.check(&id.name, true).map_err(|e| text(&e))?;
            assert_eq!(got, inbound.described());
            Ok(json(serde_json::to_value(&got)))
        }
        Resource::Listener(listener) => {
            let wire = encode::listener(&id.name, &listener.described()).map_err(|e| text(&e))?;
            decode::listener(&id.name, &wire.body).map_err(|e| text(&e))?;
            Ok(Value::Null)
        }
        Resource::Routes(table) => {
            let wire = encode::routes(table).map_err(|e| text(&e))?;
            let got = decode::routes(&id.name, &wire.body).map_err(|e| text(&e))?;
            resource::routes(&got).map_err(|e| text(&e))?;
            Ok(json(serde_json::to_value(&got)))
        }
    }
}

/// The complete output of an index, and the part that a proxy decodes.
fn built(objects: &[Object]) -> (Index, Vec<(ResourceId, Value)>) {
    let mut index = Index::default();
    for object in objects {
        index.apply(object.clone());
    }
    let changes = index.changes();
    assert_eq!(changes.unusable, [], "accepted, and not published");
    assert_eq!(Table::new(false).publish(&changes.resources), 0);
    let read = index.resources().map(|(id, resource)| {
        let value = read_back(id, resource).unwrap_or_else(|why| panic!("{why}"));
        (id.clone(), value)
    });
    let read = read.collect();
    (index, read)
}

fn is_accepted(index: &Index, kind: Kind, key: &Key) -> bool {
    let mut own = index
        .statuses()
        .filter(|(of, name, _)| *of == kind && *name == key);
    let Some((_, _, status)) = own.next() else {
        return false;
    };
    let status = status.to_json();
    let lists = [&status["conditions"], &status["parents"][0]["conditions"]];
    let mut conditions = lists.into_iter().filter_map(Value::as_array).flatten();
    conditions.any(|one| one["type"] == "Accepted" && one["status"] == "True")
}

/// Texts under keys of this name, anywhere.
fn values_of(value: &Value, path: &[&str], found: &mut Vec<String>) {
    match value {
        Value::Array(list) => list.iter().for_each(|one| values_of(one, path, found)),
        Value::Object(map) => {
            for (key, one) in map {
                match path.contains(&key.as_str()) {
                    true => texts(one, found),
                    false => values_of(one, path, found),
                }
            }
        }
        _ => {}
    }
}

fn texts(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(list) => list.iter().for_each(|one| texts(one, found)),
        Value::Object(map) => map.values().for_each(|one| texts(one, found)),
        _ => {}
    }
}

/// The header values of a route, without Envoy's escapes of a VirtualService.
fn written(kind: Kind, spec: &Value) -> Vec<String> {
    let mut found = Vec::new();
    match kind {
        Kind::VirtualService => {
            values_of(
                &spec["http"][0]["headers"]["request"]["set"],
                &["x-set"],
                &mut found,
            );
            found
                .iter_mut()
                .for_each(|text| *text = text.replace("%%", "%"));
        }
        _ => {
            let modifier = &spec["rules"][0]["filters"][0]["requestHeaderModifier"];
            found.extend(modifier["set"][0]["value"].as_str().map(str::to_owned));
        }
    }
    found
}

/// Checks that an accepted resource is published to proxies.
fn in_force(kind: Kind, key: &Key, spec: &Value, read: &[(ResourceId, Value)]) {
    let of = |kind: ResourceKind| read.iter().filter(move |(id, _)| id.kind == kind);
    match kind {
        Kind::HttpRoute | Kind::GrpcRoute | Kind::VirtualService => {
            let prefix = format!("{key}/");
            let hosts =
                of(ResourceKind::Routes).filter_map(|(_, table)| table["virtual_hosts"].as_array());
            let routes = hosts
                .flatten()
                .filter_map(|host| host["routes"].as_array())
                .flatten();
            let own: Vec<&Value> = routes
                .filter(|route| {
                    route["name"]
                        .as_str()
                        .is_some_and(|name| name.starts_with(&prefix))
                })
                .collect();
            assert!(!own.is_empty(), "{key}: {spec}");
            // A route without a destination responds itself.
            if own.iter().any(|route| !route["direct_response"].is_null()) {
                return;
            }
            let mut headers = Vec::new();
            own.iter()
                .for_each(|route| values_of(route, &["set"], &mut headers));
            for text in written(kind, spec) {
                assert!(
                    headers.contains(&text),
                    "{key}: {text:?} is not among {headers:?}: {spec}"
                );
            }
        }
        Kind::AuthorizationPolicy if spec["selector"] == json!({"matchLabels": {"app": "a"}}) => {
            let mut names = Vec::new();
            of(ResourceKind::Inbound)
                .for_each(|(_, one)| values_of(&one["authorization"], &["name"], &mut names));
            let rules = spec["rules"].as_array().map_or(0, Vec::len);
            let prefix = format!("{}/", key.name);
            let own = names
                .iter()
                .filter(|name| name.starts_with(&prefix))
                .count();
            assert!(own >= rules, "{key}: {names:?}");
        }
        _ => {}
    }
}

/// Random draws by `SEED=`, and how many rounds by `ROUNDS=`.
fn draw(rounds: usize) -> (Draw, usize) {
    let number = |name: &str| -> Option<u64> { std::env::var(name).ok()?.parse().ok() };
    let seed = number("SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("SEED={seed}");
    let draw = Draw {
        rng: Rng::seed(seed),
        hostile: hostile(),
    };
    let published = number("ROUNDS").and_then(|rounds| usize::try_from(rounds).ok());
    (draw, published.unwrap_or(rounds))
}

#[test]
fn whatever_is_accepted_is_in_force_and_survives_a_restart() {
    let (mut draw, rounds) = draw(ROUNDS);
    let around = support::objects(AROUND);
    let (mut accepted, mut all) = (0, 0);
    for _ in 0..rounds {
        let mut changed: Vec<Value> = templates::all();
        let mut which: Vec<usize> = (0..changed.len()).collect();
        which = draw.shuffled(which);
        // Some as they are, some changed in one place, few in several.
        for at in which.into_iter().take(changed.len() / 2) {
            for _ in 0..[1, 1, 1, 3][draw.below(4)] {
                let spec = &mut changed[at]["spec"];
                let mut place = draw.below(size(spec));
                draw.change(spec, &mut place);
            }
        }
        let read: Vec<(Value, Object)> = changed
            .into_iter()
            .filter_map(|value| Some((value.clone(), Object::read(&value).ok()?)))
            .collect();
        let objects: Vec<Object> = read.iter().map(|(_, object)| object.clone()).collect();
        let objects: Vec<Object> = around.iter().cloned().chain(objects).collect();
        let (index, found) = built(&objects);
        for (value, object) in read.iter().filter(|(_, object)| object.kind.has_status()) {
            all += 1;
            if is_accepted(&index, object.kind, &object.key) {
                accepted += 1;
                in_force(object.kind, &object.key, &value["spec"], &found);
            }
        }
        let (again, _) = built(&draw.shuffled(objects));
        assert_eq!(rendered(&published(&again)), rendered(&published(&index)));
    }
    println!("{accepted} of {all} were accepted");
    assert!(accepted > all / 4, "only {accepted} of {all} were accepted");
}
