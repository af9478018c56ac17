//! Checks of the injection webhook: it exists, and its certificate matches those of the replicas.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use kube::Api;
use kube::api::ListParams;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};

use super::expiry::expiry;
use super::report::{Advice, Report};
use crate::live::LiveError;
use crate::live::access::{Cluster, Instance, asked};

const ABOUT: &str = "webhook";
/// The label selector of the mesh's webhooks.
const OURS: &str = "app.kubernetes.io/part-of=maglor";
/// Remaining validity below which the certificate should already have been renewed.
const SOON: Duration = Duration::from_secs(24 * 3600);

/// Checks that the webhook exists, and that the API server can use it to call each replica.
pub(super) async fn check(
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
        report.warning(ABOUT, "the injection webhook is missing", advice(hint));
    }
    for configuration in found {
        let hooks = configuration.webhooks.unwrap_or_default();
        // All webhooks have the same certificate.
        let Some(hook) = hooks.first() else { continue };
        let Some(bundle) = &hook.client_config.ca_bundle else {
            let hint = "the controller writes it; see its log";
            report.bad(
                ABOUT,
                format!("{} has no caBundle", hook.name),
                advice(hint),
            );
            continue;
        };
        expiry(
            ABOUT,
            &format!("caBundle of {}", hook.name),
            &bundle.0,
            SOON,
            report,
        );
        for replica in replicas {
            match handshake(hook, &bundle.0, replica).await {
                Ok(()) => report.good(
                    ABOUT,
                    format!(
                        "the certificate of {} matches the caBundle of {}",
                        replica.name, hook.name
                    ),
                ),
                Err(why) => report.bad(
                    ABOUT,
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
