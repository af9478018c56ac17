//! Requests over the network with curl, which verifies the certificate.

use std::net::SocketAddr;

use maglor_testkit::cluster::Kubectl;

use crate::support::installed::Installed;

/// A name of `dashboard.hostNames`.
pub(crate) const HOST_NAME: &str = "mesh.example";
/// The name for which the certificate is valid.
const SERVICE: &str = "maglor-controller.maglor.svc";

/// A client of the page's port.
pub(crate) struct Client<'a> {
    installed: &'a Installed,
    pub(crate) address: SocketAddr,
    authority: tempfile::NamedTempFile,
}

impl<'a> Client<'a> {
    pub(crate) fn new(installed: &'a Installed, address: SocketAddr) -> Self {
        let template = "{{(index .webhooks 0).clientConfig.caBundle | base64decode}}";
        let output = format!("go-template={template}");
        let webhook = ["get", "mutatingwebhookconfiguration", "maglor-inject", "-o"];
        let bundle = installed
            .kubectl()
            .run(&[&webhook[..], &[&output]].concat());
        let authority = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(authority.path(), bundle.unwrap()).unwrap();
        Self {
            installed,
            address,
            authority,
        }
    }

    /// A token of a user, for the API server.
    pub(crate) fn token(&self, user: &str) -> String {
        token(self.installed.kubectl(), user, &[])
    }

    /// The status of a request with header fields; 0 if there is no response.
    fn status(&self, method: &str, path: &str, fields: &[&str]) -> u16 {
        let mut curl = self.installed.cluster.network_command("curl").unwrap();
        let port = self.address.port();
        curl.args([
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-m",
            "15",
            "-X",
            method,
        ]);
        curl.arg("--cacert").arg(self.authority.path());
        curl.args([
            "--connect-to",
            &format!("{SERVICE}:{port}:{}", self.address),
        ]);
        for field in fields {
            curl.args(["-H", field]);
        }
        let output = curl.arg(format!("https://{SERVICE}:{port}{path}")).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        text.trim().parse().unwrap()
    }

    /// Tokens are authenticated and their users authorized, for every request of data.
    pub(crate) fn permissions_are_checked(&self) {
        let kubectl = self.installed.kubectl();
        let bearer = |token: String| format!("authorization: Bearer {token}");
        let [viewer, reader, outsider] =
            ["viewer", "reader", "outsider"].map(|user| bearer(self.token(user)));
        // Tokens of pods for the mesh, for example, have another audience.
        let foreign = bearer(token(kubectl, "viewer", &["--audience=vault"]));
        let invalid = bearer("invalid".to_owned());
        assert_eq!(self.status("GET", "/", &[]), 200, "files contain no data");
        for (fields, expected) in [
            (&[][..], 401),
            (&[&*invalid], 401),
            (&[&*foreign], 401),
            (&[&*outsider], 403),
            (&[&*reader], 200),
            (&[&*viewer], 200),
        ] {
            for path in ["about", "mesh", "service?name=shop/details"] {
                let status = self.status("GET", &format!("/api/v1/{path}"), fields);
                assert_eq!(status, expected, "{path} {fields:?}");
            }
        }
        // Admin ports of proxies need a further permission, which the controller does not have.
        assert_eq!(self.status("GET", "/api/v1/why", &[&reader]), 403);
        assert_eq!(self.status("GET", "/api/v1/why", &[&viewer]), 200);
        assert_eq!(self.status("POST", "/api/v1/mesh", &[&viewer]), 405);
        let account = "--as=system:serviceaccount:maglor:maglor-controller";
        for verb in ["create", "get"] {
            let mut question = kubectl.command();
            question.args(["auth", "can-i", verb, "pods", "--subresource=portforward"]);
            question.args(["-A", account]);
            let answer = question.output().unwrap().stdout;
            assert_eq!(String::from_utf8_lossy(&answer).trim(), "no", "{verb}");
        }
    }

    /// Other websites cannot read the page with the browser of a user.
    pub(crate) fn foreign_sites_are_refused(&self) {
        let viewer = format!("authorization: Bearer {}", self.token("viewer"));
        let of = |field: &str| self.status("GET", "/api/v1/about", &[&viewer, field]);
        let own = format!("https://{SERVICE}:{}", self.address.port());
        for (field, expected) in [
            ("host: evil.example", 403),
            (&*format!("host: {HOST_NAME}"), 200),
            (&*format!("host: {}", self.address), 200),
            ("origin: https://evil.example", 403),
            ("origin: null", 403),
            (&*format!("origin: {own}"), 200),
            ("sec-fetch-site: cross-site", 403),
            ("sec-fetch-site: same-origin", 200),
        ] {
            assert_eq!(of(field), expected, "{field}");
        }
    }
}

fn token(kubectl: &Kubectl, user: &str, flags: &[&str]) -> String {
    let create = ["create", "token", user, "-n", "users"];
    let token = kubectl.run(&[&create[..], flags].concat()).unwrap();
    token.trim().to_owned()
}
