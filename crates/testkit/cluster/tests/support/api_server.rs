//! The API server as its administrator reaches it, by curl: `kubectl get --raw` changes paths.

use std::process::Command;

use maglor_testkit::cluster::Kubectl;

pub(crate) struct ApiServer {
    address: String,
    authorization: String,
}

impl ApiServer {
    pub(crate) fn of(kubectl: &Kubectl) -> Self {
        let view = |path: &str| {
            let path = format!("jsonpath={{{path}}}");
            kubectl
                .run(&["config", "view", "--raw", "-o", &path])
                .unwrap()
        };
        Self {
            address: view(".clusters[0].cluster.server"),
            authorization: format!("authorization: Bearer {}", view(".users[0].user.token")),
        }
    }

    /// The output of curl with these arguments.
    pub(crate) fn curl(&self, target: &str, arguments: &[&str]) -> String {
        let output = Command::new("curl")
            .args(["-sk", "-H", &self.authorization])
            .args(arguments)
            .arg(format!("{}{target}", self.address))
            .output();
        String::from_utf8_lossy(&output.unwrap().stdout).into_owned()
    }
}
