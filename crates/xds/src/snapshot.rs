//! Resources as bytes, to be kept for later: a head with a checksum, then delta responses as they come
//! over the wire, framed.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use prost_types::Any;
use xxhash_rust::xxh3::xxh3_64;

use crate::Kind;
use crate::frame::{Deframer, frame};
use crate::proto::envoy::service::discovery::v3 as wire;

/// The form, then the checksum of what follows, big-endian.
const HEAD: &[u8; 8] = b"maglor-1";

/// A resource that was in force, as it came.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Kept {
    /// What it is.
    pub kind: Kind,
    /// The name that it was asked for by.
    pub name: Arc<str>,
    /// Its version, as the server counts.
    pub version: String,
    /// The message, without type.
    pub body: Bytes,
}

/// Why bytes are not resources.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SnapshotError {
    /// They end too early, or were changed.
    #[error("checksum mismatch")]
    Checksum,
    /// They are of another form, or of no form at all.
    #[error("written by another version")]
    Form,
}

/// Resources as bytes.
#[must_use]
pub fn write(resources: &[Kept]) -> Vec<u8> {
    let mut by_kind: BTreeMap<Kind, Vec<wire::Resource>> = BTreeMap::new();
    for kept in resources {
        let resource = wire::Resource {
            name: kept.name.to_string(),
            version: kept.version.clone(),
            resource: Some(Any {
                type_url: kept.kind.type_url().to_owned(),
                value: kept.body.to_vec(),
            }),
        };
        by_kind.entry(kept.kind).or_default().push(resource);
    }
    let mut body = Vec::new();
    for (kind, resources) in by_kind {
        body.extend_from_slice(&frame(&wire::DeltaDiscoveryResponse {
            type_url: kind.type_url().to_owned(),
            resources,
            ..wire::DeltaDiscoveryResponse::default()
        }));
    }
    let mut bytes = HEAD.to_vec();
    bytes.extend_from_slice(&xxh3_64(&body).to_be_bytes());
    bytes.append(&mut body);
    bytes
}

/// The resources that bytes hold; those of kinds that are not known are left out.
///
/// # Errors
/// [`SnapshotError`]; then nothing of it must be used.
pub fn read(bytes: &[u8]) -> Result<Vec<Kept>, SnapshotError> {
    let rest = bytes.strip_prefix(HEAD).ok_or(SnapshotError::Form)?;
    let (sum, body) = rest.split_first_chunk().ok_or(SnapshotError::Checksum)?;
    if u64::from_be_bytes(*sum) != xxh3_64(body) {
        return Err(SnapshotError::Checksum);
    }
    let mut deframer = Deframer::new(body.len());
    deframer.put(body);
    let mut found = Vec::new();
    while let Some(message) = deframer.message().map_err(|_| SnapshotError::Form)? {
        let response = wire::DeltaDiscoveryResponse::decode(message);
        let response = response.map_err(|_| SnapshotError::Form)?;
        let Some(kind) = Kind::of(&response.type_url) else {
            continue;
        };
        let kept = response.resources.into_iter().map(|resource| Kept {
            kind,
            name: resource.name.into(),
            version: resource.version,
            body: resource
                .resource
                .map(|any| any.value)
                .unwrap_or_default()
                .into(),
        });
        found.extend(kept);
    }
    match deframer.is_within() {
        true => Err(SnapshotError::Form),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_come_back_and_what_was_changed_does_not() {
        let kept = |kind, name: &str| Kept {
            kind,
            name: name.into(),
            version: format!("v-{name}"),
            body: Bytes::from(format!("body of {name}")),
        };
        let all = [
            kept(Kind::Cluster, "a"),
            kept(Kind::Cluster, "b"),
            kept(Kind::Listener, "a"),
        ];
        let bytes = write(&all);
        assert_eq!(read(&bytes).unwrap(), all);
        for at in 0..bytes.len() {
            assert!(read(&bytes[..at]).is_err(), "cut at {at}");
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(read(&changed).is_err(), "changed at {at}");
        }
        assert_eq!(read(&write(&[])), Ok(Vec::new()));
    }
}
