//! Errors of queries to a mesh, with hints.

use std::io;
use std::path::PathBuf;

use http::StatusCode;
use kube::config::KubeconfigError;
use maglor_service_graph::file::prometheus::AnswerError;

/// See the module's documentation.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LiveError {
    /// What answered is none of ours, or of another version.
    #[error("{whom}{path}: invalid response: {source}")]
    Answer {
        /// Who was asked.
        whom: String,
        /// For what.
        path: String,
        /// The error.
        source: serde_json::Error,
    },
    /// Connection refused.
    #[error("{whom}: {source}")]
    Connect {
        /// Who was asked.
        whom: String,
        /// What the system said.
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The connection broke.
    #[error("{whom}: {source}")]
    Http {
        /// Who was asked.
        whom: String,
        /// What happened.
        source: hyper::Error,
    },
    /// The API server said no, or nothing.
    #[error("Kubernetes: {what}: {source}")]
    Kube {
        /// What it was asked for.
        what: String,
        /// What it said.
        source: Box<kube::Error>,
    },
    /// No cluster is configured.
    #[error("kubeconfig: {0}")]
    Kubeconfig(Box<KubeconfigError>),
    /// A step of the installation's life was not done.
    #[error("{0}")]
    Lifecycle(maglor_controller::lifecycle::LifecycleError),
    /// There is none of ours.
    #[error("no controller is running in namespace `{namespace}`")]
    NoController {
        /// Where it was looked for.
        namespace: String,
    },
    /// Nothing to ask.
    #[error("{0}")]
    NoProxy(String),
    /// Neither a cluster nor a controller is given.
    #[error("this command queries the controller; --proxy is set, but not --controller")]
    NoControllerAddress,
    /// Neither a cluster nor a proxy is given.
    #[error("this command queries proxies; --controller is set, but not --proxy")]
    NoProxyAddress,
    /// Nothing can be planned.
    #[error("{0}")]
    Plan(String),
    /// The port cannot be reached through the API server.
    #[error("{whom}: cannot connect to the pod: {why}")]
    PortForward {
        /// Which pod.
        whom: String,
        /// What the kubelet said.
        why: String,
    },
    /// Prometheus says something else than what was asked for.
    #[error("{source}; the query was {query}")]
    Prometheus {
        /// What was asked, in PromQL.
        query: String,
        /// The error.
        source: Box<AnswerError>,
    },
    /// The controller says something that this command cannot read.
    #[error("routes `{name}`: {why}")]
    Resource {
        /// Which resource.
        name: String,
        /// The error.
        why: String,
    },
    /// The runtime cannot be set up.
    #[error("runtime: {0}")]
    Runtime(#[source] io::Error),
    /// A file is none of ours.
    #[error("{}: invalid graph snapshot: {source}", path.display())]
    Snapshot {
        /// Which.
        path: PathBuf,
        /// The error.
        source: serde_json::Error,
    },
    /// Another status than 200.
    #[error("{whom}{path}: {status}: {text}")]
    Status {
        /// Who was asked.
        whom: String,
        /// For what.
        path: String,
        /// What it answered with.
        status: StatusCode,
        /// The first line of why.
        text: String,
    },
    /// A value is invalid.
    #[error("{what} `{value}`: {expected}")]
    Value {
        /// Which.
        what: &'static str,
        /// What it is.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// It took too long.
    #[error("{whom}{path}: timeout after {seconds} s")]
    Timeout {
        /// Who was asked.
        whom: String,
        /// For what.
        path: String,
        /// How long was waited.
        seconds: u64,
    },
}

impl LiveError {
    /// What to do about it.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Answer { .. } => Some(
                "check that it is a Maglor admin port of this version; `maglor check` compares versions",
            ),
            Self::Connect { .. } => Some(
                "check that it is running with an admin port: `--admin` of the controller, `admin.address` of a proxy",
            ),
            Self::Kube { .. } | Self::NoController { .. } => {
                Some("`maglor check` diagnoses the cluster and the mesh")
            }
            Self::Kubeconfig(_) => Some(
                "set KUBECONFIG or --kubeconfig; without Kubernetes use --controller HOST:PORT or --proxy HOST:PORT",
            ),
            Self::NoControllerAddress => {
                Some("set --controller HOST:PORT to the admin address of maglor-controller")
            }
            Self::NoProxyAddress => Some(
                "set --proxy [NAME=]HOST:PORT for each proxy, to `admin.address` of its configuration",
            ),
            Self::NoProxy(_) => Some(
                "use -n NAMESPACE or -A for other namespaces; `maglor check` lists pods without a proxy",
            ),
            Self::PortForward { .. } => {
                Some("you need `create` on `pods/portforward` in that namespace")
            }
            Self::Snapshot { .. } => Some("`maglor graph -o json` prints one"),
            Self::Status {
                status: StatusCode::NOT_FOUND,
                ..
            } => Some("not found, or the server is older than this command"),
            Self::Prometheus { .. } => Some(
                "check that this is the address of Prometheus, http://HOST:PORT, with its path prefix if any",
            ),
            Self::File { .. }
            | Self::Http { .. }
            | Self::Lifecycle(_)
            | Self::Plan(_)
            | Self::Resource { .. }
            | Self::Runtime(_)
            | Self::Status { .. }
            | Self::Timeout { .. }
            | Self::Value { .. } => None,
        }
    }
}
