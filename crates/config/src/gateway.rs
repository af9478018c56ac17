//! `maglor-proxy gateway`: a proxy whose listeners are those of a Gateway. The control plane sends the listeners, with
//! their certificates, and the routes.
//!
//! A certificate is stored as two files in the folder of the cache, named by their contents. So the configuration
//! refers to files as usual, contains no keys, and changes with the certificate.

use std::path::Path;

use maglor_balance::hash_bytes;
use serde::{Deserialize, Serialize};

use crate::diagnostic::Errors;
use crate::load::Loaded;
use crate::member::Member;
use crate::raw;
use crate::report::Step;

/// A port of a Gateway, with `routes` for plain text or `chains` for TLS.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// The port that clients connect to.
    pub port: u16,
    /// The name, at the control plane, of the routes of plain-text requests, `NAME:PORT`; `None` = TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routes: Option<String>,
    /// The TLS settings and routes by server name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chains: Vec<Chain>,
}

/// TLS for one server name, and the routes behind it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Chain {
    /// The server name, `a.example.com` or `*.example.com`; `None` = any name, and clients that send none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// The name of the routes at the control plane.
    pub routes: String,
    /// The certificates shown to clients; the first is the default.
    pub certificates: Vec<Certificate>,
}

/// A certificate chain and its private key, both PEM.
#[derive(Clone, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// The certificate chain, with the leaf first.
    pub certificate: String,
    /// The private key: PKCS#8, PKCS#1 or SEC1.
    pub private_key: String,
}

/// Omits the private key.
impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate").finish_non_exhaustive()
    }
}

/// A file that a configuration with [`Port`]s refers to.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    /// The contents of the file.
    pub text: &'a str,
    what: &'static str,
}

impl File<'_> {
    /// Returns the name of the file in the folder of the cache.
    #[must_use]
    pub fn name(&self) -> String {
        format!(
            "{PREFIX}{:016x}.{}",
            hash_bytes(self.text.as_bytes()),
            self.what
        )
    }

    fn path(&self, folder: &Path) -> Option<String> {
        Some(folder.join(self.name()).display().to_string())
    }
}

/// The prefix of the names of these files.
pub const PREFIX: &str = "gateway-";

impl Certificate {
    fn files(&self) -> [File<'_>; 2] {
        let file = |text, what| File { text, what };
        [
            file(self.certificate.as_str(), "crt"),
            file(self.private_key.as_str(), "key"),
        ]
    }

    fn raw(&self, folder: &Path) -> raw::CertificateFiles {
        let [certificate, key] = self.files();
        raw::CertificateFiles {
            certificate: certificate.path(folder),
            private_key: key.path(folder),
        }
    }
}

/// Returns the files that must exist before a configuration with these ports is applied.
pub fn files(ports: &[Port]) -> impl Iterator<Item = File<'_>> {
    let chains = ports.iter().flat_map(|port| &port.chains);
    let certificates = chains.flat_map(|chain| &chain.certificates);
    certificates.flat_map(Certificate::files)
}

impl Port {
    /// Returns the listener for the port, on the address `bind`, with certificates from `folder`.
    pub(crate) fn listener(&self, bind: &str, folder: &Path) -> raw::Listener {
        let listener = raw::Listener {
            name: Some(self.port.to_string()),
            address: Some(format!("{bind}:{}", self.port)),
            ..raw::Listener::default()
        };
        if self.chains.is_empty() {
            return raw::Listener {
                http: Some(http(self.routes.as_deref())),
                ..listener
            };
        }
        let chain = |chain: &Chain| raw::FilterChain {
            name: Some(
                chain
                    .server_name
                    .clone()
                    .unwrap_or_else(|| "any".to_owned()),
            ),
            r#match: chain
                .server_name
                .as_ref()
                .map(|name| raw::FilterChainMatch {
                    server_names: vec![name.clone()],
                    ..raw::FilterChainMatch::default()
                }),
            tls: Some(raw::Short(raw::DownstreamTls {
                certificates: chain
                    .certificates
                    .iter()
                    .map(|one| one.raw(folder))
                    .collect(),
                ..raw::DownstreamTls::default()
            })),
            http: Some(http(Some(&chain.routes))),
            ..raw::FilterChain::default()
        };
        raw::Listener {
            filter_chains: self.chains.iter().map(chain).collect(),
            ..listener
        }
    }
}

