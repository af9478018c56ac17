//! Parses snapshots of the graph over time, for Algorithm 2.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use maglor_balance::Time;

use super::fields::{self, Fields};
use super::splits::split;
use super::yaml::{self, Node, Value};
use super::{FileError, MAX_REPLICAS};
use crate::advise::{ContainerUse, EdgeUse, Room, ServiceUse, Snapshot};
use crate::graph::GraphError;

/// Parses one snapshot, or a list `snapshots: [...]`. Each has `services`, `edges`, an optional `room` (or `nodes`,
/// from which the requests of services are subtracted), and `at`: a time as in RFC 3339, or in seconds; by default 60 s
/// after the previous snapshot. In the result, the time of the first snapshot is 0.
///
/// # Errors
/// The first error, with its line and field.
pub fn snapshots(text: &str) -> Result<Vec<(Time, Snapshot)>, FileError> {
    let root = yaml::read(text)?;
    let mut fields = Fields::new(String::new(), root.clone())?;
    if !fields.has("snapshots") {
        return Ok(vec![(Time::ZERO, snapshot("", root)?.1)]);
    }
    let list = fields.list("snapshots")?;
    fields.finish()?;
    let mut all: Vec<(Time, Snapshot)> = Vec::new();
    let (mut first, mut last): (Option<f64>, f64) = (None, 0.0);
    for (path, item) in list {
        let line = item.line;
        let (at, snapshot) = snapshot(&path, item)?;
        let at = at.unwrap_or(if first.is_none() { 0.0 } else { last + 60.0 });
        if first.is_some() && at <= last {
            let path = format!("{path}.at");
            return Err(FileError::Order { line, path });
        }
        last = at;
        let since = at - *first.get_or_insert(at);
        // Times are below 10^12 s, and the difference is not negative.
        let since = Duration::try_from_secs_f64(since).unwrap_or_default();
        all.push((Time::ZERO + since, snapshot));
    }
    Ok(all)
}

fn snapshot(path: &str, item: Node) -> Result<(Option<f64>, Snapshot), FileError> {
    let mut fields = Fields::new(path.to_owned(), item)?;
    let at = fields
        .optional("at")
        .map(|node| time(fields.path_of("at"), &node))
        .transpose()?;
    let mut snapshot = Snapshot::default();
    let (mut names, mut pairs) = (HashSet::new(), HashMap::new());
    for (path, item) in fields.list("services")? {
        let line = item.line;
        let service = service(&path, item)?;
        let error = match names.insert(service.name.clone()) {
            _ if service.name.is_empty() => GraphError::Nameless,
            false => GraphError::Duplicate(service.name),
            true => {
                snapshot.services.push(service);
                continue;
            }
        };
        let path = format!("{path}.name");
        return Err(FileError::Graph { line, path, error });
    }
    for (path, item) in fields.list("edges")? {
        let line = item.line;
        let edge = edge(&path, item)?;
        if let Some(name) = [&edge.from, &edge.to]
            .into_iter()
            .find(|name| !names.contains(*name))
        {
            let path = format!("{path} (`{}` to `{}`)", edge.from, edge.to);
            let error = GraphError::Unknown(name.clone());
            return Err(FileError::Graph { line, path, error });
        }
        let pair = (edge.from.clone(), edge.to.clone());
        match pairs.entry(pair) {
            Entry::Occupied(there) => add(&mut snapshot.edges[*there.get()], &edge),
            Entry::Vacant(place) => {
                place.insert(snapshot.edges.len());
                snapshot.edges.push(edge);
            }
        }
    }
    for (path, item) in fields.list("splits")? {
        let line = item.line;
        let split = split(&path, item)?;
        let twice = snapshot
            .splits
            .iter()
            .any(|one| one.service == split.service);
        let error = match names.contains(&split.service) {
            false => GraphError::Unknown(split.service),
            true if twice => GraphError::Duplicate(split.service),
            true => {
                snapshot.splits.push(split);
                continue;
            }
        };
        let path = format!("{path}.service");
        return Err(FileError::Graph { line, path, error });
    }
    if let Some(node) = fields.optional("room") {
        let mut room = Fields::new(fields.path_of("room"), node)?;
        snapshot.room = Some(Room {
            cpu_millis: room.whole("cpu_millis")?,
            memory_mib: room.whole("memory_mib")?,
        });
        room.finish()?;
    }
    let nodes = fields.list("nodes")?;
    if snapshot.room.is_none() && !nodes.is_empty() {
        snapshot.room = Some(room_on(nodes, &snapshot.services)?);
    }
    fields.pass_over(&["delays", "window_seconds"]);
    fields.finish()?;
    Ok((at, snapshot))
}

