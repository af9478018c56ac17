//! The addresses of an application's instances.
//!
//! ```json
//! {"instances": [{"host": "s0", "listen": "127.0.0.1:20000", "outbound": "127.0.0.1:20001"}]}
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::workmodel::WorkModel;

/// All instances.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Deployment {
    /// In the order in which they are counted.
    pub instances: Vec<Placed>,
}

/// One instance.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Placed {
    /// The `url` of the services that it serves.
    pub host: String,
    /// Its listening address; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// The proxy that it calls through, by the `Host` of the request. Absent: it calls an instance
    /// itself, a random one for each call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outbound: Option<SocketAddr>,
    /// It runs elsewhere, or is a Service's address: it is called there and not started here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remote: bool,
}

impl Deployment {
    /// Parses a file's text and validates it against the services.
    ///
    /// # Errors
    ///
    /// The error, in one line.
    pub fn parse(text: &str, model: &WorkModel) -> Result<Self, String> {
        let deployment: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let hosts = model.hosts();
        for (index, placed) in deployment.instances.iter().enumerate() {
            if !hosts.contains_key(placed.host.as_str()) {
                let host = &placed.host;
                return Err(format!(
                    "instances[{index}].host: no service of the work model has the url `{host}`"
                ));
            }
        }
        let placed = deployment.instances.iter();
        let placed: BTreeSet<_> = placed.map(|one| one.host.as_str()).collect();
        if let Some(host) = hosts.keys().find(|host| !placed.contains(*host)) {
            return Err(format!("instances: there is none of `{host}`"));
        }
        Ok(deployment)
    }

    /// Returns the addresses of the instances, by host.
    #[must_use]
    pub fn addresses(&self) -> BTreeMap<String, Vec<SocketAddr>> {
        let mut addresses = BTreeMap::<_, Vec<_>>::new();
        for placed in &self.instances {
            addresses
                .entry(placed.host.clone())
                .or_default()
                .push(placed.listen);
        }
        addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Service;

    #[test]
    fn what_does_not_fit_the_model_is_refused() {
        let service = Service::exponential(1, 0.01);
        let model = WorkModel::new([("a".to_owned(), service.clone()), ("b".to_owned(), service)]);
        let instance =
            |host: &str| format!("{{\"host\": \"{host}\", \"listen\": \"127.0.0.1:1\"}}");
        let text = |hosts: &[&str]| {
            let list: Vec<_> = hosts.iter().map(|host| instance(host)).collect();
            format!("{{\"instances\": [{}]}}", list.join(", "))
        };
        let good = Deployment::parse(&text(&["a", "b", "b"]), &model).unwrap();
        assert_eq!(good.addresses()["b"].len(), 2);
        for (hosts, needle) in [
            (&["a"][..], "none of `b`"),
            (&["a", "b", "c"], "instances[2].host: no service"),
        ] {
            let error = Deployment::parse(&text(hosts), &model).unwrap_err();
            assert!(error.contains(needle), "{error}");
        }
        let error = Deployment::parse("{\"instances\": [\n{\"host\": 1}]}", &model).unwrap_err();
        assert!(error.contains("line 2"), "{error}");
    }
}
