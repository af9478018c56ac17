//! Options of the proxies that the controller deploys.

use std::time::Duration;

use super::time;
use crate::gateway;
use crate::proxy_service;
use crate::revision::Revision;
use crate::scope::{Certificates, Scope, SecretName};

/// Options of the proxies of `ProxyService`s and Gateways.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "ProxyServices and Gateways")]
pub(super) struct Proxies {
    /// Image of the proxies [default: the image of sidecars].
    #[arg(long, value_name = "IMAGE")]
    proxy_image: Option<String>,
    /// `imagePullPolicy` of the proxies [default: the policy of sidecars].
    #[arg(long, value_name = "POLICY", value_parser = ["Always", "IfNotPresent", "Never"])]
    proxy_pull_policy: Option<String>,
    /// Address of this control plane for the proxies [default: the address for sidecars].
    #[arg(long, value_name = "NAME:PORT")]
    proxy_control_plane: Option<String>,
    /// Deploy proxies for ProxyServices. With `false`, the status of each ProxyService reports that ProxyServices are
    /// disabled.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    proxy_services: bool,
    /// Namespaces in which proxies of ProxyServices are deployed [default: all].
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',')]
    proxy_services_in: Vec<String>,
    /// Serve Gateways of the Gateway API: deploy their proxies.
    #[arg(long)]
    gateways: bool,
    /// Namespaces whose Gateways are served [default: all].
    #[arg(
        long,
        value_name = "NAMESPACE",
        value_delimiter = ',',
        requires = "gateways"
    )]
    gateways_in: Vec<String>,
    /// A Secret with a certificate that Gateways may use. No other Secrets are read. May be repeated.
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        value_delimiter = ',',
        requires = "gateways"
    )]
    gateway_certificates: Vec<SecretName>,
    /// Read all Secrets of type kubernetes.io/tls in the namespaces of Gateways, instead of those of
    /// --gateway-certificates.
    #[arg(long, requires = "gateways", conflicts_with = "gateway_certificates")]
    gateway_all_certificates: bool,
    /// Initial number of proxies of a Gateway.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    gateway_replicas: u32,
    /// Type of the Service of a Gateway without the annotation maglor.dev/service-type.
    #[arg(long, value_name = "TYPE", default_value = "LoadBalancer", value_parser = ["ClusterIP", "LoadBalancer", "NodePort"])]
    gateway_service_type: String,
    /// Cluster domain of Service names [default: the domain of sidecars].
    #[arg(long, value_name = "DOMAIN")]
    cluster_domain: Option<String>,
    /// Averaging window of `mode: Auto`, and the time for which a change must be recommended before it is made; 10s
    /// to 1h. After a change, the mode is kept for five times as long.
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = patience)]
    pub(super) auto_patience: Duration,
}

impl Proxies {
    /// Returns the namespaces where proxies may be deployed for `ProxyService`s. A revision leaves this to the
    /// default control plane.
    pub(super) fn inserts(&self, revision: &Revision) -> Scope {
        let on = self.proxy_services && revision.is_default();
        Scope::new(on, &self.proxy_services_in)
    }

    /// Returns the settings of all proxies, and those of Gateways; the latter are `None` if Gateways are not served.
    pub(super) fn settings(
        self,
        sidecar: &maglor_inject::Settings,
        trust_domain: Option<String>,
    ) -> (proxy_service::Settings, Option<Box<gateway::run::Options>>) {
        let or = |input: &Option<String>, other: &String| input.as_ref().unwrap_or(other).clone();
        let policy = serde_json::to_value(sidecar.image_pull_policy);
        let policy = policy
            .ok()
            .and_then(|policy| Some(policy.as_str()?.to_owned()));
        let settings = proxy_service::Settings {
            trust_domain,
            // Assumed until the version of the cluster is known.
            sleeps: true,
            prometheus_annotations: sidecar.prometheus_annotations,
            image: or(&self.proxy_image, &sidecar.image),
            pull_policy: self.proxy_pull_policy.clone().or(policy),
            control_plane: or(&self.proxy_control_plane, &sidecar.control_plane),
            cluster_domain: or(&self.cluster_domain, &sidecar.cluster_domain),
        };
        let gateways = self.gateways.then(|| self.gateways(settings.clone()));
        (settings, gateways)
    }

    fn gateways(self, settings: proxy_service::Settings) -> Box<gateway::run::Options> {
        let scope = Scope::new(true, &self.gateways_in);
        let certificates = match self.gateway_all_certificates {
            true => Certificates::All(scope.clone()),
            false => Certificates::Named(self.gateway_certificates.into_iter().collect()),
        };
        Box::new(gateway::run::Options {
            settings,
            service_type: self.gateway_service_type,
            replicas: self.gateway_replicas,
            scope,
            certificates,
        })
    }
}

fn patience(text: &str) -> Result<Duration, String> {
    let patience = time(text)?;
    match (Duration::from_secs(10)..=Duration::from_secs(3600)).contains(&patience) {
        true => Ok(patience),
        false => Err("must be 10s to 1h".to_owned()),
    }
}
