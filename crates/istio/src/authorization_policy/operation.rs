//! `to[].operation`, and the ports of `when`: what is done, and what of that is excepted.

use maglor_config::raw::{
    AuthorizationAction, AuthorizationOperation, AuthorizationRule, OneOrMany,
};

use super::{consequence, some};
use crate::block::Block;
use crate::finding::Effect;

/// The methods that there are (RFC 9110, 9.1; RFC 5789), for patterns.
const METHODS: [&str; 9] = [
    "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE",
];

/// What is done: any of `to` (or anything), and none of `not_to`.
#[derive(Clone, Debug, Default)]
pub(super) struct Operation {
    to: Vec<AuthorizationOperation>,
    not_to: Vec<AuthorizationOperation>,
}

impl Operation {
    /// A rule with this as well.
    pub(super) fn put(&self, rule: &AuthorizationRule) -> AuthorizationRule {
        AuthorizationRule {
            to: self.to.clone(),
            not_to: self.not_to.clone(),
            ..rule.clone()
        }
    }
}

/// Reads an operation, and whether all of its conditions are done.
pub(super) fn read(block: &Block<'_>, action: AuthorizationAction) -> (Operation, bool) {
    let mut known = true;
    let mut told = |name, list: Result<Vec<String>, NotDone>| {
        if list.is_err() {
            block.ignore(name, consequence(action));
            known = false;
        }
        some(list.unwrap_or_default())
    };
    let mut own = block.texts("methods");
    // Any method, also one that nobody has heard of, is denied by saying nothing of methods.
    if action != AuthorizationAction::Allow && own.iter().any(|text| text == "*") {
        own.clear();
    }
    let to = AuthorizationOperation {
        methods: told("methods", methods(own)),
        paths: told("paths", paths(block.texts("paths"))),
        ports: some(block.texts("ports")),
        hosts: some(block.texts("hosts")),
    };
    let excluded = [
        AuthorizationOperation {
            methods: told("notMethods", methods(block.texts("notMethods"))),
            ..AuthorizationOperation::default()
        },
        AuthorizationOperation {
            paths: told("notPaths", paths(block.texts("notPaths"))),
            ..AuthorizationOperation::default()
        },
        AuthorizationOperation {
            ports: some(block.texts("notPorts")),
            ..AuthorizationOperation::default()
        },
        AuthorizationOperation {
            hosts: some(block.texts("notHosts")),
            ..AuthorizationOperation::default()
        },
    ];
    block.end(Effect::Refused);
    let says = |one: &AuthorizationOperation| *one != AuthorizationOperation::default();
    let operation = Operation {
        to: [to].into_iter().filter(says).collect(),
        not_to: excluded.into_iter().filter(says).collect(),
    };
    (operation, known)
}

/// Something that is not done is among the values.
struct NotDone;

/// Paths, without templates.
fn paths(list: Vec<String>) -> Result<Vec<String>, NotDone> {
    match list.iter().any(|path| path.contains('{')) {
        true => Err(NotDone),
        false => Ok(list),
    }
}

/// Methods by name, and those that a pattern means.
fn methods(list: Vec<String>) -> Result<Vec<String>, NotDone> {
    let mut found: Vec<String> = Vec::new();
    for text in list {
        let named: Vec<&str> = match (text.strip_suffix('*'), text.strip_prefix('*')) {
            (Some(begin), _) => named(|method| method.starts_with(begin)),
            (None, Some(end)) => named(|method| method.ends_with(end)),
            (None, None) => vec![text.as_str()],
        };
        if named.is_empty() {
            return Err(NotDone);
        }
        found.extend(named.into_iter().map(str::to_owned));
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn named(is_meant: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let meant = METHODS.into_iter().filter(|method| is_meant(method));
    meant.collect()
}

/// Ports of `when`.
#[derive(Clone, Debug, Default)]
pub(super) struct Ports {
    /// Each a list of which one has to be the port.
    of: Vec<Vec<String>>,
    none_of: Vec<String>,
}

impl Ports {
    /// Another condition.
    pub(super) fn also(&mut self, values: Vec<String>, excluded: Vec<String>) {
        if !values.is_empty() {
            self.of.push(values);
        }
        self.none_of.extend(excluded);
    }

    /// Those of a list that are meant.
    fn common(&self, own: Option<OneOrMany>) -> Option<Vec<String>> {
        let mut lists = own.map(|list| list.0).into_iter().chain(self.of.clone());
        let first = lists.next()?;
        Some(lists.fold(first, |common, list| {
            let both = common.into_iter().filter(|port| list.contains(port));
            both.collect()
        }))
    }
}

/// Operations on these ports only, as those of rules: what is done without an exception stands in one rule. None where
/// nothing is done on these ports.
pub(super) fn on_ports(mut operations: Vec<Operation>, ports: &Ports) -> Vec<Operation> {
    if operations.is_empty() {
        operations.push(Operation::default());
    }
    let excluded = some(ports.none_of.clone()).map(|ports| AuthorizationOperation {
        ports: Some(ports),
        ..AuthorizationOperation::default()
    });
    let (mut plain, mut others) = (Vec::new(), Vec::new());
    for mut operation in operations {
        let mut to = operation.to.pop().unwrap_or_default();
        if let Some(common) = ports.common(to.ports.take()) {
            if common.is_empty() {
                continue;
            }
            to.ports = Some(OneOrMany(common));
        }
        if to != AuthorizationOperation::default() {
            operation.to.push(to);
        }
        operation.not_to.extend(excluded.clone());
        match operation.not_to.is_empty() {
            true => plain.push(operation.to),
            false => others.push(operation),
        }
    }
    if !plain.is_empty() {
        let anything = plain.iter().any(Vec::is_empty);
        let to = plain.into_iter().flatten().filter(|_| !anything).collect();
        others.insert(
            0,
            Operation {
                to,
                not_to: Vec::new(),
            },
        );
    }
    others
}
