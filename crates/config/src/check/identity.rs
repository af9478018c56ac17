//! Validates the identity of the proxy inside the mesh, and its source.

use maglor_identity::Paths;

use super::Scope;
use super::tls::check_file;
use crate::report::At;
use crate::{Enrolment, Identity, raw};

/// Validates the source of the proxy's identity.
pub(super) fn identity(raw: &raw::Document, at: &At<'_>, scope: &Scope<'_>) -> Option<Identity> {
    let (own, at) = (raw.identity.as_ref()?, &at.field("identity"));
    let file = |name, path: Option<&String>| {
        if path.is_none() {
            at.missing(name, &format!("write `{name}: FILE`, a PEM file"));
        }
        check_file(path.map(String::as_str), &at.field(name));
        path.map(Into::into)
    };
    let trust_bundle = file("trust_bundle", own.trust_bundle.as_ref());
    let Some(token) = &own.token_file else {
        let certificate = file("certificate", own.certificate.as_ref());
        let private_key = file("private_key", own.private_key.as_ref());
        return Some(Identity::Files(Paths {
            certificate: certificate?,
            private_key: private_key?,
            trust_bundle: trust_bundle?,
        }));
    };
    check_file(Some(token), &at.field("token_file"));
    let set = [
        ("certificate", &own.certificate),
        ("private_key", &own.private_key),
    ];
    for (field, _) in set.iter().filter(|(_, set)| set.is_some()) {
        at.field(field)
            .error(format!("`{field}` has no effect with `token_file`"))
            .on_key()
            .help(
                "with `token_file`, the control plane issues the certificate for a key that the \
                 proxy creates: remove the line, or `token_file`",
            );
    }
    control_plane(raw, at, scope);
    Some(Identity::ControlPlane(Enrolment {
        token_file: token.into(),
        trust_bundle: trust_bundle?,
    }))
}

/// Checks that the proxy authenticates the control plane, since only the control plane may receive the token.
fn control_plane(raw: &raw::Document, at: &At<'_>, scope: &Scope<'_>) {
    scope.needs_control_plane(&at.field("token_file"));
    let name = raw
        .control_plane
        .as_ref()
        .and_then(|plane| plane.cluster.as_deref());
    let Some(cluster) = name.and_then(|name| scope.known_cluster(name)) else {
        return;
    };
    let mesh = cluster.tls.as_ref().and_then(|tls| tls.0.mesh.as_ref());
    if mesh.is_none_or(|peers| peers.identities.is_empty()) {
        at.field("token_file")
            .error("the cluster of the control plane does not authenticate its servers, which receive the token")
            .help("add `tls: {mesh: {identities: \
                   [spiffe://TRUST-DOMAIN/ns/maglor/sa/maglor-controller]}}` to the cluster");
    }
}
