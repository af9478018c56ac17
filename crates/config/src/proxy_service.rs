//! `maglor-proxy service`: the whole configuration of a proxy in front of a service, from flags. The control plane
//! sends the servers and their properties and, without `--forward`, the ports ([`crate::workload::Inbound::forwards`]).
//!
//! Like a sidecar, the proxy adds nothing that is visible to clients or servers: no timeout, no forwarding headers, no
//! rewritten path.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::diagnostic::Errors;
use crate::load::Loaded;
use crate::member::Member;
use crate::raw::{self, HttpProtocol, Short, TimeSpan};
use crate::report::Step;

/// The idle timeout of streams, TCP connections and upgraded connections.
const SILENCE: Duration = Duration::from_secs(24 * 3600);

/// The maximum age of a connection, which may be exceeded by up to a tenth. Without it, clients that keep their
/// connections open would never use new proxies, nor would the load of the first of several proxies decrease.
const CONNECTION_AGE: Duration = Duration::from_secs(300);

/// The flags of `maglor-proxy service …`.
#[derive(Clone, Debug)]
pub struct ProxyService {
    /// The common flags of every workload of the mesh.
    pub member: Member,
    /// `--forward`; empty = the ports come from the control plane.
    pub forwards: Vec<Forward>,
}

/// A port, and the service that it forwards to: `8080=http/web.shop.svc.cluster.local:80`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Forward {
    /// The port to listen on; 0 lets the system choose.
    pub port: u16,
    /// The protocol of the port's connections.
    pub protocol: Spoken,
    /// The service, `NAME:PORT`.
    pub host: String,
}

/// The protocol of connections to a port.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Spoken {
    /// HTTP/1.1 or HTTP/2.
    Http,
    /// HTTP/2 with prior knowledge.
    Http2,
    /// TCP; bytes are forwarded unchanged. Clients that use mutual TLS do so with the servers themselves, which
    /// authenticate and authorize them.
    Tcp,
}

