//! The pages of an admin port, as its own index lists them: a page that is added later is attacked, too.

use maglor_testkit::cluster::Kubectl;
use serde_json::Value;

/// A port that is attacked, and its pages.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    /// The owner of the port, for messages.
    pub(crate) what: &'static str,
    pub(crate) namespace: &'static str,
    pub(crate) pod: String,
    pub(crate) address: std::net::SocketAddr,
    /// Paths for every peer.
    pub(crate) public: Vec<String>,
    /// Paths for operators.
    pub(crate) private: Vec<String>,
}

impl Port {
    /// The admin port of a pod; its pages are requested over loopback, like by port-forward.
    pub(crate) fn of(
        kubectl: &Kubectl,
        what: &'static str,
        namespace: &'static str,
        pod: &Value,
        port: u16,
    ) -> Self {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let ip: std::net::IpAddr = pod["status"]["podIP"].as_str().unwrap().parse().unwrap();
        let forward = kubectl.forward(namespace, name, port).unwrap();
        let index = forward.get("/").expect("an operator gets the index");
        let [mut public, mut private] = maglor_testkit::listed_pages(&index).map(Vec::from_iter);
        // The page of probes represents those of the pod.
        public.retain(|path| !path.ends_with('/'));
        public.extend(probes(pod));
        private.push("/".to_owned());
        println!("{what}: every peer gets {public:?}, operators {private:?}");
        assert!(public.len() >= 3 && private.len() >= 5, "{index}");
        Self {
            what,
            namespace,
            pod: name.to_owned(),
            address: (ip, port).into(),
            public,
            private,
        }
    }
}

/// The paths of a pod's probes that the admin port passes on to the application.
fn probes(pod: &Value) -> Vec<String> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let paths = containers.filter_map(|one| one["readinessProbe"]["httpGet"]["path"].as_str());
    let probes = paths.filter(|path| path.starts_with("/probe/"));
    probes.map(str::to_owned).collect()
}