/// Returns the capacity of the nodes minus the requests of these services.
fn room_on(nodes: Vec<(String, Node)>, services: &[ServiceUse]) -> Result<Room, FileError> {
    let (mut cpu, mut memory) = (0, 0);
    for (path, item) in nodes {
        let mut fields = Fields::new(path, item)?;
        fields.name("name")?;
        cpu += fields.whole("cpu_millis")?;
        memory += fields.whole("memory_mib")?;
        fields.pass_over(&["pods", "zone"]);
        fields.finish()?;
    }
    for service in services {
        let replicas = u64::from(service.replicas);
        cpu = cpu.saturating_sub(replicas * service.cpu_millis);
        memory = memory.saturating_sub(replicas * service.memory_mib);
    }
    Ok(Room {
        cpu_millis: cpu,
        memory_mib: memory,
    })
}

fn service(path: &str, item: Node) -> Result<ServiceUse, FileError> {
    let mut fields = Fields::new(path.to_owned(), item)?;
    let line = fields.line();
    let name = fields.name("name")?;
    let replicas = fields.whole("replicas")?;
    if replicas > MAX_REPLICAS {
        return Err(FileError::Replicas {
            line,
            path: format!("{path}.replicas of `{name}`"),
            value: replicas,
        });
    }
    let service = ServiceUse {
        name,
        replicas: u32::try_from(replicas).unwrap_or(0),
        cpu_millis: fields.optional_whole("cpu_millis")?.unwrap_or(0),
        memory_mib: fields.optional_whole("memory_mib")?.unwrap_or(0),
        cpu_limit_millis: fields
            .optional_whole("cpu_limit_millis")?
            .filter(|limit| *limit > 0),
        memory_limit_mib: fields
            .optional_whole("memory_limit_mib")?
            .filter(|limit| *limit > 0),
        cpu_used_millis: fields.weight("cpu_used_millis")?,
        memory_used_mib: fields.weight("memory_used_mib")?,
        containers: containers(&mut fields)?,
        pending: fields.weight("pending")?.unwrap_or(0.0),
        rps: fields.weight("rps")?,
        autoscaled: fields.flag("autoscaled")?,
    };
    fields.pass_over(&[
        "contradicted",
        "local_first",
        "max_per_node",
        "nodes",
        "pinned",
        "takes",
    ]);
    fields.finish()?;
    Ok(service)
}

/// Parses the usage of each container; all three fields are required.
fn containers(fields: &mut Fields) -> Result<Vec<ContainerUse>, FileError> {
    let mut containers: Vec<ContainerUse> = Vec::new();
    for (path, item) in fields.list("containers")? {
        let mut fields = Fields::new(path, item)?;
        let line = fields.line();
        let name = fields.name("name")?;
        if containers.iter().any(|known| known.name == name) {
            let path = fields.path_of("name");
            let error = GraphError::Duplicate(name);
            return Err(FileError::Graph { line, path, error });
        }
        let mut weight = |field: &'static str| {
            let path = fields.path_of(field);
            let value = fields.weight(field)?;
            value.ok_or(FileError::Missing { line, path })
        };
        containers.push(ContainerUse {
            name,
            cpu_used_millis: weight("cpu_used_millis")?,
            memory_used_mib: weight("memory_used_mib")?,
        });
        fields.finish()?;
    }
    Ok(containers)
}