/// The reason why a text is not a valid [`Forward`].
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{text}`: {what}; write PORT=PROTOCOL/NAME:PORT, such as 8080=http/web.shop:80")]
pub struct ForwardError {
    text: String,
    what: &'static str,
}

impl FromStr for Forward {
    type Err = ForwardError;

    fn from_str(text: &str) -> Result<Self, ForwardError> {
        let wrong = |what| ForwardError {
            text: crate::yaml::short(text),
            what,
        };
        let (port, rest) = text
            .split_once('=')
            .ok_or_else(|| wrong("`=` is missing"))?;
        let (protocol, host) = rest
            .split_once('/')
            .ok_or_else(|| wrong("`/` is missing"))?;
        let port = port
            .parse()
            .map_err(|_| wrong("the text does not start with a port"))?;
        let protocol = match protocol {
            "http" => Spoken::Http,
            "http2" => Spoken::Http2,
            "tcp" => Spoken::Tcp,
            _ => return Err(wrong("the protocol is not http, http2 or tcp")),
        };
        Ok(Self {
            port,
            protocol,
            host: host.to_owned(),
        })
    }
}

impl TryFrom<String> for Forward {
    type Error = ForwardError;

    fn try_from(text: String) -> Result<Self, ForwardError> {
        text.parse()
    }
}

impl From<Forward> for String {
    fn from(forward: Forward) -> Self {
        forward.to_string()
    }
}

impl fmt::Display for Spoken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Http2 => "http2",
            Self::Tcp => "tcp",
        })
    }
}

impl fmt::Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}/{}", self.port, self.protocol, self.host)
    }
}

impl Forward {
    /// Returns the listener. `identified` is the name, at the control plane, of a proxy with an identity,
    /// `NAMESPACE/POD`; `None` = no identity.
    pub(crate) fn listener(&self, address: String, identified: Option<&str>) -> raw::Listener {
        let discovery = raw::Discovery {
            host: Some(self.host.clone()),
            ..raw::Discovery::default()
        };
        let listener = raw::Listener {
            name: Some(self.port.to_string()),
            address: Some(address),
            ..raw::Listener::default()
        };
        let version = match self.protocol {
            Spoken::Http => HttpProtocol::Auto,
            Spoken::Http2 => HttpProtocol::Http2,
            Spoken::Tcp => {
                let http = raw::Http {
                    discovery: Some(discovery),
                    ..raw::Http::default()
                };
                return raw::Listener {
                    http: Some(http),
                    tcp: Some(raw::Tcp {
                        idle_timeout: Some(TimeSpan(SILENCE)),
                        ..raw::Tcp::default()
                    }),
                    ..listener
                };
            }
        };
        let only_http2 = version == HttpProtocol::Http2;
        let http = raw::Http {
            discovery: Some(discovery),
            protocol: Some(version),
            path_normalization: Some(raw::PathNormalization::Off),
            x_forwarded: Some(raw::ForwardedMode::Off),
            forwarded: Some(raw::ForwardedMode::Off),
            // The rules of the servers apply to clients, not to proxies in between.
            x_maglor_client: identified.map(|_| true),
            // There is no `Upgrade` in HTTP/2.
            upgrades: only_http2.then(raw::OneOrMany::default),
            stream_idle_timeout: Some(TimeSpan(SILENCE)),
            max_connection_age: Some(TimeSpan(CONNECTION_AGE)),
            ..raw::Http::default()
        };
        let listener = raw::Listener {
            http: Some(http),
            ..listener
        };
        guarded(listener, identified)
    }
}

/// Restricts the accepted clients: with an identity, no client is accepted until the control plane has sent the
/// authorization.
fn guarded(listener: raw::Listener, identified: Option<&str>) -> raw::Listener {
    let Some(node) = identified else {
        return listener;
    };
    raw::Listener {
        workload: Some(node.to_owned()),
        tls: Some(Short(raw::DownstreamTls {
            mesh: Some(raw::MeshMode::Strict),
            ..raw::DownstreamTls::default()
        })),
        authorization: Some(raw::Authorization {
            default: Some(raw::Effect::Deny),
            ..raw::Authorization::default()
        }),
        ..listener
    }
}

impl ProxyService {
    /// Validates the configuration for the flags.
    ///
    /// # Errors
    /// All errors; each names its flag.
    pub fn load(&self) -> Result<Loaded, Errors> {
        Member::load(&self.document(), self.origins())
    }

    fn document(&self) -> raw::Document {
        let identified = self.member.has_identity().then(|| self.member.node());
        let listener = |one: &Forward| {
            let address = self.member.listen(one.port);
            one.listener(address, identified.as_deref())
        };
        let mut document = raw::Document {
            listeners: self.forwards.iter().map(listener).collect(),
            ..self.member.document()
        };
        if let Some(control_plane) = &mut document.control_plane
            && self.forwards.is_empty()
        {
            control_plane.gateway = Some(self.member.node());
        }
        document
    }

    fn origins(&self) -> Vec<(Vec<Step>, String)> {
        let field = |name: &str| Step::Field(name.into());
        let mut origins = self.member.origins();
        let listener = |at| vec![field("listeners"), Step::Index(at)];
        let forwards = self.forwards.iter().enumerate();
        origins.extend(forwards.map(|(at, one)| (listener(at), format!("--forward {one}"))));
        let own = vec![field("control_plane"), field("gateway")];
        origins.push((own, "--cache-dir".to_owned()));
        origins
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::Credentials;

    fn proxy(forwards: &[&str]) -> ProxyService {
        ProxyService {
            member: Member::example("shop"),
            forwards: forwards.iter().map(|text| text.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn every_port_asks_for_its_service() {
        let loaded = proxy(&[
            "8080=http/web-target.shop:80",
            "9090=http2/web-target.shop:90",
        ]);
        let loaded = loaded.load().unwrap();
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
        let hosts = loaded
            .config
            .listeners
            .iter()
            .flat_map(|listener| &listener.filter_chains);
        let hosts: Vec<_> = hosts
            .filter_map(|chain| match &chain.filter {
                crate::Filter::Http(http) => http.discovery.clone()?.host,
                _ => None,
            })
            .collect();
        let expected = [80, 90].map(|port| format!("web-target.shop.svc.cluster.local:{port}"));
        assert_eq!(hosts, expected);
        // What is printed is the same again.
        let again = crate::parse(&loaded.yaml, "printed.yaml").unwrap();
        assert_eq!(again.yaml, loaded.yaml);
    }

    #[test]
    fn no_client_is_accepted_before_the_control_plane_responds() {
        let mut one = proxy(&["8080=http/web-target.shop:80"]);
        one.member.plain_text = false;
        one.member.credentials = Credentials::Token {
            token_file: "token".into(),
            trust_bundle: "ca.pem".into(),
        };
        let loaded = one.load().unwrap();
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
        let listener = &loaded.config.listeners[0];
        assert_eq!(listener.workload.as_deref(), Some("shop/web-1"));
        let rules = listener.authorization.as_ref().unwrap();
        assert_eq!(rules.default, crate::authorization::Effect::Deny);
        let inbound = crate::workload::Inbound {
            tls: Some(raw::MeshMode::Permissive),
            ..crate::workload::Inbound::default()
        };
        let known = [("shop/web-1".into(), std::sync::Arc::new(inbound))];
        let open = crate::workload::overlay(&loaded.yaml, &known.into()).unwrap();
        let listener = &open.config.listeners[0];
        assert!(listener.authorization.is_none());
        let tls = listener.filter_chains[0].tls.as_ref().unwrap();
        let crate::Termination::Mesh(mesh) = tls else {
            panic!("{tls:?}");
        };
        assert_eq!(mesh.mode, crate::tls::MeshMode::Permissive);
    }

    /// The proxy does not check the clients of TCP connections; the servers do.
    #[test]
    fn bytes_pass_as_they_come() {
        let mut one = proxy(&[
            "5432=tcp/web-target.shop:5432",
            "80=http/web-target.shop:80",
        ]);
        one.member.plain_text = false;
        one.member.credentials = Credentials::Token {
            token_file: "token".into(),
            trust_bundle: "ca.pem".into(),
        };
        let loaded = one.load().unwrap();
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
        let [bytes, http] = &loaded.config.listeners[..] else {
            panic!("{:?}", loaded.config.listeners);
        };
        assert!(bytes.workload.is_none() && bytes.authorization.is_none());
        let chain = &bytes.filter_chains[0];
        assert!(chain.tls.is_none() && http.filter_chains[0].tls.is_some());
        let crate::Filter::Detect { http, tcp } = &chain.filter else {
            panic!("{:?}", chain.filter);
        };
        let discovery = http.discovery.as_ref().unwrap();
        let host = Some("web-target.shop.svc.cluster.local:5432");
        assert_eq!((discovery.host.as_deref(), &*tcp.cluster), (host, ""));
        let again = crate::parse(&loaded.yaml, "printed.yaml").unwrap();
        assert_eq!(again.yaml, loaded.yaml);
    }

    /// For a group of Services, the ports come from the control plane, not from flags.
    #[test]
    fn ports_come_from_the_control_plane_where_none_is_given() {
        let mut one = proxy(&[]);
        one.member.plain_text = false;
        one.member.credentials = Credentials::Token {
            token_file: "token".into(),
            trust_bundle: "ca.pem".into(),
        };
        let errors = one.load().unwrap_err().to_string();
        assert!(errors.contains("--cache-dir"), "{errors}");
        one.member.cache_dir = Some("/cache".into());
        let loaded = one.load().unwrap();
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
        assert!(loaded.config.listeners.is_empty());
        let inbound = crate::workload::Inbound {
            tls: Some(raw::MeshMode::Permissive),
            forwards: vec![
                "20000=http/web-target.shop:80".into(),
                "20001=tcp/db-target.shop:5432".into(),
            ],
            ..crate::workload::Inbound::default()
        };
        inbound.check("shop/web-1", true).unwrap();
        let written = serde_json::to_value(&inbound).unwrap();
        assert_eq!(written["forwards"][0], "20000=http/web-target.shop:80");
        let known = [("shop/web-1".into(), std::sync::Arc::new(inbound))];
        let whole = crate::workload::overlay(&loaded.yaml, &known.into()).unwrap();
        let [http, bytes] = &whole.config.listeners[..] else {
            panic!("{:?}", whole.config.listeners);
        };
        assert_eq!((&*http.name, &*bytes.name), ("20000", "20001"));
        // As one that a flag has asked for, once the control plane has spoken.
        assert!(http.authorization.is_none() && bytes.workload.is_none());
        let crate::Termination::Mesh(mesh) = http.filter_chains[0].tls.as_ref().unwrap() else {
            panic!("{:?}", http.filter_chains);
        };
        assert_eq!(mesh.mode, crate::tls::MeshMode::Permissive);
        let wrong = crate::workload::Inbound {
            forwards: vec!["80=ftp/web:80".into()],
            ..crate::workload::Inbound::default()
        };
        let errors = wrong.check("shop/web-1", true).unwrap_err().to_string();
        assert!(
            errors.contains("forwards: `80=ftp/web:80`: the protocol is not"),
            "{errors}"
        );
    }

    #[test]
    fn what_is_wrong_names_its_flag() {
        for (text, expected) in [
            ("8080", "`=` is missing"),
            ("web=http/web:80", "the text does not start with a port"),
            ("80=ftp/web:80", "the protocol is not"),
            ("80=http", "`/` is missing"),
            ("80=tls/web:80", "the protocol is not http, http2 or tcp"),
        ] {
            let error = text.parse::<Forward>().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let errors = proxy(&["8080=http/web"]).load().unwrap_err().to_string();
        assert!(errors.contains("--forward 8080=http/web"), "{errors}");
        assert!(errors.contains("`web` is not `NAME:PORT`"), "{errors}");
    }
}
