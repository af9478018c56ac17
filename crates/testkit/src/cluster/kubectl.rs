//! `kubectl`, the client of the cluster.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::cluster::error::{ClusterError, feed, run};

/// The `kubectl` of one cluster, as its administrator.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    pub(crate) fn new(program: PathBuf, kubeconfig: PathBuf) -> Self {
        Self {
            program,
            kubeconfig,
        }
    }

    /// Returns the path of the kubeconfig, with the API server's address and the credentials.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns a command of `kubectl` without arguments.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("KUBECONFIG", &self.kubeconfig);
        command
    }

    /// Runs `kubectl` with arguments; returns its standard output.
    ///
    /// # Errors
    ///
    /// `kubectl` fails.
    pub fn run(&self, arguments: &[&str]) -> Result<String, ClusterError> {
        run(self.command().args(arguments))
    }

    /// Runs `kubectl` with arguments and `-o json`; returns the parsed output.
    ///
    /// # Errors
    ///
    /// `kubectl` fails, or its output is not JSON.
    pub fn json(&self, arguments: &[&str]) -> Result<Value, ClusterError> {
        let text = self.run(&[arguments, &["-o", "json"]].concat())?;
        serde_json::from_str(&text).map_err(|error| ClusterError::Command {
            command: format!("kubectl {} -o json", arguments.join(" ")),
            detail: error.to_string(),
        })
    }

    /// Returns a resource for comparison with a later state, without `resourceVersion`; `managedFields` is replaced by
    /// whether `manager` owns any field.
    ///
    /// # Errors
    /// There is no such resource, or it cannot be read.
    pub fn as_kept(&self, resource: &[&str], manager: &str) -> Result<Value, ClusterError> {
        let get = [&["get"], resource, &["--show-managed-fields"]].concat();
        let mut kept = self.json(&get)?;
        let meta = kept["metadata"].as_object_mut();
        let fields = meta.and_then(|meta| {
            meta.remove("resourceVersion");
            meta.remove("managedFields")
        });
        let Some(Value::Array(entries)) = fields else {
            return Err(ClusterError::Command {
                command: format!("kubectl {}", get.join(" ")),
                detail: "the object has no managedFields".to_owned(),
            });
        };
        let owned = entries.iter().any(|entry| entry["manager"] == manager);
        kept["owned by us"] = Value::Bool(owned);
        Ok(kept)
    }

    /// Applies a manifest, in YAML or JSON, by server-side apply.
    ///
    /// # Errors
    ///
    /// The API server rejects the manifest.
    pub fn apply(&self, manifest: &str) -> Result<(), ClusterError> {
        let arguments = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        self.with_input(&arguments, manifest).map(drop)
    }

    /// Runs `kubectl` with a text as its standard input; returns its standard output.
    ///
    /// # Errors
    ///
    /// `kubectl` fails.
    pub fn with_input(&self, arguments: &[&str], text: &str) -> Result<String, ClusterError> {
        feed(self.command().args(arguments), text)
    }

    /// Returns the names of nodes, and whether each is ready.
    ///
    /// # Errors
    ///
    /// The API server does not respond.
    pub fn nodes(&self) -> Result<Vec<(String, bool)>, ClusterError> {
        let list = self.json(&["get", "nodes"])?;
        let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        let node = |item: &Value| {
            let name = item["metadata"]["name"].as_str().unwrap_or_default();
            (name.to_owned(), is_ready(item))
        };
        Ok(items.iter().map(node).collect())
    }
}

fn is_ready(item: &Value) -> bool {
    let conditions = item["status"]["conditions"].as_array();
    conditions.is_some_and(|conditions| {
        conditions
            .iter()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ready_is_a_condition_that_is_true() {
        let node =
            |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        assert!(is_ready(&node("True")));
        assert!(!is_ready(&node("Unknown")));
        assert!(!is_ready(&json!({})));
    }
}