fn edge(path: &str, item: Node) -> Result<EdgeUse, FileError> {
    let mut fields = Fields::new(path.to_owned(), item)?;
    let line = fields.line();
    let edge = EdgeUse {
        from: fields.name("from")?,
        to: fields.name("to")?,
        rps: {
            let rps = fields.weight("rps")?;
            let path = format!("{path}.rps");
            rps.ok_or(FileError::Missing { line, path })?
        },
        latency_ms: fields.weight("latency_ms")?.unwrap_or(0.0),
        in_flight: fields.weight("in_flight")?.unwrap_or(0.0),
        p99_ms: fields.weight("p99_ms")?,
        failures: fields.weight("failures")?.unwrap_or(0.0),
        deadline_ms: fields.weight("deadline_ms")?,
    };
    fields.pass_over(&["bytes_per_second", "connections_per_second", "p50_ms"]);
    fields.finish()?;
    if edge.failures > edge.rps {
        let (path, failures) = (format!("{path}.failures"), edge.failures);
        let rps = edge.rps;
        return Err(FileError::Failures {
            line,
            path,
            failures,
            rps,
        });
    }
    Ok(edge)
}

/// Adds calls to an edge; the response time becomes the mean over all calls.
fn add(edge: &mut EdgeUse, more: &EdgeUse) {
    let calls = edge.rps + more.rps;
    if calls > 0.0 {
        edge.latency_ms = (edge.latency_ms * edge.rps + more.latency_ms * more.rps) / calls;
    }
    edge.rps = calls;
    edge.failures += more.failures;
    edge.in_flight += more.in_flight;
    let larger = |a: Option<f64>, b: Option<f64>| a.map_or(b, |a| Some(b.map_or(a, |b| a.max(b))));
    edge.p99_ms = larger(edge.p99_ms, more.p99_ms);
    edge.deadline_ms = larger(edge.deadline_ms, more.deadline_ms);
}

/// Parses a time as seconds since the epoch.
fn time(path: String, node: &Node) -> Result<f64, FileError> {
    if let Value::Scalar { text, .. } = &node.value
        && let Some(seconds) = rfc_3339(text)
    {
        return Ok(seconds);
    }
    let line = node.line;
    let seconds = fields::number(path.clone(), node)?;
    let error = GraphError::Weight {
        field: "at",
        value: seconds,
    };
    match (0.0..=1e12).contains(&seconds) {
        true => Ok(seconds),
        false => Err(FileError::Graph { line, path, error }),
    }
}

