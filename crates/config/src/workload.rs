//! A workload's inbound listeners from a control plane, merged into a configuration.
//!
//! For a listener with `inbound.discovery`, the control plane's TLS mode, ports and authorization replace the
//! configured ones; for a listener with `workload`, only the TLS mode and authorization do. The result is validated
//! like a file.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::gateway::{self, Port};
use crate::load::{Loaded, finish};
use crate::proxy_service::Forward;
use crate::resource::{self, PARTS};
use crate::source::Source;
use crate::{Errors, check, mesh_tracing, raw};

/// The settings of the inbound listener of one workload.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Inbound {
    /// The clients that mutual TLS accepts; `None` = plain text.
    pub tls: Option<raw::MeshMode>,
    /// The protocols of the application's ports; `None` = those of the listener.
    pub ports: Option<raw::Pairs<raw::Short<raw::ApplicationPort>>>,
    /// The authorization; `None` = all clients are allowed.
    pub authorization: Option<raw::Authorization>,
    /// SPIFFE IDs of proxies that are trusted to name the client of a request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegates: Vec<String>,
    /// The handling of outbound connections to unknown destinations, if the file does not set it; `None` = they are
    /// forwarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<raw::Unknown>,
    /// The export of spans, if the file does not set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracing: Option<raw::MeshTracing>,
    /// Whether the stories of failed and slow requests are kept, if the file does not set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stories: Option<bool>,
    /// The ports of the Gateway that the workload serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateway: Vec<Port>,
    /// The ports of the group of Services that the workload is a proxy of, each the text of a [`Forward`]. They are
    /// parsed only where they are validated and used, to keep the code of the proxy small.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forwards: Vec<String>,
}

/// The known workloads, by name at the control plane.
pub type Workloads = BTreeMap<Arc<str>, Arc<Inbound>>;

impl Inbound {
    /// Validates the settings separately from their listener.
    ///
    /// # Errors
    ///
    /// All errors, by field.
    pub fn check(&self, name: &str, has_identity: bool) -> Result<(), Errors> {
        let place = format!("inbound `{}`", crate::yaml::short(name));
        let mut listener = raw::Listener {
            name: Some("inbound".to_owned()),
            address: Some("127.0.0.1:0".to_owned()),
            inbound: Some(raw::Inbound::default()),
            ..raw::Listener::default()
        };
        self.put(&mut listener, has_identity);
        if let Some(tracing) = &self.tracing {
            mesh_tracing::check(tracing, &place)?;
        }
        let ports = self.own("127.0.0.1", Path::new(""), has_identity.then_some(name));
        let document = raw::Document {
            identity: has_identity.then(raw::Identity::default),
            control_plane: Some(raw::ControlPlane::default()),
            listeners: std::iter::once(listener).chain(ports).collect(),
            ..raw::Document::default()
        };
        resource::judge(&document, PARTS, &place, |at, scope| {
            for error in self
                .forwards
                .iter()
                .filter_map(|text| text.parse::<Forward>().err())
            {
                at.field("forwards").error(error.to_string());
            }
            let each = document.listeners.iter();
            each.map(|listener| check::one_listener(listener, at, scope))
                .collect::<Option<Vec<_>>>()
        })
        .map(drop)
    }

    /// Returns the names of the clusters for which the workload hosts ledgers.
    pub fn clusters(&self) -> impl Iterator<Item = &str> {
        let ports = self.ports.iter().flat_map(|ports| &ports.0);
        ports.filter_map(|(_, port)| port.0.load_reports.as_ref()?.cluster.as_deref())
    }

    /// Returns the listeners that are not in a file, on the address `bind`. `identified` is the name of a workload with
    /// an identity.
    fn own(&self, bind: &str, folder: &Path, identified: Option<&str>) -> Vec<raw::Listener> {
        // A gateway's clients are no members of the mesh: TLS is that of the port, and they have no identity.
        let ports = self.gateway.iter().map(|port| raw::Listener {
            authorization: self.authorization.clone(),
            ..port.listener(bind, folder)
        });
        let forwards = self.forwards.iter().filter_map(|text| {
            let forward: Forward = text.parse().ok()?;
            let mut listener = forward.listener(format!("{bind}:{}", forward.port), identified);
            if listener.workload.is_some() {
                self.put(&mut listener, true);
            }
            Some(listener)
        });
        ports.chain(forwards).collect()
    }

