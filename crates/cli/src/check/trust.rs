//! Checks of trust: the certificate authority, and the trust bundle in every namespace.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::Api;
use kube::api::ListParams;

use super::expiry::expiry;
use super::report::{Advice, Report, some_of};
use crate::live::LiveError;
use crate::live::access::{Cluster, asked};

const IDENTITY: &str = "identity";
/// The Secret of the certificate authority, in the mesh's namespace.
const AUTHORITY: &str = "maglor-ca";
/// The ConfigMap with the trust bundle of members, in every namespace.
const BUNDLE: &str = "maglor-trust-bundle";
const BUNDLE_KEY: &str = "ca.pem";
/// Remaining validity below which a certificate should already have been renewed.
const SOON: Duration = Duration::from_secs(30 * 24 * 3600);

pub(super) async fn check(cluster: &Cluster, report: &mut Report) -> Result<(), LiveError> {
    authority(cluster, report).await?;
    bundles(cluster, report).await
}

async fn authority(cluster: &Cluster, report: &mut Report) -> Result<(), LiveError> {
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), &cluster.mesh_namespace);
    match secrets.get_opt(AUTHORITY).await {
        // Without permission to read the key, the certificate in the same Secret cannot be read, either; the bundle
        // contains it, too.
        Err(kube::Error::Api(status)) if status.code == 403 => {
            report.good(
                IDENTITY,
                format!("you have no access to Secret {AUTHORITY}, as recommended"),
            );
            Ok(())
        }
        Err(error) => Err(asked("the authority's Secret")(error)),
        Ok(None) => {
            report.bad(
                IDENTITY,
                format!("the authority is missing: Secret {AUTHORITY}"),
                Advice(
                    "the controller creates it, except with an external signer; see its log"
                        .to_owned(),
                    "identity.md",
                ),
            );
            Ok(())
        }
        Ok(Some(secret)) => {
            // Keys are skipped. The controller chooses the name of the certificate's field.
            let data = secret.data.unwrap_or_default();
            let certificates = data.values().filter(|value| {
                let text = String::from_utf8_lossy(&value.0);
                text.contains("BEGIN CERTIFICATE")
            });
            let all: Vec<u8> = certificates.flat_map(|value| value.0.clone()).collect();
            expiry(IDENTITY, "the authority's certificate", &all, SOON, report);
            Ok(())
        }
    }
}

async fn bundles(cluster: &Cluster, report: &mut Report) -> Result<(), LiveError> {
    let api: Api<ConfigMap> = Api::all(cluster.client.clone());
    let list = api
        .list(&ListParams::default().fields(&format!("metadata.name={BUNDLE}")))
        .await;
    let list = list.map_err(asked("trust bundles"))?;
    let bundle = |map: &ConfigMap| map.data.as_ref()?.get(BUNDLE_KEY).cloned();
    let by_namespace: BTreeMap<_, _> = list
        .items
        .iter()
        .filter_map(|map| Some((map.metadata.namespace.clone()?, bundle(map)?)))
        .collect();
    let advice = || {
        Advice(
            format!("the controller writes ConfigMap {BUNDLE}; see its log"),
            "identity.md",
        )
    };
    let Some(own) = by_namespace.get(&cluster.mesh_namespace) else {
        let what = format!("`{}` has no trust bundle", cluster.mesh_namespace);
        report.bad(IDENTITY, what, advice());
        return Ok(());
    };
    expiry(IDENTITY, "the trust bundle", own.as_bytes(), SOON, report);
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let namespaces = namespaces.list(&ListParams::default()).await;
    let namespaces = namespaces.map_err(asked("namespaces"))?.items;
    let ending = |one: &Namespace| one.metadata.deletion_timestamp.is_some();
    let names = namespaces.iter().filter(|one| !ending(one));
    let names = names.filter_map(|one| one.metadata.name.clone());
    let wrong: Vec<String> = names
        .filter(|name| by_namespace.get(name) != Some(own))
        .collect();
    match wrong.is_empty() {
        true => report.good(IDENTITY, "every namespace has the trust bundle"),
        false => report.bad(
            IDENTITY,
            format!("trust bundle missing or outdated in {}", some_of(&wrong)),
            advice(),
        ),
    }
    Ok(())
}