/// Parses a time such as `2026-11-21T12:00:00.5Z`, or one with an offset.
fn rfc_3339(text: &str) -> Option<f64> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let mut parts = date.splitn(3, '-').map(str::parse::<i64>);
    let mut next = || parts.next()?.ok();
    let (year, month, day) = (next()?, next()?, next()?);
    let ends = |c: char| matches!(c, 'Z' | 'z' | '+' | '-');
    let (clock, zone) = rest.split_at(rest.find(ends)?);
    let mut parts = clock.splitn(3, ':');
    let mut below = |most: u32| {
        let part = parts.next()?.parse::<u32>().ok()?;
        (part < most).then_some(f64::from(part))
    };
    let (hour, minute) = (below(24)?, below(60)?);
    // 60: a leap second.
    let second = parts.next()?.parse::<f64>().ok();
    let second = second.filter(|second| (0.0..61.0).contains(second))?;
    let offset = match zone {
        "Z" | "z" => 0.0,
        zone => {
            let (hours, minutes) = zone.get(1..)?.split_once(':')?;
            let (hours, minutes) = (hours.parse::<u32>().ok()?, minutes.parse::<u32>().ok()?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let offset = f64::from(hours * 3600 + minutes * 60);
            if zone.starts_with('-') {
                -offset
            } else {
                offset
            }
        }
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=days).contains(&day) {
        return None;
    }
    // Days of the proleptic Gregorian calendar, years counted from March.
    let (y, m) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    Some(days as f64 * 86_400.0 + hour * 3600.0 + minute * 60.0 + second - offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", Some(0.0)),
            ("2000-02-29T12:30:15.5Z", Some(951_827_415.5)),
            ("2026-11-21T21:00:00+01:00", Some(1_795_291_200.0)),
            ("2026-11-21T00:00:00-00:30", Some(1_795_219_200.0 + 1800.0)),
            ("2016-12-31T23:59:60Z", Some(1_483_228_800.0)),
            ("2026-13-01T00:00:00Z", None),
            ("2026-02-29T00:00:00Z", None),
            ("2026-04-31T00:00:00Z", None),
            ("2026-11-21T24:00:00Z", None),
            ("2026-11-21T12:60:00Z", None),
            ("2026-11-21T12:00:nanZ", None),
            ("2026-11-21T1.5:00:00Z", None),
            ("2026-11-21T00:00:00+24:00", None),
            ("2026-11-21", None),
            ("12", None),
        ] {
            assert_eq!(rfc_3339(text), seconds, "{text}");
        }
    }

    #[test]
    fn one_or_many_are_read() {
        let one = "{services: [{name: a, replicas: 2, cpu_used_millis: 100}], edges: []}";
        let read = snapshots(one).unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].1.services[0].cpu_used_millis, Some(100.0));
        let nodes = "{services: [{name: a, replicas: 2, cpu_millis: 300, nodes: {n: 2}}], edges: [], \
                     nodes: [{name: n, cpu_millis: 1000, memory_mib: 64, pods: 9}]}";
        let room = snapshots(nodes).unwrap()[0].1.room.unwrap();
        assert_eq!((room.cpu_millis, room.memory_mib), (400, 64));
        let many = format!("snapshots: [{one}, {one}, {{at: 90, services: []}}]");
        let read = snapshots(&many).unwrap();
        let times: Vec<f64> = read
            .iter()
            .map(|(at, _)| at.saturating_since(Time::ZERO).as_secs_f64())
            .collect();
        assert_eq!(times, [0.0, 60.0, 90.0]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let service = "{name: a, replicas: 1}";
        for (text, line, message) in [
            (
                "snapshots:\n- at: 5\n- at: 5\n",
                3,
                "snapshots[1].at: snapshots must be in chronological order",
            ),
            (
                "services:\n- {name: a, replicas: 1, cpu: 3}",
                2,
                "services[0].cpu is unknown",
            ),
            (
                "services:\n- {name: a}",
                2,
                "services[0].replicas is missing",
            ),
            (
                "services:\n- {name: a, replicas: 1, pending: -1}",
                2,
                "pending is -1: it must be",
            ),
            (
                "snapshots:\n- at: noon",
                2,
                "snapshots[0].at: expected a number, found `noon`",
            ),
            ("at: noon", 1, "at: expected a number, found `noon`"),
            ("[]", 1, "the file: expected a mapping, found a list"),
            ("snapshots: {}", 1, "snapshots: expected a list"),
            (
                "services: []\nedges:\n- {from: a, to: b, rps: 1}",
                3,
                "`a` is not a service",
            ),
        ] {
            let error = snapshots(text).unwrap_err();
            assert!(error.to_string().contains(message), "{text}: {error}");
            assert_eq!(error.line(), Some(line), "{text}: {error}");
        }
        let edge = "{from: a, to: a, rps: 1, failures: 2}";
        let error = snapshots(&format!("{{services: [{service}], edges: [{edge}]}}")).unwrap_err();
        assert!(
            error.to_string().contains("edges[0].failures is 2"),
            "{error}"
        );
    }
}
