//! Errors of queries to a mesh, with hints.

use std::io;
use std::path::PathBuf;

use http::StatusCode;
use kube::config::KubeconfigError;
use maglor_service_graph::file::prometheus::AnswerError;

/// An error of a query; see the module's documentation.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LiveError {
    /// The response is not from our programs, or from another version.
    #[error("{whom}{path}: invalid response: {source}")]
    Answer {
        /// The queried program.
        whom: String,
        /// The path.
        path: String,
        /// The error.
        source: serde_json::Error,
    },
    /// Connection refused.
    #[error("{whom}: {source}")]
    Connect {
        /// The queried program.
        whom: String,
        /// The system's error.
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The connection failed.
    #[error("{whom}: {source}")]
    Http {
        /// The queried program.
        whom: String,
        /// The error of the connection.
        source: hyper::Error,
    },
    /// The API server has rejected a request, or does not respond.
    #[error("Kubernetes: cannot read {what}: {source}")]
    Kube {
        /// The requested object.
        what: String,
        /// The error of the client.
        source: Box<kube::Error>,
    },
    /// No cluster is configured.
    #[error("kubeconfig: {0}")]
    Kubeconfig(Box<KubeconfigError>),
    /// A step of the installation's lifecycle failed.
    #[error("{0}")]
    Lifecycle(maglor_controller::lifecycle::LifecycleError),
    /// There is no controller.
    #[error("no controller is running in namespace `{namespace}`")]
    NoController {
        /// The searched namespace.
        namespace: String,
    },
    /// There is no proxy to query.
    #[error("{0}")]
    NoProxy(String),
    /// Neither a cluster nor a controller is given.
    #[error("this command queries the controller; --proxy is set, but not --controller")]
    NoControllerAddress,
    /// Neither a cluster nor a proxy is given.
    #[error("this command queries proxies; --controller is set, but not --proxy")]
    NoProxyAddress,
    /// No plan can be made.
    #[error("{0}")]
    Plan(String),
    /// The port cannot be reached through the API server.
    #[error("{whom}: cannot connect to the pod: {why}")]
    PortForward {
        /// The pod.
        whom: String,
        /// The kubelet's error.
        why: String,
    },
    /// Prometheus' response is invalid.
    #[error("{source}; the query was {query}")]
    Prometheus {
        /// The query, in PromQL.
        query: String,
        /// The error.
        source: Box<AnswerError>,
    },
    /// The controller's response contains a resource that this command cannot read.
    #[error("routes `{name}`: {why}")]
    Resource {
        /// The name of the resource.
        name: String,
        /// The error.
        why: String,
    },
    /// The runtime cannot be set up.
    #[error("runtime: {0}")]
    Runtime(#[source] io::Error),
    /// A file is not one of ours.
    #[error("{}: invalid graph snapshot: {source}", path.display())]
    Snapshot {
        /// The path.
        path: PathBuf,
        /// The error.
        source: serde_json::Error,
    },
    /// The status is not 200.
    #[error("{whom}{path}: {status}: {text}")]
    Status {
        /// The queried program.
        whom: String,
        /// The path.
        path: String,
        /// The status.
        status: StatusCode,
        /// The first line of the reason.
        text: String,
    },
    /// The terminal cannot be used.
    #[error("terminal: {0}")]
    Terminal(#[source] io::Error),
    /// A value is invalid.
    #[error("{what} `{value}`: {expected}")]
    Value {
        /// The name of the value.
        what: &'static str,
        /// The value.
        value: String,
        /// The expected value.
        expected: &'static str,
    },
    /// The query timed out.
    #[error("{whom}{path}: timeout after {seconds} s")]
    Timeout {
        /// The queried program.
        whom: String,
        /// The path.
        path: String,
        /// The time limit in seconds.
        seconds: u64,
    },
}

impl LiveError {
    /// Returns a hint.
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
            Self::Snapshot { .. } => Some("`maglor graph -o json` prints a snapshot"),
            Self::Status {
                status: StatusCode::NOT_FOUND,
                ..
            } => Some("the page does not exist, or the server is older than this command"),
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
            | Self::Terminal(_)
            | Self::Timeout { .. }
            | Self::Value { .. } => None,
        }
    }
}