    fn put(&self, listener: &mut raw::Listener, has_identity: bool) {
        let plain = self.tls == Some(raw::MeshMode::Permissive) && !has_identity;
        listener.tls = self.tls.filter(|_| !plain).map(|mode| {
            raw::Short(raw::DownstreamTls {
                mesh: Some(mode),
                delegates: self.delegates.clone(),
                ..raw::DownstreamTls::default()
            })
        });
        listener.authorization.clone_from(&self.authorization);
        if let Some(inbound) = &mut listener.inbound {
            inbound.ports.clone_from(&self.ports);
        }
    }
}

/// Merges the known workloads into a configuration, given as YAML. Clusters that the control plane
/// has not sent yet may be missing.
///
/// # Errors
/// All errors in the result.
pub fn overlay(yaml: &str, known: &Workloads) -> Result<Loaded, Errors> {
    let mut document: raw::Document = resource::read(yaml, "configuration")?;
    let has_identity = document.identity.is_some();
    let (mut unknown, mut tracing, mut stories) = (None, None, None);
    for listener in &mut document.listeners {
        let inbound = listener.inbound.as_ref();
        let name = inbound.and_then(|one| one.discovery.as_deref());
        let name = name.or(listener.workload.as_deref());
        if let Some(inbound) = name.and_then(|name| known.get(name)) {
            inbound.put(listener, has_identity);
            unknown = unknown.or(inbound.unknown);
            tracing = tracing.or(inbound.tracing.as_ref());
            stories = stories.or(inbound.stories);
        }
    }
    let outbound = document.listeners.iter_mut();
    for outbound in outbound.filter_map(|listener| listener.outbound.as_mut()) {
        if outbound.discovery.is_some() {
            outbound.unknown = outbound.unknown.or(unknown);
        }
    }
    let control_plane = document.control_plane.as_ref();
    let own =
        control_plane.and_then(|one| Some((one.gateway.as_deref()?, one.cache_dir.as_deref()?)));
    if let Some((name, folder)) = own
        && let Some(inbound) = known.get(name)
    {
        let admin = document
            .admin
            .as_ref()
            .and_then(|admin| admin.address.as_deref());
        let bind = gateway::host(admin);
        let listeners = inbound.own(bind, Path::new(folder), has_identity.then_some(name));
        document.listeners.extend(listeners);
        tracing = tracing.or(inbound.tracing.as_ref());
        stories = stories.or(inbound.stories);
    }
    document.stories = document.stories.or(stories);
    if let Some(tracing) = tracing {
        mesh_tracing::add(tracing, &mut document);
    }
    let name = "configuration with the inbound listeners of the control plane";
    finish(&document, PARTS, Vec::new(), &Source::Resource(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::{Certificate, Chain};

    #[test]
    fn a_gateway_s_ports_have_the_authorization_of_its_workload() {
        let workload = Inbound {
            authorization: Some(raw::Authorization {
                default: Some(raw::Effect::Deny),
                // Clients of a gateway have no identity, so it matches none; that is no error of the others.
                rules: vec![raw::AuthorizationRule {
                    name: Some("members".to_owned()),
                    action: Some(raw::AuthorizationAction::Allow),
                    from: vec![raw::AuthorizationSource {
                        namespaces: Some(raw::OneOrMany(vec!["shop".to_owned()])),
                        ..raw::AuthorizationSource::default()
                    }],
                    ..raw::AuthorizationRule::default()
                }],
                ..raw::Authorization::default()
            }),
            gateway: vec![
                Port {
                    port: 8080,
                    routes: Some("web.edge:8080".to_owned()),
                    ..Port::default()
                },
                Port {
                    port: 8443,
                    chains: vec![Chain {
                        server_name: Some("shop.example".to_owned()),
                        certificates: vec![Certificate::default()],
                        routes: "web.edge:8443".to_owned(),
                    }],
                    ..Port::default()
                },
            ],
            ..Inbound::default()
        };
        assert_eq!(workload.check("edge/gateway", true), Ok(()));
        let ports = workload.own("127.0.0.1", Path::new(""), Some("edge/gateway"));
        let ports: Vec<_> = ports.iter().map(|one| &one.authorization).collect();
        assert_eq!(ports, [&workload.authorization; 2]);
    }
}
