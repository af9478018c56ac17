//! Validates TLS settings. The proxy checks later whether the files exist and match each other.

use maglor_identity::SpiffeId;

use super::{Scope, host, rule};
use crate::report::At;
use crate::tls::{CertificateFiles, MeshMode, MeshTermination, MinimumTlsVersion};
use crate::{DownstreamTls, HttpFilter, Origination, Termination, UpstreamTls, raw};

/// The protocol inside TLS, which decides which ALPN protocols are possible.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Behind {
    Http(crate::listener::HttpProtocol),
    Tcp,
}

impl Behind {
    /// Returns the protocol of a filter chain: HTTP if the chain has an HTTP filter.
    pub(super) fn of(http: Option<&HttpFilter>) -> Self {
        http.map_or(Self::Tcp, |http| Self::Http(http.protocol))
    }
}

/// Validates the TLS termination of a filter chain, by certificates or by the proxy's identity.
pub(super) fn termination(
    raw: &raw::DownstreamTls,
    at: &At<'_>,
    behind: Behind,
    scope: &Scope<'_>,
) -> Termination {
    let delegates = &at.field("delegates");
    let Some(mode) = raw.mesh else {
        if !raw.delegates.is_empty() {
            delegates
                .error("`delegates` has no effect without `mesh`: clients are not authenticated")
                .on_key()
                .help("remove `delegates`, or write `mesh: strict`");
        }
        return Termination::Certificates(downstream(raw, at, behind));
    };
    refuse_beside_mesh(&raw.besides_mesh(), at);
    scope.needs_identity(at);
    Termination::Mesh(MeshTermination {
        mode: match mode {
            raw::MeshMode::Permissive => MeshMode::Permissive,
            raw::MeshMode::Strict => MeshMode::Strict,
        },
        alpn: alpn(raw.alpn.as_deref(), &at.field("alpn"), behind, true),
        delegates: spiffe_ids(&raw.delegates, delegates),
    })
}

/// Validates the TLS origination of a cluster, by server names or by the proxy's identity.
pub(super) fn origination(raw: &raw::UpstreamTls, at: &At<'_>, scope: &Scope<'_>) -> Origination {
    let Some(peers) = &raw.mesh else {
        return Origination::Names(upstream(raw, at));
    };
    refuse_beside_mesh(&raw.besides_mesh(), at);
    scope.needs_identity(at);
    let mesh = at.field("mesh");
    let list = mesh.field("identities");
    Origination::Mesh(spiffe_ids(&peers.identities, &list))
}

/// Parses SPIFFE IDs; each may occur once.
fn spiffe_ids(texts: &[String], list: &At<'_>) -> Vec<SpiffeId> {
    let (mut identities, mut seen) = (Vec::new(), rule::Unique::default());
    for (i, text) in texts.iter().enumerate() {
        let at = list.index(i);
        identities.extend(spiffe_id(text, &at));
        seen.check(text, &at, "the identity");
    }
    identities
}

fn refuse_beside_mesh(set: &[&str], at: &At<'_>) {
    for field in set {
        at.field(field)
            .error(format!("`{field}` has no effect with `mesh`"))
            .on_key()
            .help("workloads of the mesh authenticate by `identity`, with TLS 1.3: remove the line, or `mesh`");
    }
}

pub(super) fn spiffe_id(text: &str, at: &At<'_>) -> Option<SpiffeId> {
    match text.parse::<SpiffeId>() {
        Ok(id) if id.path().is_empty() => {
            at.error(format!("`{id}` is a trust domain, not a workload"))
                .help("write `spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/SERVICE-ACCOUNT`");
            None
        }
        Ok(id) => Some(id),
        Err(why) => {
            let text = crate::yaml::short(text);
            at.error(format!("`{text}` is not a SPIFFE ID: {why}"))
                .help("write `spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/SERVICE-ACCOUNT`");
            None
        }
    }
}

fn downstream(raw: &raw::DownstreamTls, at: &At<'_>, behind: Behind) -> DownstreamTls {
    let client_ca = raw.client_ca.as_deref();
    if client_ca.is_none() && raw.require_client_certificate == Some(true) {
        at.field("require_client_certificate")
            .error("client certificates cannot be verified without `client_ca`")
            .help("add `client_ca: FILE` with the root certificates of the clients");
    }
    check_file(client_ca, &at.field("client_ca"));
    DownstreamTls {
        certificates: certificates(raw, at),
        client_ca: client_ca.map(Into::into),
        require_client_certificate: raw
            .require_client_certificate
            .unwrap_or(client_ca.is_some()),
        alpn: alpn(raw.alpn.as_deref(), &at.field("alpn"), behind, false),
        min_version: version(raw.min_version),
    }
}

