//! Updates the CustomResourceDefinitions of the mesh to this version.
//!
//! Helm installs a chart's definitions once and never changes them, so the chart applies them with a hook before each
//! upgrade and rollback. Definitions of a later version are kept: they only have more fields, and with an older
//! definition resources would lose these fields at their next write.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use serde_json::json;

use super::{FIELD_MANAGER, LifecycleError, Say, asked};
use crate::conditional_writes::{Manager, Precondition};
use crate::crd::{self, VERSION_KEY};

/// A version in a form that can be compared: major, minor, patch.
type Version = (u64, u64, u64);

/// Applies the definitions of this version, except those that are installed in a later version.
///
/// # Errors
/// If the API server rejects a definition or does not respond.
pub async fn apply(client: &Client, say: Say<'_>) -> Result<(), LifecycleError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for own in crd::definitions()? {
        let name = own.metadata.name.clone().unwrap_or_default();
        let there = api.get_opt(&name).await.map_err(asked(&name))?;
        if let Some(later) = there.as_ref().and_then(|there| later(there, &own)) {
            say(&format!(
                "{name}: kept, because it has the later version {later}"
            ));
            continue;
        }
        // There is no precondition, because a newer definition may replace any older one.
        let any = Precondition::default();
        let applied = Manager(FIELD_MANAGER).apply(&api, &name, json!(own), Some(&any));
        let applied = applied.await.map_err(asked(&name))?;
        let version = |of: &CustomResourceDefinition| of.metadata.resource_version.clone();
        match there.as_ref().map(version) == Some(version(&applied)) {
            true => say(&format!("{name}: unchanged")),
            false => say(&format!("{name}: applied")),
        }
    }
    Ok(())
}

/// Returns the version of an installed definition if it is later than this version.
fn later<'a>(
    there: &'a CustomResourceDefinition,
    own: &CustomResourceDefinition,
) -> Option<&'a str> {
    let text = annotation(there)?;
    let (there, own) = (version(text)?, version(annotation(own)?)?);
    (there > own).then_some(text)
}

fn annotation(definition: &CustomResourceDefinition) -> Option<&str> {
    let annotations = definition.metadata.annotations.as_ref()?;
    annotations.get(VERSION_KEY).map(String::as_str)
}

/// Parses a version, ignoring the part that begins with `-` or `+` (Semantic Versioning 2.0.0).
fn version(text: &str) -> Option<Version> {
    let core = text.split(['-', '+']).next()?;
    let mut numbers = core.split('.').map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some((next()?, next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_later_version_is_kept() {
        let own = crd::definitions().unwrap().remove(0);
        let of = |version: Option<&str>| {
            let mut there = own.clone();
            let annotations = there.metadata.annotations.as_mut().unwrap();
            match version {
                Some(version) => annotations.insert(VERSION_KEY.to_owned(), version.to_owned()),
                None => annotations.remove(VERSION_KEY),
            };
            there
        };
        assert_eq!(annotation(&own), Some(env!("CARGO_PKG_VERSION")));
        for kept in ["999.0.0", "0.999.0", "999.0.0-rc.1"] {
            assert_eq!(later(&of(Some(kept)), &own), Some(kept));
        }
        for replaced in [None, Some("0.0.1"), Some("some"), annotation(&own)] {
            assert_eq!(later(&of(replaced), &own), None, "{replaced:?}");
        }
    }
}
