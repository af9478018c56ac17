//! Translates `to[].operation`, and the ports and headers of `when`, into operations with their exceptions.

use maglor_config::raw::{
    AuthorizationAction, AuthorizationHeader, AuthorizationOperation, AuthorizationRule, OneOrMany,
};

use super::{consequence, listed, some};
use crate::istio::block::Block;
use crate::istio::finding::Effect;

/// A matched operation: any of `to` (any request if it is empty), and none of `not_to`.
#[derive(Clone, Debug, Default)]
pub(super) struct Operation {
    to: Vec<AuthorizationOperation>,
    not_to: Vec<AuthorizationOperation>,
}

impl Operation {
    /// Returns a copy of a rule that is restricted to this operation.
    pub(super) fn put(&self, rule: &AuthorizationRule) -> AuthorizationRule {
        AuthorizationRule {
            to: self.to.clone(),
            not_to: self.not_to.clone(),
            ..rule.clone()
        }
    }
}

/// Reads an operation. Also returns whether all of its conditions are supported.
pub(super) fn read(block: &Block<'_>, action: AuthorizationAction) -> (Operation, bool) {
    let mut known = true;
    let mut paths = |name| {
        let list = listed(block, name);
        if let Some(template) = list.iter().find(|path| path.contains('{')) {
            let what = format!(
                "the path template `{template}` is not supported, write paths, `/begin/*` or `*/end`: {}",
                consequence(action)
            );
            block.ignore(name, what);
            known = false;
            return None;
        }
        some(list)
    };
    let mut own = listed(block, "methods");
    // A deny rule without methods denies any method, including unknown ones.
    if action != AuthorizationAction::Allow && own.iter().any(|text| text == "*") {
        own.clear();
    }
    let to = AuthorizationOperation {
        methods: some(own),
        paths: paths("paths"),
        ports: some(listed(block, "ports")),
        hosts: some(without_ports(&listed(block, "hosts"))),
        headers: Vec::new(),
    };
    let excluded = [
        AuthorizationOperation {
            methods: some(block.texts("notMethods")),
            ..AuthorizationOperation::default()
        },
        AuthorizationOperation {
            paths: paths("notPaths"),
            ..AuthorizationOperation::default()
        },
        AuthorizationOperation {
            ports: some(block.texts("notPorts")),
            ..AuthorizationOperation::default()
        },
        AuthorizationOperation {
            hosts: some(without_ports(&block.texts("notHosts"))),
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

/// Removes `HOST:*` and `HOST:PORT` beside `HOST`, which covers them: here, hosts are compared without their port.
fn without_ports(hosts: &[String]) -> Vec<String> {
    let covered = |one: &String| {
        let host = one
            .rsplit_once(':')
            .filter(|(_, port)| *port == "*" || port.bytes().all(|byte| byte.is_ascii_digit()));
        host.is_some_and(|(host, _)| hosts.iter().any(|other| other.eq_ignore_ascii_case(host)))
    };
    hosts.iter().filter(|one| !covered(one)).cloned().collect()
}

/// The conditions of `when` on the operation.
#[derive(Clone, Debug, Default)]
pub(super) struct When {
    /// Lists of ports, each of which must contain the port of the request.
    of: Vec<Vec<String>>,
    none_of: Vec<String>,
    headers: Vec<AuthorizationHeader>,
    not_headers: Vec<AuthorizationHeader>,
}

impl When {
    /// Adds a condition on a header field.
    pub(super) fn header(&mut self, name: &str, values: Vec<String>, excluded: Vec<String>) {
        let condition = |list: Vec<String>| AuthorizationHeader {
            name: Some(name.to_owned()),
            values: Some(OneOrMany(list)),
        };
        if !values.is_empty() {
            self.headers.push(condition(values));
        }
        if !excluded.is_empty() {
            self.not_headers.push(condition(excluded));
        }
    }

    /// Adds a condition on the port.
    pub(super) fn port(&mut self, values: Vec<String>, excluded: Vec<String>) {
        if !values.is_empty() {
            self.of.push(values);
        }
        self.none_of.extend(excluded);
    }

    /// Returns the ports of a list that satisfy the conditions.
    fn common(&self, own: Option<OneOrMany>) -> Option<Vec<String>> {
        let mut lists = own.map(|list| list.0).into_iter().chain(self.of.clone());
        let first = lists.next()?;
        Some(lists.fold(first, |common, list| {
            let both = common.into_iter().filter(|port| list.contains(port));
            both.collect()
        }))
    }
}

/// Restricts operations to these conditions; operations without an exception are merged into one
/// rule. Empty if no operation remains on these ports.
pub(super) fn limited(mut operations: Vec<Operation>, when: &When) -> Vec<Operation> {
    if operations.is_empty() {
        operations.push(Operation::default());
    }
    let of_port = some(when.none_of.clone()).map(|ports| AuthorizationOperation {
        ports: Some(ports),
        ..AuthorizationOperation::default()
    });
    let of_header = when
        .not_headers
        .iter()
        .map(|header| AuthorizationOperation {
            headers: vec![header.clone()],
            ..AuthorizationOperation::default()
        });
    let excluded: Vec<AuthorizationOperation> = of_port.into_iter().chain(of_header).collect();
    let (mut plain, mut others) = (Vec::new(), Vec::new());
    for mut operation in operations {
        let mut to = operation.to.pop().unwrap_or_default();
        if let Some(common) = when.common(to.ports.take()) {
            if common.is_empty() {
                continue;
            }
            to.ports = Some(OneOrMany(common));
        }
        to.headers.extend(when.headers.iter().cloned());
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