/// Returns HTTP settings that are safe at an edge: forwarding headers of clients are replaced.
fn http(routes: Option<&str>) -> raw::Http {
    raw::Http {
        discovery: Some(raw::Discovery {
            host: routes.map(str::to_owned),
            by_virtual_host: Some(true),
            ..raw::Discovery::default()
        }),
        x_forwarded: Some(raw::ForwardedMode::Replace),
        preserve_request_id: Some(false),
        ..raw::Http::default()
    }
}

/// Returns the host of an address in the notation of a listener, such as `[::]` of `[::]:15020`.
pub(crate) fn host(address: Option<&str>) -> &str {
    let split = address.and_then(|address| address.rsplit_once(':'));
    split.map_or("0.0.0.0", |(host, _)| host)
}

/// The flags of `maglor-proxy gateway …`.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// The common flags of every workload of the mesh.
    pub member: Member,
}

impl Gateway {
    /// Validates the configuration for the flags.
    ///
    /// # Errors
    /// All errors; each names its flag.
    pub fn load(&self) -> Result<Loaded, Errors> {
        let mut document = self.member.document();
        if let Some(control_plane) = &mut document.control_plane {
            control_plane.gateway = Some(self.member.node());
        }
        let field = |name: &str| Step::Field(name.into());
        let mut origins = self.member.origins();
        let own = vec![field("control_plane"), field("gateway")];
        origins.push((own, "--cache-dir".to_owned()));
        Member::load(&document, origins)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::workload::{Inbound, Workloads, overlay};

    fn gateway() -> Gateway {
        Gateway {
            member: Member {
                cache_dir: Some("/cache".into()),
                ..Member::example("edge")
            },
        }
    }

    fn ports() -> Vec<Port> {
        let chain = |name: Option<&str>| Chain {
            server_name: name.map(str::to_owned),
            routes: "web.edge.gateway.maglor.dev:443".to_owned(),
            certificates: vec![Certificate {
                certificate: "CERTIFICATE".to_owned(),
                private_key: "KEY".to_owned(),
            }],
        };
        vec![
            Port {
                port: 80,
                routes: Some("web.edge.gateway.maglor.dev:80".to_owned()),
                chains: Vec::new(),
            },
            Port {
                port: 443,
                routes: None,
                chains: vec![chain(Some("*.example.com")), chain(None)],
            },
        ]
    }

    fn known(ports: Vec<Port>) -> Workloads {
        let inbound = Inbound {
            gateway: ports,
            ..Inbound::default()
        };
        Workloads::from([("edge/web-1".into(), Arc::new(inbound))])
    }

    #[test]
    fn listeners_are_those_of_the_gateway() {
        let loaded = gateway().load().unwrap();
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
        assert!(loaded.config.listeners.is_empty());
        let control_plane = loaded.config.control_plane.as_ref().unwrap();
        assert_eq!(control_plane.gateway.as_deref(), Some("edge/web-1"));
        let whole = overlay(&loaded.yaml, &known(ports())).unwrap();
        let names: Vec<&str> = whole
            .config
            .listeners
            .iter()
            .map(|one| &*one.name)
            .collect();
        assert_eq!(names, ["80", "443"]);
        assert_eq!(whole.config.listeners[1].filter_chains.len(), 2);
        assert!(!whole.yaml.contains("KEY"), "{}", whole.yaml);
        let named: Vec<String> = files(&ports()).map(|file| file.name()).collect();
        assert!(
            whole.yaml.contains(&format!("/cache/{}", named[1])),
            "{}",
            whole.yaml
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        let mut homeless = gateway();
        homeless.member.cache_dir = None;
        let errors = homeless.load().unwrap_err().to_string();
        assert!(errors.contains("--cache-dir"), "{errors}");
        let (_, inbound) = known(ports()).pop_first().unwrap();
        inbound.check("edge/web-1", true).unwrap();
        let mut wrong = ports();
        wrong[0].routes = Some("web".to_owned());
        let (_, inbound) = known(wrong).pop_first().unwrap();
        let errors = inbound.check("edge/web-1", true).unwrap_err().to_string();
        assert!(errors.contains("`web` is not `NAME:PORT`"), "{errors}");
    }
}
