//! The HTTP client for the API server: requests do not wait for a connection whose other end is gone.
//!
//! A node that is cut off for a while, or an API server that dies without a word, leaves connections on which nothing
//! comes any more, and nothing says so. Watches are therefore short: the server ends each of them in order after
//! [`WATCH`], and begins the next where it ended. A connection that says nothing for longer is dead.

use std::time::Duration;

use http::{Request, StatusCode};
use kube::client::Body;
use kube::runtime::watcher;
use kube::{Client, Config};

/// Time to connect, with TLS.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a watch lasts, in seconds. Its end costs a request, where kube's own default, 290 s, is the time for
/// which proxies would go by what has long changed.
const WATCH: u32 = 20;
/// After a failure to learn the version.
const REST: Duration = Duration::from_secs(1);
/// Any answer begins after this long; a watch waits for its end at most.
const SILENCE: Duration = Duration::from_secs(30);

/// A client of the cluster of the kubeconfig, or of the pod that this runs in. Each request is sent once: kube would
/// send one that is refused for now (429 with `Retry-After`: an eviction by a PodDisruptionBudget, a busy server)
/// again without a word, and a write longer than the term holds in which it was decided. Those who need it ask again
/// themselves.
///
/// # Errors
/// There is neither, or it cannot be read.
pub(crate) async fn client() -> Result<Client, kube::Error> {
    let mut config = config().await?;
    config.default_retry = false;
    Client::try_from(config)
}

async fn config() -> Result<Config, kube::Error> {
    let mut config = Config::infer().await.map_err(kube::Error::InferConfig)?;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(SILENCE);
    // Or a pooled connection that was idle for long would be taken for dead.
    config.reset_reader_on_write = true;
    Ok(config)
}

/// How a kind is watched; the caller adds selectors.
pub(crate) fn watch() -> watcher::Config {
    watcher::Config::default().timeout(WATCH)
}

/// The same client; `answered` is called after each answer of the API server, an unknown kind included. A request
/// that it refuses for a missing right does not count.
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

/// Whether it is what an API server has answered, with this status code.
pub(crate) fn is(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// The minor version of Kubernetes 1 of the API server; `None` if unknown. It is queried until it
/// answers: what was guessed would hold until the next start, and an older server takes pods with native sidecars,
/// whose applications then never begin.
pub(crate) async fn minor_version(client: &Client) -> Option<u32> {
    loop {
        let error = match client.apiserver_version().await {
            Ok(version) => return minor(&version.minor),
            Err(error) => error,
        };
        // Some clusters restrict access to it permanently.
        let kept = is(&error, 401) || is(&error, 403);
        tracing::warn!(%error, asked_again = !kept, "cannot read the API server's version");
        if kept {
            return None;
        }
        tokio::time::sleep(REST).await;
    }
}

/// Of `30+`, too.
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
