//! Options of the commands that list what the controller has configured, or what proxies have in force.

use super::LiveError;
use super::access::{Instance, Pods, Target, Where};
use super::served::Service;
use super::table::Format;

/// Selects the services, and the processes to query.
#[derive(Debug, clap::Args)]
pub(crate) struct Listing {
    /// Service or host, by a unique prefix of its name such as `reviews.shop:9080` [default: all].
    #[arg(value_name = "SERVICE")]
    service: Option<Service>,

    /// Query the proxies of this pod or workload instead of the controller.
    #[arg(long, value_name = "POD|WORKLOAD")]
    of: Option<Target>,

    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub(super) output: Format,

    #[command(flatten)]
    pods: Pods,

    #[command(flatten)]
    place: Where,
}

impl Listing {
    /// Returns whether a service or host of this name is selected.
    pub(super) fn wants(&self, name: &str) -> bool {
        let service = self.service.as_ref();
        service.is_none_or(|service| service.is(name))
    }

    /// Returns the proxies to query; `None` to query the controller.
    pub(super) async fn proxies(&self) -> Result<Option<Vec<Instance>>, LiveError> {
        match self.of.is_some() || self.place.names_proxies() {
            true => {
                let proxies = self.place.proxies(&self.pods, self.of.as_ref());
                proxies.await.map(Some)
            }
            false => Ok(None),
        }
    }

    /// Returns a replica of the controller: all have the same response.
    pub(super) async fn controller(&self) -> Result<Option<Instance>, LiveError> {
        let replicas = self.place.controllers().await?;
        Ok(replicas.into_iter().next())
    }
}
