//! Admission webhooks: inject sidecars into pods, and validate the mesh's own resources by the proxy's rules.
//!
//! Every replica serves requests, over HTTPS with a certificate that all replicas share (`certificate`). The leader
//! creates and renews the certificate, and registers its root with the API server (`keep`). No other software is
//! needed for this.
//!
//! Clients are not authenticated; a response contains only information that follows from the request. If no decision
//! is possible (for example because the namespace cannot be read), the response is 500, so that the `failurePolicy`
//! applies.

mod admission;
mod certificate;
mod keep;
mod server;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Client;
use maglor_manifests::inject::{Form, Settings};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::api_server;
use crate::clients::Clients;
use crate::events::Events;
use crate::https;
use crate::lease::Term;
use crate::metrics::Metrics;
use crate::placement::wanted_nodes::WantedNodes;
use crate::revision::Revision;

pub use admission::{Decision, Word, inject, validate};

/// Name of the `MutatingWebhookConfiguration` of the default control plane.
pub const INJECT: &str = "maglor-inject";
/// Name of the `ValidatingWebhookConfiguration`, which no revision has.
pub const VALIDATE: &str = "maglor-validate";
/// Secret with the certificate of the default control plane, in the controller's namespace.
pub const SECRET: &str = "maglor-webhook";

/// The minor version of Kubernetes (1.x) from which native sidecars are supported by default.
const NATIVE: u32 = 29;

/// Pause after a failure.
const REST: Duration = Duration::from_secs(1);

/// Options of the webhook.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address to listen on; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// The settings of injected sidecars.
    pub settings: Settings,
}

/// A webhook server that runs until it is dropped.
pub(crate) struct Webhook {
    pub(crate) client: Client,
    /// The client for leader-only writes.
    pub(crate) writer: Client,
    /// The namespace of the controller.
    pub(crate) namespace: String,
    pub(crate) revision: Revision,
    pub(crate) events: Events,
    pub(crate) settings: Settings,
    pub(crate) term: watch::Receiver<Term>,
    pub(crate) metrics: Arc<Metrics>,
    /// Set once the API server can reach this server.
    pub(crate) ready: Arc<AtomicBool>,
    /// The connection limits of the server.
    pub(crate) clients: Clients,
    /// The TLS configuration, published after each renewal of the certificate.
    pub(crate) serving: watch::Sender<Option<Arc<ServerConfig>>>,
}

impl Webhook {
    /// Returns the names of the controller's Service, for which its certificate is valid.
    pub(crate) fn names(&self) -> Vec<String> {
        let service = self.revision.service();
        certificate::names(&service, &self.namespace, &self.settings.cluster_domain)
    }

    /// Serves requests for as long as the future is polled.
    pub(crate) async fn run(mut self, socket: TcpListener) {
        if self.settings.form == Form::Auto {
            self.settings.form = form(&self.client).await;
        }
        let names = self.names();
        let certificates = self.serving.subscribe();
        let own = (&*self.namespace, &self.revision);
        let keeper = keep::Keeper::new(&self.writer, own, names, self.term.clone());
        let expiries = self.metrics.on_call.expiries.clone();
        let wanted_nodes = WantedNodes::default();
        let following = wanted_nodes.clone().follow(self.client.clone());
        let service = Arc::new(server::Service {
            wanted_nodes,
            namespace: self.namespace,
            client: self.client,
            events: self.events,
            settings: self.settings,
            metrics: self.metrics,
        });
        let handle = move |request| {
            let service = Arc::clone(&service);
            async move { service.handle(request).await }
        };
        tokio::join!(
            following,
            keeper.run(&self.serving, &self.ready, &expiries),
            https::serve(socket, certificates, "webhook", self.clients, handle),
        );
        self.ready.store(false, Ordering::Relaxed);
    }
}

/// Returns the form of sidecars that the API server's version supports.
async fn form(client: &Client) -> Form {
    let minor = api_server::minor_version(client).await;
    let form = match minor {
        Some(minor) if minor < NATIVE => Form::Container,
        _ => Form::Native,
    };
    tracing::info!(minor, ?form, "sidecar form detected");
    form
}

#[cfg(test)]
mod tests {
    use kube::Config;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Returns the form of sidecars when the API server sends these responses one after another.
    async fn asked(answers: &[(&str, &str)]) -> Form {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let server = async {
            for (status, body) in answers {
                let (mut tcp, _) = socket.accept().await.unwrap();
                let mut request = [0; 4096];
                assert!(tcp.read(&mut request).await.unwrap() > 0);
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
                );
                tcp.write_all((head + body).as_bytes()).await.unwrap();
            }
            std::future::pending::<()>().await;
        };
        let config = Config::new(format!("http://{address}").parse().unwrap());
        let client = Client::try_from(config).unwrap();
        tokio::select! {
            form = form(&client) => form,
            () = server => panic!("it is asked no more"),
        }
    }

    fn version(minor: &str) -> String {
        let rest = r#""gitVersion": "v", "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": """#;
        format!(r#"{{"major": "1", "minor": "{minor}", {rest}}}"#)
    }

    #[tokio::test]
    async fn sidecars_are_as_the_version_of_the_api_server_has_them() {
        for (minor, expected) in [
            ("28", Form::Container),
            ("28+", Form::Container),
            ("29", Form::Native),
            ("35+", Form::Native),
        ] {
            assert_eq!(
                asked(&[("200 OK", &version(minor))]).await,
                expected,
                "{minor}"
            );
        }
    }

    /// An API server that does not respond now says nothing about its version.
    #[tokio::test]
    async fn an_api_server_that_does_not_answer_is_asked_again() {
        let failures = [
            ("500 Internal Server Error", ""),
            ("503 Service Unavailable", ""),
        ];
        let older = version("28");
        let answers = [&failures[..], &[("200 OK", &older)]].concat();
        assert_eq!(asked(&answers).await, Form::Container);
        let refused = r#"{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": "Forbidden", "code": 403}"#;
        assert_eq!(asked(&[("403 Forbidden", refused)]).await, Form::Native);
    }
}
