//! A controller over a folder, with an authority and tokens: a mesh without Kubernetes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use maglor_identity::tls::{Client, Expected};
use maglor_identity::{Authority, Identity, KeyRequest, Live, SpiffeId, TrustBundle, TrustDomain};
use maglor_xds::grpc_server::CertifyRequest;

use super::grpc::Connection;
use super::process::{Controller, put};

pub(crate) const DOMAIN: &str = "mesh.example";
pub(crate) const CART: &str = "token-of-the-cart-000";
pub(crate) const WEB: &str = "token-of-the-web-0000";
pub(crate) const OLD: &str = "token-that-has-expired";

/// Additional accounts, each with a separate token, because requests of an account are rate-limited.
const CASES: usize = 100;

/// The token of account `shop/case-NUMBER`.
pub(crate) fn case_token(number: usize) -> String {
    assert!(number < CASES, "there are too few tokens");
    format!("token-of-case-number-{number:04}")
}

pub(crate) fn domain() -> TrustDomain {
    DOMAIN.parse().unwrap()
}

/// A controller with an authority, and files of tokens and resources.
pub(crate) struct Fixture {
    folder: tempfile::TempDir,
    pub(crate) authority: Authority,
    pub(crate) controller: Controller,
    ttl: &'static str,
    /// Of the controller's environment.
    variables: Vec<(String, String)>,
    /// The name by which proxies find the controller, in place of its address.
    pub(crate) name: Option<&'static str>,
}

impl Fixture {
    /// With these resources; certificates are valid for `ttl`.
    pub(crate) async fn start(resources: &str, ttl: &'static str) -> Self {
        Self::start_with(resources, ttl, Vec::new()).await
    }

    /// The same with variables of the controller's environment.
    pub(crate) async fn start_with(
        resources: &str,
        ttl: &'static str,
        variables: Vec<(String, String)>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["ca", "resources"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        let authority = Authority::create(&domain(), SystemTime::now()).unwrap();
        put(&at("resources/all.yaml"), resources);
        let mut tokens =
            format!("{CART} shop/cart\n{WEB} shop/web\n{OLD} shop/cart 2020-01-01T00:00:00Z\n");
        for number in 0..CASES {
            let token = case_token(number);
            tokens.push_str(&format!("{token} shop/case-{number}\n"));
        }
        put(&at("tokens"), &tokens);
        write(&at("ca"), &authority, &authority.bundle().unwrap(), None);
        let controller = controller(folder.path(), "127.0.0.1:0", ttl, &variables).await;
        Self {
            folder,
            authority,
            controller,
            ttl,
            variables,
            name: None,
        }
    }

    /// The address of the controller for proxies.
    pub(crate) fn control_plane(&self) -> String {
        let listen = &self.controller.listen;
        match (self.name, listen.rsplit_once(':')) {
            (Some(name), Some((_, port))) => format!("{name}:{port}"),
            _ => listen.clone(),
        }
    }

    /// A path in its folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Other resources.
    pub(crate) fn put(&self, resources: &str) {
        put(&self.path("resources/all.yaml"), resources);
    }

    /// Ends the controller as a power cut would.
    pub(crate) fn kill(&mut self) {
        self.controller.kill();
    }

    /// Starts it again where it was.
    pub(crate) async fn start_again(&mut self) {
        let listen = self.controller.listen.clone();
        let _ = std::fs::remove_file(self.path("ready.json"));
        self.controller = controller(self.folder.path(), &listen, self.ttl, &self.variables).await;
    }

    /// Puts another authority in place.
    pub(crate) fn rotate(&self, new: &Authority, bundle: &TrustBundle, chain: Option<&str>) {
        write(&self.path("ca"), new, bundle, chain);
    }

    pub(crate) fn bundle(&self) -> TrustBundle {
        self.authority.bundle().unwrap()
    }

    /// A connection with the identity `live`; the server must be the controller.
    pub(crate) async fn connect(&self, live: &Arc<Live>) -> Connection {
        self.connect_to(live, "maglor-controller").await.unwrap()
    }

    pub(crate) async fn connect_to(
        &self,
        live: &Arc<Live>,
        account: &str,
    ) -> std::io::Result<Connection> {
        let id = SpiffeId::workload(&domain(), "maglor", account).unwrap();
        let config = Client::new(live, Expected::OneOf(vec![id]), &[b"h2"])
            .unwrap()
            .config();
        Connection::open(&self.controller.listen, Some(config)).await
    }

    pub(crate) async fn nameless(&self) -> Connection {
        self.connect(&Live::nameless(self.bundle()).unwrap()).await
    }

    /// The identity that a token leads to.
    pub(crate) async fn certified(&self, token: &str) -> Identity {
        let key = KeyRequest::generate().unwrap();
        let request = CertifyRequest {
            certificate_signing_request: key.der().unwrap().into(),
            token: token.to_owned(),
        };
        let response = self.nameless().await.certify(&request).await.unwrap();
        let chain = response.chain.iter().map(|one| one.to_vec());
        key.certified(chain).unwrap()
    }

    pub(crate) async fn member(&self, token: &str) -> Arc<Live> {
        Live::new(self.certified(token).await, self.bundle()).unwrap()
    }
}

async fn controller(
    folder: &Path,
    listen: &str,
    ttl: &str,
    variables: &[(String, String)],
) -> Controller {
    let at = |name: &str| folder.join(name).display().to_string();
    let ready = folder.join("ready.json");
    let arguments = [
        ["--listen", listen],
        ["--folder", &at("resources")],
        ["--ca-dir", &at("ca")],
        ["--tokens", &at("tokens")],
        ["--trust-domain", DOMAIN],
        ["--leaf-ttl", ttl],
    ];
    let variables: Vec<_> = variables
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    Controller::start_with(&ready, arguments.as_flattened(), &variables).await
}

/// The authority's folder, as `maglor identity ca` and `rotate` leave it.
fn write(folder: &Path, authority: &Authority, bundle: &TrustBundle, chain: Option<&str>) {
    put(&folder.join("trust_bundle.pem"), &bundle.to_pem());
    match chain {
        Some(chain) => put(&folder.join("crossed.pem"), chain),
        None => drop(std::fs::remove_file(folder.join("crossed.pem"))),
    }
    put(&folder.join("ca_key.pem"), &authority.private_key_pem());
    put(&folder.join("ca.pem"), &authority.certificate_pem());
}
