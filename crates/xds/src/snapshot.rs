//! Encodes resources for storage: a header with a checksum, followed by framed delta responses, as on the wire.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use prost_types::Any;
use xxhash_rust::xxh3::xxh3_64;

use crate::Kind;
use crate::frame::{Deframer, frame};
use crate::proto::envoy::service::discovery::v3 as wire;

/// The identifier of the format. It is followed by the checksum of the rest, big-endian.
const HEAD: &[u8; 8] = b"maglor-1";

/// An accepted resource, as it was received.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Kept {
    /// The kind.
    pub kind: Kind,
    /// The name by which the resource is subscribed.
    pub name: Arc<str>,
    /// The version of the resource, set by the server.
    pub version: String,
    /// The encoded message, without its type.
    pub body: Bytes,
}

/// The reason why stored resources cannot be decoded.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SnapshotError {
    /// The bytes are truncated or corrupted.
    #[error("checksum mismatch")]
    Checksum,
    /// The bytes have another format.
    #[error("the snapshot was written by another version")]
    Form,
}

/// Encodes resources.
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

/// Decodes resources, without those of unknown kinds.
///
/// # Errors
/// [`SnapshotError`]; no part of the bytes must be used then.
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
