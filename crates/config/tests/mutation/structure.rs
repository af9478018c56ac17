//! Damage to the structure: the text stays well-formed YAML.

use maglor_balance::Rng;
use serde_yaml::{Mapping, Value};

/// Values that many fields do not expect.
const TEXTS: &[&str] = &[
    "",
    " ",
    "*",
    "a",
    "0",
    "0s",
    "1ms",
    "5",
    "-1",
    "99999h",
    "64KiB",
    "0.0.0.0:80",
    "[::]:80",
    "127.0.0.1:0",
    "a.b:80",
    "*.a",
    "a.*",
    "http2",
    "off",
    "lor(choices=0)",
    "maglev(table_size=4)",
    "ring-hash",
    "maglev",
    "(",
    "(a|b)*c{1000}",
    "\\w{900}",
    "$1",
    "x-a",
    ":path",
    "connection",
    "GET",
    "CONNECT",
    "websocket",
    "h2c",
    "10.0.0.0/8",
    "true",
    "5xx",
    "gateway-error,reset",
    "503",
    "100/s",
    "0/0s",
    "/healthz",
    "200-299",
    "é\u{202e}",
    "a b",
];

/// One of the first `valid` documents with some changes, mostly one, as text.
pub(crate) fn mutate(documents: &[Value], valid: usize, rng: &mut Rng) -> String {
    let mut document = documents[rng.below(valid as u32) as usize].clone();
    loop {
        let other = &documents[rng.below(documents.len() as u32) as usize];
        let foreign = random_node(other, rng).clone();
        let target = rng.below(size(&document));
        change_nth(&mut document, &mut target.clone(), &foreign, rng);
        if rng.below(2) == 0 {
            break;
        }
    }
    serde_yaml::to_string(&document).unwrap()
}

fn size(value: &Value) -> u32 {
    1 + match value {
        Value::Sequence(items) => items.iter().map(size).sum(),
        Value::Mapping(map) => map.values().map(size).sum(),
        _ => 0,
    }
}

fn random_node<'v>(value: &'v Value, rng: &mut Rng) -> &'v Value {
    let mut node = value;
    loop {
        let children: Vec<&Value> = match node {
            Value::Sequence(items) => items.iter().collect(),
            Value::Mapping(map) => map.values().collect(),
            _ => return node,
        };
        if children.is_empty() || rng.below(4) == 0 {
            return node;
        }
        node = children[rng.below(children.len() as u32) as usize];
    }
}

/// Changes the `left`-th node.
fn change_nth(value: &mut Value, left: &mut u32, foreign: &Value, rng: &mut Rng) -> bool {
    if *left == 0 {
        change(value, foreign, rng);
        return true;
    }
    *left -= 1;
    match value {
        Value::Sequence(items) => items.iter_mut().any(|v| change_nth(v, left, foreign, rng)),
        Value::Mapping(map) => map.values_mut().any(|v| change_nth(v, left, foreign, rng)),
        _ => false,
    }
}

fn change(value: &mut Value, foreign: &Value, rng: &mut Rng) {
    match (rng.below(3), &mut *value) {
        (0 | 1, Value::Sequence(items)) => change_items(items, foreign, rng),
        (0 | 1, Value::Mapping(map)) => change_entries(map, foreign, rng),
        (0, _) => *value = foreign.clone(),
        _ => *value = scalar(rng),
    }
}

fn change_items(items: &mut Vec<Value>, foreign: &Value, rng: &mut Rng) {
    let at = rng.below(items.len() as u32 + 1) as usize;
    match rng.below(4) {
        0 => items.insert(at, foreign.clone()),
        1 if at < items.len() => {
            let copy = items[at].clone();
            items.insert(at, copy);
        }
        2 if at < items.len() => {
            items.remove(at);
        }
        _ => items.reverse(),
    }
}

fn change_entries(map: &mut Mapping, foreign: &Value, rng: &mut Rng) {
    let keys: Vec<Value> = map.keys().cloned().collect();
    let Some(key) = keys.get(rng.below(keys.len().max(1) as u32) as usize) else {
        map.insert(scalar(rng), foreign.clone());
        return;
    };
    match rng.below(4) {
        0 => {
            map.remove(key);
        }
        1 => {
            let value = map.remove(key).unwrap_or(Value::Null);
            let name = key.as_str().unwrap_or_default();
            map.insert(Value::String(format!("{name}s")), value);
        }
        2 => {
            map.insert(key.clone(), foreign.clone());
        }
        _ => {
            map.insert(scalar(rng), foreign.clone());
        }
    }
}

fn scalar(rng: &mut Rng) -> Value {
    match rng.below(8) {
        0 => Value::Null,
        1 => Value::Bool(rng.below(2) == 0),
        2 => Value::Number(rng.next_u64().into()),
        3 => Value::Number((-i64::from(rng.next_u32())).into()),
        4 => Value::Number(rng.unit().into()),
        5 => Value::Number(rng.below(70_000).into()),
        _ => Value::String(TEXTS[rng.below(TEXTS.len() as u32) as usize].into()),
    }
}
