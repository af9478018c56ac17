//! Parses traffic splits among versions.

use super::FileError;
use super::fields::Fields;
use super::yaml::Node;
use crate::advise::{SplitUse, VersionUse};
use crate::graph::GraphError;

/// Parses the split of a service: `{service, port, versions: [{name, weight, replicas, rps,
/// latency_ms, failures}]}`.
pub(super) fn split(path: &str, item: Node) -> Result<SplitUse, FileError> {
    let mut fields = Fields::new(path.to_owned(), item)?;
    let line = fields.line();
    let service = fields.name("service")?;
    let port = fields.whole("port")?;
    let port = u16::try_from(port).ok().filter(|port| *port > 0);
    let port = port.ok_or_else(|| FileError::Port {
        line,
        path: fields.path_of("port"),
    })?;
    let mut versions: Vec<VersionUse> = Vec::new();
    for (path, item) in fields.list("versions")? {
        let line = item.line;
        let version = version(&path, item)?;
        if versions.iter().any(|one| one.name == version.name) {
            let path = format!("{path}.name");
            let error = GraphError::Duplicate(version.name);
            return Err(FileError::Graph { line, path, error });
        }
        versions.push(version);
    }
    fields.finish()?;
    Ok(SplitUse {
        service,
        port,
        versions,
    })
}

fn version(path: &str, item: Node) -> Result<VersionUse, FileError> {
    let mut fields = Fields::new(path.to_owned(), item)?;
    let line = fields.line();
    let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let version = VersionUse {
        name: fields.name("name")?,
        subset: fields.flag("subset")?,
        weight: number(fields.whole("weight")?),
        replicas: number(fields.optional_whole("replicas")?.unwrap_or(0)),
        rps: fields.weight("rps")?.unwrap_or(0.0),
        latency_ms: fields.weight("latency_ms")?.unwrap_or(0.0),
        failures: fields.weight("failures")?.unwrap_or(0.0),
    };
    fields.pass_over(&["cluster"]);
    fields.finish()?;
    if version.failures > version.rps {
        return Err(FileError::Failures {
            line,
            path: format!("{path}.failures"),
            failures: version.failures,
            rps: version.rps,
        });
    }
    Ok(version)
}
