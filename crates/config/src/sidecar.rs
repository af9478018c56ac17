//! `maglor-proxy sidecar`: the whole configuration of a sidecar, from flags; the control plane sends the rest.
//!
//! Until the control plane has sent the authorization of the workload, all clients are denied.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::diagnostic::Errors;
use crate::load::Loaded;
use crate::member::Member;
use crate::raw::{self, Short, TimeSpan};
use crate::report::Step;

/// The flags of `maglor-proxy sidecar …`.
#[derive(Clone, Debug)]
pub struct Sidecar {
    /// The common flags of every workload of the mesh.
    pub member: Member,
    /// `--inbound-port`: the port of the inbound listener.
    pub inbound_port: u16,
    /// `--outbound-port`: the port of the outbound listener.
    pub outbound_port: u16,
    /// `--application`: the address of the application; `None` = the loopback address, with the original port.
    pub application: Option<SocketAddr>,
    /// `--outbound-grace`: the minimum time for which the outbound listener continues after SIGTERM; `None` = the
    /// default.
    pub outbound_grace: Option<TimeSpan>,
    /// `--probe`: the probes that the admin server forwards to the application, by name.
    pub probes: BTreeMap<String, String>,
}

impl Sidecar {
    /// Validates the configuration for the flags.
    ///
    /// # Errors
    /// All errors; each names its flag.
    pub fn load(&self) -> Result<Loaded, Errors> {
        Member::load(&self.document(), self.origins())
    }

    fn document(&self) -> raw::Document {
        let mut document = raw::Document {
            listeners: vec![self.inbound(), self.outbound()],
            outbound_grace: self.outbound_grace,
            ..self.member.document()
        };
        if let Some(admin) = &mut document.admin {
            admin.probes.clone_from(&self.probes);
        }
        document
    }

    fn inbound(&self) -> raw::Listener {
        let strict = raw::DownstreamTls {
            mesh: Some(raw::MeshMode::Strict),
            ..raw::DownstreamTls::default()
        };
        raw::Listener {
            name: Some("inbound".to_owned()),
            address: Some(self.member.listen(self.inbound_port)),
            tls: self.member.has_identity().then_some(Short(strict)),
            authorization: Some(raw::Authorization {
                default: Some(raw::Effect::Deny),
                ..raw::Authorization::default()
            }),
            inbound: Some(raw::Inbound {
                application: self.application.map(|address| address.to_string()),
                discovery: Some(self.member.node()),
                ..raw::Inbound::default()
            }),
            ..raw::Listener::default()
        }
    }

    fn outbound(&self) -> raw::Listener {
        raw::Listener {
            name: Some("outbound".to_owned()),
            address: Some(self.member.listen(self.outbound_port)),
            outbound: Some(raw::Outbound {
                discovery: Some(raw::Discovery {
                    namespace: Some(self.member.namespace.clone()),
                    domain: Some(self.member.cluster_domain.clone()),
                    ..raw::Discovery::default()
                }),
                ..raw::Outbound::default()
            }),
            ..raw::Listener::default()
        }
    }

    fn origins(&self) -> Vec<(Vec<Step>, String)> {
        let field = |name: &str| Step::Field(name.into());
        let listener = |at: usize| vec![field("listeners"), Step::Index(at)];
        let below = |at: usize, names: &[&str]| {
            let names = names.iter().map(|name| field(name));
            listener(at).into_iter().chain(names).collect::<Vec<_>>()
        };
        let member = &self.member;
        let mut origins = member.origins();
        for (name, probe) in &self.probes {
            origins.push((
                vec![field("admin"), field("probes"), field(name)],
                format!("--probe {name}={}", crate::yaml::short(probe)),
            ));
        }
        origins.extend([
            (vec![field("outbound_grace")], "--outbound-grace".to_owned()),
            (listener(0), format!("--inbound-port {}", self.inbound_port)),
            (
                listener(1),
                format!("--outbound-port {}", self.outbound_port),
            ),
            (
                below(0, &["inbound", "application"]),
                "--application".to_owned(),
            ),
            (
                below(0, &["inbound", "discovery"]),
                format!(
                    "--pod-namespace {} --pod-name {}",
                    member.namespace, member.name
                ),
            ),
            (
                below(1, &["outbound", "discovery", "namespace"]),
                format!("--pod-namespace {}", crate::yaml::short(&member.namespace)),
            ),
            (
                below(1, &["outbound", "discovery", "domain"]),
                format!(
                    "--cluster-domain {}",
                    crate::yaml::short(&member.cluster_domain)
                ),
            ),
        ]);
        origins
    }
}
