//! linkerd2-proxy: its environment, and the control plane that it needs to run.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::child::Guarded;
use crate::error::Result;
use crate::linkerd::{Documents, NAME, ServiceEndpoints};
use crate::redirection::NETWORK;
use crate::{ports, sys};

/// A stand-in for the control plane, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct LinkerdControl {
    address: SocketAddr,
    directory: PathBuf,
    trust_anchors: String,
    _child: Guarded,
}

/// The listening addresses of a proxy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listeners {
    pub(crate) outbound: SocketAddr,
    pub(crate) inbound: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl LinkerdControl {
    /// Starts it on the processors of the harness; `directory` gets the files that proxies need. With `mesh`, endpoints
    /// have a proxy, too.
    pub(crate) fn start(
        directory: &Path,
        services: &[ServiceEndpoints],
        mesh: bool,
    ) -> Result<Self> {
        let documents = Documents::create()?;
        documents.write(directory)?;
        let address = ports::free()?;
        let argument = |name, value: &dyn fmt::Display| format!("--{name}={value}");
        let mut arguments = vec![
            argument("listen", &address),
            argument("directory", &directory.display()),
        ];
        arguments.extend(services.iter().map(|one| argument("service", one)));
        arguments.extend(mesh.then(|| "--mesh".to_owned()));
        let mut child = Guarded::role_on("linkerd-control", &arguments, &sys::allowed_cpus())?;
        child.wait_ready()?;
        Ok(Self {
            address,
            directory: directory.into(),
            trust_anchors: documents.trust_anchors(),
            _child: child,
        })
    }

    /// Returns the command of a proxy with one worker thread and, apart from addresses, its defaults.
    pub(crate) fn command(&self, binary: &Path, listeners: Listeners) -> Command {
        let directory = self.directory.display();
        let mut command = Command::new(binary);
        command.env_clear();
        for (name, value) in [
            ("ADMIN_LISTEN_ADDR", listeners.admin.to_string()),
            ("CORES", "1".into()),
            ("DESTINATION_PROFILE_NETWORKS", NETWORK.into()),
            ("DESTINATION_SVC_ADDR", self.address.to_string()),
            ("IDENTITY_DIR", directory.to_string()),
            ("IDENTITY_LOCAL_NAME", NAME.into()),
            ("IDENTITY_SVC_ADDR", self.address.to_string()),
            ("IDENTITY_TOKEN_FILE", format!("{directory}/token")),
            ("IDENTITY_TRUST_ANCHORS", self.trust_anchors.clone()),
            ("INBOUND_LISTEN_ADDR", listeners.inbound.to_string()),
            ("LOG", "warn".into()),
            ("OUTBOUND_LISTEN_ADDR", listeners.outbound.to_string()),
            ("POLICY_SVC_ADDR", self.address.to_string()),
            ("POLICY_WORKLOAD", "bench".into()),
            // The harness ends it once it has been measured, and waits for that.
            ("SHUTDOWN_GRACE_PERIOD", "500ms".into()),
        ] {
            command.env(format!("LINKERD2_PROXY_{name}"), value);
        }
        command
    }
}
