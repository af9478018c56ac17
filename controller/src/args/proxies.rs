//! Options of the proxies that the controller deploys.

use std::time::Duration;

use super::time;
use crate::scope::SecretName;

/// Options of the proxies of `ProxyService`s and Gateways.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "ProxyServices and Gateways")]
pub(super) struct Proxies {
    /// Image of the proxies [default: the image of sidecars].
    #[arg(long, value_name = "IMAGE")]
    pub(super) proxy_image: Option<String>,
    /// `imagePullPolicy` of the proxies [default: the policy of sidecars].
    #[arg(long, value_name = "POLICY", value_parser = ["Always", "IfNotPresent", "Never"])]
    pub(super) proxy_pull_policy: Option<String>,
    /// Address of this control plane for the proxies [default: the address for sidecars].
    #[arg(long, value_name = "NAME:PORT")]
    pub(super) proxy_control_plane: Option<String>,
    /// Deploy proxies for ProxyServices. With `false`, the status of each ProxyService reports that ProxyServices are
    /// disabled.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub(super) proxy_services: bool,
    /// Namespaces in which proxies of ProxyServices are deployed [default: all].
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',')]
    pub(super) proxy_services_in: Vec<String>,
    /// Serve Gateways of the Gateway API: deploy their proxies.
    #[arg(long, conflicts_with = "folder")]
    pub(super) gateways: bool,
    /// Namespaces whose Gateways are served [default: all].
    #[arg(
        long,
        value_name = "NAMESPACE",
        value_delimiter = ',',
        requires = "gateways"
    )]
    pub(super) gateways_in: Vec<String>,
    /// A Secret with a certificate that Gateways may use. No other Secrets are read. May be repeated.
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        value_delimiter = ',',
        requires = "gateways"
    )]
    pub(super) gateway_certificates: Vec<SecretName>,
    /// Read all Secrets of type kubernetes.io/tls in the namespaces of Gateways, instead of those of
    /// --gateway-certificates.
    #[arg(long, requires = "gateways", conflicts_with = "gateway_certificates")]
    pub(super) gateway_all_certificates: bool,
    /// Initial number of proxies of a Gateway.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) gateway_replicas: u32,
    /// Type of the Service of a Gateway without the annotation maglor.dev/service-type.
    #[arg(long, value_name = "TYPE", default_value = "LoadBalancer", value_parser = ["ClusterIP", "LoadBalancer", "NodePort"])]
    pub(super) gateway_service_type: String,
    /// Cluster domain of Service names [default: the domain of sidecars].
    #[arg(long, value_name = "DOMAIN")]
    pub(super) cluster_domain: Option<String>,
    /// Averaging window of `mode: Auto`, and the time for which a change must be recommended before it is made; 10s
    /// to 1h. After a change, the mode is kept for five times as long.
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = patience)]
    pub(super) auto_patience: Duration,
}

fn patience(text: &str) -> Result<Duration, String> {
    let patience = time(text)?;
    match (Duration::from_secs(10)..=Duration::from_secs(3600)).contains(&patience) {
        true => Ok(patience),
        false => Err("must be 10s to 1h".to_owned()),
    }
}
