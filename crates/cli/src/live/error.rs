//! Errors of queries to a mesh, with hints.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use http::StatusCode;
use kube::config::KubeconfigError;
use maglor_service_graph::file::prometheus::AnswerError;

/// Error of a query to a mesh.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LiveError {
    /// The response is not from a program of this mesh, or from another version.
    #[error("{whom}{path}: invalid response: {source}")]
    Answer {
        /// Name of the queried program.
        whom: String,
        /// Path of the request.
        path: String,
        /// Error of the parser.
        source: serde_json::Error,
    },
    /// The connection was refused.
    #[error("{whom}: {source}")]
    Connect {
        /// Name of the queried program.
        whom: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The connection failed.
    #[error("{whom}: {source}")]
    Http {
        /// Name of the queried program.
        whom: String,
        /// Error of the connection.
        source: hyper::Error,
    },
    /// The API server has rejected a request or does not respond.
    #[error("Kubernetes: cannot read {what}: {source}")]
    Kube {
        /// Description of the requested object.
        what: String,
        /// Error of the client.
        source: Box<kube::Error>,
    },
    /// No cluster is configured.
    #[error("kubeconfig: {0}")]
    Kubeconfig(Box<KubeconfigError>),
    /// A step of the installation's lifecycle failed.
    #[error("{0}")]
    Lifecycle(maglor_controller::lifecycle::LifecycleError),
    /// There is no running controller.
    #[error("no controller is running in namespace `{namespace}`")]
    NoController {
        /// Namespace that was searched.
        namespace: String,
    },
    /// There is no proxy to query, for this reason.
    #[error("{0}")]
    NoProxy(String),
    /// No proxy has kept the request.
    #[error("no proxy has kept a request `{id}`")]
    NoStory {
        /// Identifier of the request.
        id: String,
    },
    /// Neither a cluster nor a controller is given.
    #[error("this command queries the controller; --proxy is set, but not --controller")]
    NoControllerAddress,
    /// Neither a cluster nor a proxy is given.
    #[error("this command queries proxies; --controller is set, but not --proxy")]
    NoProxyAddress,
    /// No plan can be made, for this reason.
    #[error("{0}")]
    Plan(String),
    /// The port cannot be reached through the API server.
    #[error("{whom}: cannot connect to the pod: {why}")]
    PortForward {
        /// Name of the pod.
        whom: String,
        /// Error of the kubelet.
        why: String,
    },
    /// Prometheus' response is invalid.
    #[error("{source}; the query was {query}")]
    Prometheus {
        /// The query in PromQL.
        query: String,
        /// What is wrong with the response.
        source: Box<AnswerError>,
    },
    /// The controller's response contains a resource that this command cannot read.
    #[error("routes `{name}`: {why}")]
    Resource {
        /// Name of the resource.
        name: String,
        /// What is wrong with the resource.
        why: String,
    },
    /// A local port is taken.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The runtime cannot be set up.
    #[error("runtime: {0}")]
    Runtime(#[source] io::Error),
    /// A file is not a snapshot of the graph.
    #[error("{}: invalid graph snapshot: {source}", path.display())]
    Snapshot {
        /// Path of the file.
        path: PathBuf,
        /// Error of the parser.
        source: serde_json::Error,
    },
    /// The status of a response is not 200.
    #[error("{whom}{path}: {status}: {text}")]
    Status {
        /// Name of the queried program.
        whom: String,
        /// Path of the request.
        path: String,
        /// Status of the response.
        status: StatusCode,
        /// First line of the response.
        text: String,
    },
    /// The terminal cannot be used.
    #[error("terminal: {0}")]
    Terminal(#[source] io::Error),
    /// A value is invalid.
    #[error("{what} `{value}`: {expected}")]
    Value {
        /// Name of the value.
        what: &'static str,
        /// The invalid value.
        value: String,
        /// Description of the expected value.
        expected: &'static str,
    },
    /// The query timed out.
    #[error("{whom}{path}: timeout after {seconds} s")]
    Timeout {
        /// Name of the queried program.
        whom: String,
        /// Path of the request.
        path: String,
        /// Timeout in seconds.
        seconds: u64,
    },
}

impl LiveError {
    /// Returns a hint for fixing the error, if there is one.
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
            Self::Listen { .. } => Some("use --listen 127.0.0.1:0 for any free port"),
            Self::NoStory { .. } => Some(
                "proxies keep failed requests and the slowest 1 %, for ten minutes; `maglor why --recent` lists them",
            ),
            Self::PortForward { .. } => {
                Some("you need `create` and `get` on `pods/portforward` in that namespace")
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
