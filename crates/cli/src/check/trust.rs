//! Checks of trust: the webhook's certificate, the authority, and the trust bundle in every namespace.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::Api;
use kube::api::ListParams;
use maglor_identity::x509;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};

use super::report::{Advice, Report, some_of};
use crate::live::LiveError;
use crate::live::access::{Cluster, Instance, asked};

const WEBHOOK: &str = "webhook";
const IDENTITY: &str = "identity";
/// The label selector of our webhooks.
const OURS: &str = "app.kubernetes.io/part-of=maglor";
/// The Secret of the authority, in the mesh's namespace.
const AUTHORITY: &str = "maglor-ca";
/// The trust bundle of members, in every namespace.
const BUNDLE: &str = "maglor-trust-bundle";
const BUNDLE_KEY: &str = "ca.pem";
/// The remaining validity below which it should have been renewed.
const SOON_WEBHOOK: Duration = Duration::from_secs(24 * 3600);
const SOON_AUTHORITY: Duration = Duration::from_secs(30 * 24 * 3600);

pub(super) async fn check(
    cluster: &Cluster,
    replicas: &[Instance],
    report: &mut Report,
) -> Result<(), LiveError> {
    webhooks(cluster, replicas, report).await?;
    authority(cluster, report).await?;
    bundles(cluster, report).await
}

async fn webhooks(
    cluster: &Cluster,
    replicas: &[Instance],
    report: &mut Report,
) -> Result<(), LiveError> {
    let advice = |hint: &str| Advice(hint.to_owned(), "injection.md");
    let api: Api<MutatingWebhookConfiguration> = Api::all(cluster.client.clone());
    let found = api.list(&ListParams::default().labels(OURS)).await;
    let found = found.map_err(asked("webhooks"))?.items;
    if found.is_empty() {
        let hint = "proxies are not injected; `maglor install` creates the webhook";
        report.warning(WEBHOOK, "the injection webhook is missing", advice(hint));
    }
    for configuration in found {
        let hooks = configuration.webhooks.unwrap_or_default();
        // All of them have the same certificate.
        let Some(hook) = hooks.first() else { continue };
        let Some(bundle) = &hook.client_config.ca_bundle else {
            let hint = "the controller writes it; see its log";
            report.bad(
                WEBHOOK,
                format!("{} has no caBundle", hook.name),
                advice(hint),
            );
            continue;
        };
        expiry(
            WEBHOOK,
            &format!("caBundle of {}", hook.name),
            &bundle.0,
            SOON_WEBHOOK,
            report,
        );
        for replica in replicas {
            match handshake(hook, &bundle.0, replica).await {
                Ok(()) => report.good(
                    WEBHOOK,
                    format!(
                        "the certificate of {} matches the caBundle of {}",
                        replica.name, hook.name
                    ),
                ),
                Err(why) => report.bad(
                    WEBHOOK,
                    format!("{}: {why}", replica.name),
                    advice("the API server cannot call the webhook; see the controller's log"),
                ),
            }
        }
    }
    Ok(())
}

/// Performs a TLS handshake with a replica as the API server does.
async fn handshake(
    hook: &MutatingWebhook,
    bundle: &[u8],
    replica: &Instance,
) -> Result<(), String> {
    let Some(service) = &hook.client_config.service else {
        return Err("the webhook refers to no Service".to_owned());
    };
    let port = service
        .port
        .and_then(|port| u16::try_from(port).ok())
        .unwrap_or(443);
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle).flatten() {
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = format!("{}.{}.svc", service.name, service.namespace);
    let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
    let stream = replica.at_port(port).admin.connect().await;
    let stream = stream.map_err(|error| error.to_string())?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let done = tokio::time::timeout(Duration::from_secs(10), connector.connect(name, stream)).await;
    match done {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("TLS at port {port}: {error}")),
        Err(_) => Err(format!("TLS at port {port}: no answer")),
    }
}

/// Checks the validity of the certificates of a PEM text.
fn expiry(about: &'static str, what: &str, pem: &[u8], soon: Duration, report: &mut Report) {
    let advice = || {
        Advice(
            "the controller renews it; see its log".to_owned(),
            "identity.md",
        )
    };
    let certificates = match x509::read_pem(pem) {
        Ok(certificates) => certificates,
        Err(error) => return report.bad(about, format!("{what}: {error}"), advice()),
    };
    let last = certificates.iter().map(x509::Certificate::expires).max();
    let Some(last) = last else {
        return report.bad(about, format!("{what} has no certificate"), advice());
    };
    let date = humantime::format_rfc3339_seconds(last);
    match last.duration_since(SystemTime::now()) {
        Err(_) => report.bad(about, format!("{what} has expired: {date}"), advice()),
        Ok(left) if left < soon => {
            report.warning(about, format!("{what} expires soon: {date}"), advice());
        }
        Ok(_) => report.good(about, format!("{what} is valid until {date}")),
    }
}

async fn authority(cluster: &Cluster, report: &mut Report) -> Result<(), LiveError> {
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), &cluster.mesh_namespace);
    match secrets.get_opt(AUTHORITY).await {
        // Without permission to read the key, the certificate in the same Secret is not readable; the bundle
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
            // Keys are left out; the name of the certificate's field is the controller's choice.
            let data = secret.data.unwrap_or_default();
            let certificates = data.values().filter(|value| {
                let text = String::from_utf8_lossy(&value.0);
                text.contains("BEGIN CERTIFICATE")
            });
            let all: Vec<u8> = certificates.flat_map(|value| value.0.clone()).collect();
            expiry(
                IDENTITY,
                "the authority's certificate",
                &all,
                SOON_AUTHORITY,
                report,
            );
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
    expiry(
        IDENTITY,
        "the trust bundle",
        own.as_bytes(),
        SOON_AUTHORITY,
        report,
    );
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