fn certificates(raw: &raw::DownstreamTls, at: &At<'_>) -> Vec<CertificateFiles> {
    let short = raw.certificate.is_some() || raw.private_key.is_some();
    let set = [
        ("certificate", short),
        ("certificates", !raw.certificates.is_empty()),
    ];
    match rule::exactly_one(&set, at) {
        Some("certificate") => {
            let files = files(raw.certificate.as_deref(), raw.private_key.as_deref(), at);
            files.into_iter().collect()
        }
        Some(_) => {
            let list = at.field("certificates");
            let each = raw.certificates.iter().enumerate();
            each.filter_map(|(i, raw)| {
                let (certificate, key) = (raw.certificate.as_deref(), raw.private_key.as_deref());
                files(certificate, key, &list.index(i))
            })
            .collect()
        }
        None => Vec::new(),
    }
}

fn files(certificate: Option<&str>, key: Option<&str>, at: &At<'_>) -> Option<CertificateFiles> {
    if certificate.is_none() {
        at.missing("certificate", "write `certificate: FILE`, a PEM file");
    }
    if key.is_none() {
        at.missing("private_key", "write `private_key: FILE`, a PEM file");
    }
    check_file(certificate, &at.field("certificate"));
    check_file(key, &at.field("private_key"));
    Some(CertificateFiles {
        certificate: certificate?.into(),
        private_key: key?.into(),
    })
}

pub(super) fn check_file(path: Option<&str>, at: &At<'_>) {
    if path == Some("") {
        at.error("the file name is empty");
    }
}

fn alpn(raw: Option<&[String]>, at: &At<'_>, behind: Behind, mesh: bool) -> Vec<String> {
    use crate::listener::HttpProtocol::{Auto, Http1, Http2};
    let possible: &[&str] = match behind {
        // Workloads of the mesh have a transport of their own (docs/transport.md).
        Behind::Http(Auto) if mesh => &["maglor/1", "h2", "http/1.1"],
        Behind::Http(Auto) => &["h2", "http/1.1"],
        Behind::Http(Http1) => &["http/1.1"],
        Behind::Http(Http2) => &["h2"],
        Behind::Tcp => &[],
    };
    let Some(list) = raw else {
        return possible.iter().map(|&protocol| protocol.into()).collect();
    };
    let mut seen = rule::Unique::default();
    for (i, protocol) in list.iter().enumerate() {
        let at = at.index(i);
        if protocol.is_empty() || protocol.len() > 255 {
            at.error("an ALPN protocol must have 1 to 255 bytes");
        } else if behind != Behind::Tcp && !possible.contains(&protocol.as_str()) {
            let one_of = crate::suggest::one_of(possible);
            at.error(format!(
                "`{}` is not supported",
                crate::yaml::short(protocol)
            ))
            .help(format!(
                "with this `http.protocol`, supported protocols are {one_of}"
            ));
        }
        seen.check(protocol, &at, "the ALPN protocol");
    }
    if list.is_empty() && behind == Behind::Http(Http2) {
        at.error("clients use HTTP/2 over TLS only when ALPN offers `h2`")
            .help("remove the line to use the default, `[h2]`");
    }
    list.to_vec()
}

fn version(raw: Option<raw::TlsVersion>) -> MinimumTlsVersion {
    match raw {
        None | Some(raw::TlsVersion::V12) => MinimumTlsVersion::Tls12,
        Some(raw::TlsVersion::V13) => MinimumTlsVersion::Tls13,
    }
}

fn upstream(raw: &raw::UpstreamTls, at: &At<'_>) -> UpstreamTls {
    let name = raw.server_name.as_deref();
    if let Some(name) = name.filter(|name| name.parse::<std::net::IpAddr>().is_err())
        && let Err(why) = host::dns_name(name)
    {
        at.field("server_name")
            .error(format!(
                "`{}` is not a server name",
                crate::yaml::short(name)
            ))
            .help(why);
    }
    check_file(raw.ca.as_deref(), &at.field("ca"));
    let skip = raw.insecure_skip_verify.unwrap_or(false);
    if skip && raw.ca.is_some() {
        at.field("ca")
            .error("`ca` has no effect with `insecure_skip_verify: true`")
            .help("remove one of them");
    } else if skip {
        at.field("insecure_skip_verify")
            .warning("the server's certificate is not verified: any server can impersonate the endpoint")
            .help("use `insecure_skip_verify` only for tests; otherwise set trusted root certificates with `ca`");
    }
    let mutual = raw.certificate.is_some() || raw.private_key.is_some();
    let (certificate, key) = (raw.certificate.as_deref(), raw.private_key.as_deref());
    UpstreamTls {
        server_name: name.map(Into::into),
        ca: raw.ca.as_deref().map(Into::into),
        certificate: mutual.then(|| files(certificate, key, at)).flatten(),
        insecure_skip_verify: skip,
        min_version: version(raw.min_version),
    }
}
