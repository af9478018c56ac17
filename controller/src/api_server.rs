//! The HTTP client for the API server, which detects dead connections.
//!
//! A network partition, or an API server that dies without closing its connections, leaves connections on which no
//! data arrives and no error is reported. The kernel probes each connection that is silent, and closes it after
//! [`SILENCE`] without an answer. kube's own client has no such option: watches would have to be short instead, and an
//! idle controller would spend most of its processor time on their renewals.

use std::time::Duration;

use futures_util::stream::try_unfold;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use kube::runtime::watcher;
use kube::{Client, Config};
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tower::{BoxError, ServiceBuilder, ServiceExt as _};

/// Timeout to connect, including the TLS handshake.
const CONNECT: Duration = Duration::from_secs(5);
/// Pause after a failed request for the version.
const REST: Duration = Duration::from_secs(1);
/// Time without an answer after which a connection or a request fails.
const SILENCE: Duration = Duration::from_secs(30);
/// Time without data after which a connection is probed, and the interval of the probes.
const PROBED: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(5));

/// Returns a client for the cluster of the kubeconfig, or for that of the pod in which this process runs. Each
/// request is sent once: kube would silently retry requests that are temporarily rejected (429 with `Retry-After`, by
/// a PodDisruptionBudget or a busy server), and a retried write could outlast the term in which it was decided.
/// Callers retry if they need to.
///
/// # Errors
/// If there is neither a kubeconfig nor a pod, or if the configuration cannot be read.
pub(crate) async fn client() -> Result<Client, kube::Error> {
    connect(&config().await?)
}

/// Returns how to reach that cluster, with this controller's credentials.
///
/// # Errors
/// If there is neither a kubeconfig nor a pod, or if the configuration cannot be read.
pub(crate) async fn config() -> Result<Config, kube::Error> {
    let mut config = Config::infer().await.map_err(kube::Error::InferConfig)?;
    config.connect_timeout = Some(CONNECT);
    Ok(config)
}

/// Builds the client: kube's layers on connections that are probed.
fn connect(config: &Config) -> Result<Client, kube::Error> {
    if let Some(proxy) = &config.proxy_url {
        return Err(kube::Error::ProxyProtocolDisabled {
            proxy_url: Box::new(proxy.clone()),
            protocol_feature: "kube/http-proxy",
        });
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let (first, interval) = PROBED;
    tcp.set_keepalive(Some(first));
    tcp.set_keepalive_interval(Some(interval));
    // Probes are not sent while sent data is unacknowledged; this limits either.
    tcp.set_tcp_user_timeout(Some(SILENCE));
    let tls = config.rustls_https_connector_with_connector(tcp)?;
    let connector = tower::service_fn(move |to: Uri| {
        let connected = timeout(CONNECT, tls.clone().oneshot(to));
        Box::pin(async { connected.await.unwrap_or_else(|late| Err(late.into())) })
    });
    let http = legacy::Client::builder(TokioExecutor::new()).build::<_, Body>(connector);
    let requests = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http)
        .boxed_clone();
    let late = |late: Elapsed| kube::Error::Service(late.into());
    let send = move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        // A watch may be silent for its whole duration (290 s), after which kube ends it if the server does not.
        let silence = match query.contains("watch=true") {
            true => Duration::MAX,
            false => SILENCE,
        };
        let sent = timeout(SILENCE, requests.clone().oneshot(request));
        async move {
            let response = sent.await.map_err(late)?.map_err(kube::Error::Service)?;
            let frames = |body| {
                try_unfold(body, move |mut body: Incoming| async move {
                    let frame = timeout(silence, body.frame()).await.map_err(late)?;
                    let frame = frame.transpose().map_err(kube::Error::HyperError)?;
                    Ok::<_, kube::Error>(frame.map(|frame| (frame, body)))
                })
            };
            Ok::<_, kube::Error>(response.map(|body| StreamBody::new(frames(body))))
        }
    };
    let namespace = config.default_namespace.clone();
    Ok(Client::new(tower::service_fn(send), namespace))
}

/// Returns the same client with a hook: `answered` is called when a response of the API server begins, even one for an
/// unknown kind, and its result is dropped when the response ends. A response that a permission is missing does not
/// count.
pub(crate) fn noting_answers<T: Send + 'static>(
    client: &Client,
    answered: impl Fn() -> T + Clone + Send + 'static,
) -> Client {
    let namespace = client.default_namespace().to_owned();
    let client = client.clone();
    let send = move |request: Request<Body>| {
        let (client, answered) = (client.clone(), answered.clone());
        async move {
            let response = client.send(request).await?;
            let status = response.status();
            let counts = status.is_success() || status == StatusCode::NOT_FOUND;
            let until_its_end = counts.then(answered);
            Ok::<_, kube::Error>(response.map(|body| {
                body.map_frame(move |frame| {
                    let _ = &until_its_end;
                    frame
                })
            }))
        }
    };
    Client::new(tower::service_fn(send), namespace)
}

/// Returns whether an error is a response of the API server with this status code.
pub(crate) fn is(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// Returns whether a watch has failed with this status code.
pub(crate) fn failed_with(error: &watcher::Error, code: u16) -> bool {
    use watcher::Error::{InitialListFailed, WatchFailed, WatchStartFailed};
    let (InitialListFailed(cause) | WatchFailed(cause) | WatchStartFailed(cause)) = error else {
        return false;
    };
    is(cause, code)
}

/// Returns the minor version of the API server (Kubernetes 1.x); `None` if it is malformed or may not be read. Retries
/// until the API server responds: a guessed version would apply until the next start, and an older server accepts pods
/// with native sidecars whose applications then never start.
pub(crate) async fn minor_version(client: &Client) -> Option<u32> {
    loop {
        let error = match client.apiserver_version().await {
            Ok(version) => return minor(&version.minor),
            Err(error) => error,
        };
        // Some clusters permanently restrict access to the version.
        let kept = is(&error, 401) || is(&error, 403);
        tracing::warn!(%error, asked_again = !kept, "cannot read the version of the API server");
        if kept {
            return None;
        }
        tokio::time::sleep(REST).await;
    }
}

/// Parses a minor version, which may have the form `30+`.
fn minor(text: &str) -> Option<u32> {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_version_is_read_with_what_providers_append() {
        assert_eq!(minor("29"), Some(29));
        assert_eq!(minor("35+"), Some(35));
        assert_eq!(minor("x"), None);
    }

    /// `tr` of the table of sockets (proc_net_tcp(5)) is 2 while the next packet is a probe, followed by the time until
    /// then in hundredths of a second.
    #[tokio::test]
    async fn a_silent_connection_is_probed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = connect(&Config::new(format!("http://{address}").parse().unwrap())).unwrap();
        let _asked = tokio::spawn(async move { client.apiserver_version().await });
        let _silent = listener.accept().await.unwrap();
        let peer = format!("0100007F:{:04X}", address.port());
        loop {
            let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
            let mut rows = table
                .lines()
                .map(|row| row.split_whitespace().collect::<Vec<_>>());
            let row = rows.find(|row| row[2] == peer).unwrap();
            let (timer, due) = row[5].split_once(':').unwrap();
            if timer == "02" {
                let due = u64::from_str_radix(due, 16).unwrap();
                assert!(Duration::from_millis(10 * due) <= PROBED.0);
                break;
            }
            // The request is not acknowledged yet.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
