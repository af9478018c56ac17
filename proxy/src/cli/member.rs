//! Flags by which a proxy joins a mesh, with fallbacks to a pod's environment variables.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use maglor_config::member::{Credentials, Member};
use maglor_config::raw::{NotationError, TimeSpan};

/// Flags that describe a mesh member.
#[derive(Args, Debug)]
pub(super) struct MemberArgs {
    /// Address of the control plane: HOST:PORT. A host NAME.NAMESPACE.svc is a Service of the cluster.
    #[arg(
        long,
        value_name = "HOST:PORT",
        default_value = "maglor-controller.maglor.svc:15010"
    )]
    control_plane: String,

    /// Trust domain of the mesh: all identities are spiffe://TRUST-DOMAIN/…
    #[arg(long, value_name = "NAME", default_value = "cluster.local")]
    trust_domain: String,

    /// DNS suffix of Services.
    #[arg(long, value_name = "NAME", default_value = "cluster.local")]
    cluster_domain: String,

    /// Token file that authenticates this proxy to the control plane, which then issues its certificate.
    #[arg(long, value_name = "FILE", requires = "trust_bundle", conflicts_with_all = ["certificate", "plain_text"])]
    token_file: Option<PathBuf>,

    /// Directory for the last valid resources and the identity, for a start while the control plane is
    /// unavailable. [default: nothing is stored]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,

    /// PEM file of this proxy's certificate, instead of a token; its only URI is a SPIFFE ID.
    #[arg(long, value_name = "FILE", requires_all = ["private_key", "trust_bundle"])]
    certificate: Option<PathBuf>,

    /// PEM file of the private key of --certificate.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    private_key: Option<PathBuf>,

    /// PEM file of the mesh's root certificates.
    #[arg(long, value_name = "FILE")]
    trust_bundle: Option<PathBuf>,

    /// Disable TLS to the control plane, which must be started with the same option. Only for a single
    /// machine and for tests.
    #[arg(long)]
    plain_text: bool,

    /// Namespace of the pod. [default: the variable POD_NAMESPACE]
    #[arg(long, value_name = "NAME")]
    pod_namespace: Option<String>,

    /// Name of the pod. [default: the variable POD_NAME]
    #[arg(long, value_name = "NAME")]
    pod_name: Option<String>,

    /// Addresses of the pod; the proxy listens on their address families. [default: the variable POD_IPS,
    /// or both families]
    #[arg(long, value_name = "IP,IP")]
    pod_ips: Option<String>,

    /// Listen on this address only. [default: all]
    #[arg(long, value_name = "IP")]
    bind: Option<IpAddr>,

    /// Port of the admin server: /ready, /live, /metrics and more (GET / lists them).
    #[arg(long, value_name = "PORT", default_value_t = 15020)]
    admin_port: u16,

    /// Threads that serve connections.
    #[arg(long, value_name = "N", default_value_t = 1)]
    workers: usize,

    /// Drain timeout of open connections at shutdown. [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    drain_timeout: Option<TimeSpan>,
}

/// Parses a duration in the configuration's notation.
pub(super) fn time(text: &str) -> Result<TimeSpan, String> {
    text.parse()
        .map_err(|error: NotationError| error.to_string())
}

/// Error in the flags and environment variables that describe a mesh member.
#[derive(Debug, thiserror::Error)]
pub(super) enum MemberError {
    #[error("{place}: `{text}` is not an IP address: write IP or IP,IP")]
    Address { place: &'static str, text: String },
    #[error("{flag}: missing; set it or the environment variable {variable}")]
    Missing {
        flag: &'static str,
        variable: &'static str,
    },
    #[error(
        "--token-file: it is missing: TLS to the control plane needs --token-file and --trust-bundle (or \
         --certificate, --private-key and --trust-bundle); --plain-text does without"
    )]
    NoIdentity,
}

impl MemberArgs {
    /// Returns the member that the flags and the environment describe, for a subcommand. On an error, prints
    /// it and returns the exit code of the program.
    pub(super) fn read(
        self,
        command: &str,
        memory_budget: Option<u64>,
    ) -> Result<Member, ExitCode> {
        self.member(memory_budget, |name| std::env::var(name).ok())
            .map_err(|error| {
                eprintln!("maglor-proxy {command}: {error}");
                ExitCode::from(2)
            })
    }

    /// Returns the member that the flags describe; `variable` reads the environment.
    ///
    /// # Errors
    /// For missing or invalid values; the error names the flag or variable.
    pub(super) fn member(
        self,
        memory_budget: Option<u64>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Member, MemberError> {
        let given = |flag, given: Option<String>, name| {
            let value = given.or_else(|| variable(name));
            value
                .filter(|value| !value.is_empty())
                .ok_or(MemberError::Missing {
                    flag,
                    variable: name,
                })
        };
        let namespace = given("--pod-namespace", self.pod_namespace, "POD_NAMESPACE")?;
        let name = given("--pod-name", self.pod_name, "POD_NAME")?;
        let addresses = match &self.pod_ips {
            Some(text) => addresses("--pod-ips", text)?,
            None => addresses("POD_IPS", &variable("POD_IPS").unwrap_or_default())?,
        };
        let files = (self.certificate, self.private_key);
        let credentials = match (self.token_file, files, self.trust_bundle) {
            (Some(token_file), _, Some(trust_bundle)) => Credentials::Token {
                token_file,
                trust_bundle,
            },
            (None, (Some(certificate), Some(private_key)), Some(trust_bundle)) => {
                Credentials::Files {
                    certificate,
                    private_key,
                    trust_bundle,
                }
            }
            _ if self.plain_text => Credentials::None,
            _ => return Err(MemberError::NoIdentity),
        };
        Ok(Member {
            control_plane: self.control_plane,
            trust_domain: self.trust_domain,
            cluster_domain: self.cluster_domain,
            credentials,
            cache_dir: self.cache_dir,
            plain_text: self.plain_text,
            namespace,
            name,
            addresses,
            bind: self.bind,
            admin_port: self.admin_port,
            workers: self.workers,
            memory_budget,
            drain_timeout: self.drain_timeout,
        })
    }
}

fn addresses(place: &'static str, text: &str) -> Result<Vec<IpAddr>, MemberError> {
    let parts = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let address = |part: &str| {
        part.parse().map_err(|_| MemberError::Address {
            place,
            text: part.to_owned(),
        })
    };
    parts.map(address).collect()
}
