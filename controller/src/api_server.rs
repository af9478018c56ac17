//! The HTTP client for the API server, which detects dead connections.
//!
//! A network partition, or an API server that dies without closing its connections, leaves connections on which no
//! data arrives and no error is reported. Watches are therefore short: the server ends each of them after [`WATCH`],
//! and the next one begins where it ended. A connection that is silent for longer than [`SILENCE`] is considered
//! dead.

use std::time::Duration;

use http::{Request, StatusCode};
use kube::client::Body;
use kube::runtime::watcher;
use kube::{Client, Config};

/// Timeout to connect, including the TLS handshake.
const CONNECT: Duration = Duration::from_secs(5);
/// Duration of a watch in seconds. Each renewal costs one request. With kube's default of 290 s, proxies would use
/// outdated data for that long.
const WATCH: u32 = 20;
/// Pause after a failed request for the version.
const REST: Duration = Duration::from_secs(1);
/// Maximum time until a response begins. A watch is silent for at most its duration.
const SILENCE: Duration = Duration::from_secs(30);

/// Returns a client for the cluster of the kubeconfig, or for that of the pod in which this process runs. Each
/// request is sent once: kube would silently retry requests that are temporarily rejected (429 with `Retry-After`, by
/// a PodDisruptionBudget or a busy server), and a retried write could outlast the term in which it was decided.
/// Callers retry if they need to.
///
/// # Errors
/// If there is neither a kubeconfig nor a pod, or if the configuration cannot be read.
pub(crate) async fn client() -> Result<Client, kube::Error> {
    let mut config = config().await?;
    config.default_retry = false;
    Client::try_from(config)
}

/// Returns how to reach that cluster, with this controller's credentials.
///
/// # Errors
/// If there is neither a kubeconfig nor a pod, or if the configuration cannot be read.
pub(crate) async fn config() -> Result<Config, kube::Error> {
    let mut config = Config::infer().await.map_err(kube::Error::InferConfig)?;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(SILENCE);
    // Otherwise a pooled connection that was idle for a long time would be considered dead.
    config.reset_reader_on_write = true;
    Ok(config)
}

/// Returns the configuration of a watch, to which the caller adds selectors.
pub(crate) fn watch() -> watcher::Config {
    watcher::Config::default().timeout(WATCH)
}

/// Returns the same client with a hook: `answered` is called after each response of the API server, even one for an
/// unknown kind. A response that a permission is missing does not count.
pub(crate) fn noting_answers(
    client: &Client,
    answered: impl Fn() + Clone + Send + 'static,
) -> Client {
    let namespace = client.default_namespace().to_owned();
    let client = client.clone();
    let send = move |request: Request<Body>| {
        let (client, answered) = (client.clone(), answered.clone());
        async move {
            let response = client.send(request).await?;
            let status = response.status();
            if status.is_success() || status == StatusCode::NOT_FOUND {
                answered();
            }
            Ok::<_, kube::Error>(response)
        }
    };
    Client::new(tower::service_fn(send), namespace)
}

/// Returns whether an error is a response of the API server with this status code.
pub(crate) fn is(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
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
    use super::*;

    #[test]
    fn a_version_is_read_with_what_providers_append() {
        assert_eq!(minor("29"), Some(29));
        assert_eq!(minor("35+"), Some(35));
        assert_eq!(minor("x"), None);
    }

    #[test]
    fn a_watch_ends_in_order_before_it_is_taken_for_dead() {
        assert!(Duration::from_secs(WATCH.into()) < SILENCE);
        assert_eq!(watch().timeout, Some(WATCH));
    }
}
