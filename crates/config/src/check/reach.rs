//! Detects routes that no request can reach, because an earlier route matches all of their requests.

use std::sync::Arc;

use http::Method;

use crate::Route;
use crate::report::At;
use crate::route::{PathMatch, RouteMatch};

/// The maximum number of earlier routes that each route is compared with, so that long tables stay cheap.
const MAX_COMPARED: usize = 64;

pub(super) fn warn_unreachable(routes: &[(usize, Arc<Route>)], at: &At<'_>) {
    // Only routes without conditions on headers and query can hide others.
    let mut wide: Vec<&(usize, Arc<Route>)> = Vec::new();
    for entry @ (index, route) in routes {
        let matches = &route.matches;
        if let Some((_, hider)) = wide.iter().find(|(_, wide)| covers(&wide.matches, matches)) {
            at.index(*index)
                .warning(format!(
                    "no request reaches this route: route `{}`, which comes first, matches all of its requests",
                    hider.name
                ))
                .help("move this route before the more general one");
        } else if matches.headers.is_empty()
            && matches.query.is_empty()
            && wide.len() < MAX_COMPARED
        {
            wide.push(entry);
        }
    }
}

/// Returns whether `a` matches every request that `b` matches.
fn covers(a: &RouteMatch, b: &RouteMatch) -> bool {
    let methods = a.methods.is_empty()
        || (!b.methods.is_empty() && b.methods.iter().all(|method| a.methods.contains(method)));
    // CONNECT has no path, so a wide prefix does not match it.
    let connect = b.methods.contains(&Method::CONNECT) && !a.methods.contains(&Method::CONNECT);
    methods && !connect && (!a.grpc || b.grpc) && covers_path(&a.path, &b.path)
}

fn covers_path(a: &PathMatch, b: &PathMatch) -> bool {
    match (a, b) {
        (PathMatch::Prefix(a), _) if a == "/" => true,
        (PathMatch::Prefix(a), PathMatch::Prefix(b) | PathMatch::Exact(b)) => {
            let rest = b.strip_prefix(a.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || a.ends_with('/'))
        }
        (PathMatch::Exact(a), PathMatch::Exact(b)) => a == b,
        (PathMatch::Regex(a), PathMatch::Regex(b)) => a.as_str() == b.as_str(),
        (PathMatch::Regex(a), PathMatch::Exact(b)) => a.is_match(b),
        _ => false,
    }
}
