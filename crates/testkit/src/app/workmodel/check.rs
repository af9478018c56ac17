//! Validates a work model: calls refer to services, services differ, limited instances have one worker, and there are
//! no endless calls.

use std::collections::{BTreeMap, BTreeSet};

use super::{WorkModel, WorkModelError};

pub(super) fn check(model: &WorkModel, text: &str) -> Result<(), WorkModelError> {
    unknown(model, text)?;
    same(model, text)?;
    limited(model, text)?;
    cycle(model, text)
}

/// Returns the line where a name is first mentioned, counted from 1.
fn line(text: &str, name: &str) -> usize {
    let quoted = serde_json::Value::from(name).to_string();
    let before = text.find(&quoted).map_or("", |at| &text[..at]);
    before.matches('\n').count() + 1
}

fn unknown(model: &WorkModel, text: &str) -> Result<(), WorkModelError> {
    for (name, service) in model.services() {
        let callees = service
            .external_services
            .iter()
            .flat_map(|group| &group.services);
        for callee in callees {
            if model.called(callee).is_none() {
                return Err(WorkModelError::Unknown {
                    line: line(text, callee),
                    service: name.into(),
                    callee: callee.clone(),
                });
            }
        }
    }
    Ok(())
}

fn same(model: &WorkModel, text: &str) -> Result<(), WorkModelError> {
    let mut places = BTreeMap::new();
    for (name, service) in model.services() {
        let place = (service.host(name), service.path.as_str());
        if let Some(other) = places.insert(place, name) {
            return Err(WorkModelError::Same {
                line: line(text, name),
                service: name.into(),
                other: other.into(),
            });
        }
    }
    Ok(())
}

fn limited(model: &WorkModel, text: &str) -> Result<(), WorkModelError> {
    for (name, service) in model.services() {
        let workers = service.workers();
        if service.cpu_limit().is_some() && workers > 1 {
            return Err(WorkModelError::LimitedWorkers {
                line: line(text, name),
                service: name.into(),
                workers,
            });
        }
    }
    Ok(())
}

/// Returns the services that a service calls for every request.
fn certain<'a>(model: &'a WorkModel, name: &str) -> Vec<&'a str> {
    let Some((_, service)) = model.called(name) else {
        return Vec::new();
    };
    let groups = service
        .external_services
        .iter()
        .filter(|group| group.takes_all());
    let callees = groups.flat_map(|group| {
        let sure = |callee: &&String| group.probability(callee) >= 1.0;
        group.services.iter().filter(sure)
    });
    let known = callees.filter_map(|callee| model.called(callee));
    known.map(|(name, _)| name).collect()
}

fn cycle(model: &WorkModel, text: &str) -> Result<(), WorkModelError> {
    let mut harmless = BTreeSet::new();
    for (name, _) in model.services() {
        // Depth first, without recursion: a file may contain a chain longer than a stack.
        let mut way: Vec<(&str, Vec<&str>)> = vec![(name, certain(model, name))];
        while let Some((service, callees)) = way.last_mut() {
            let Some(callee) = callees.pop() else {
                harmless.insert(*service);
                way.pop();
                continue;
            };
            if let Some(begin) = way.iter().position(|(one, _)| *one == callee) {
                let mut names: Vec<_> = way[begin..].iter().map(|(one, _)| *one).collect();
                names.push(callee);
                return Err(WorkModelError::Cycle {
                    line: line(text, callee),
                    service: callee.into(),
                    way: names.join(" -> "),
                });
            }
            if !harmless.contains(callee) {
                way.push((callee, certain(model, callee)));
            }
        }
    }
    Ok(())
}
