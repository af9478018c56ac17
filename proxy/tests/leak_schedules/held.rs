//! Resources that a proxy holds, by its own counts and by the system's.

use maglor_testkit::Proxy;

/// See the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    pub(crate) clients: f64,
    pub(crate) requests: f64,
    pub(crate) connections: f64,
    /// By the clusters' own counts: admitted requests, waiting ones, connections if their number is limited;
    /// and those of each endpoint.
    pub(crate) places: u64,
    /// Bytes of bodies that are kept to be sent again.
    pub(crate) kept: f64,
    pub(crate) tasks: f64,
    pub(crate) files: usize,
    /// Size of the heap, in bytes.
    pub(crate) heap: f64,
}

impl Held {
    pub(crate) fn by(proxy: &Proxy) -> Self {
        let page = proxy.admin_get("/metrics");
        let sum = |name: &str| -> f64 {
            let lines = page.text().lines().filter(|line| {
                let end = line.find(['{', ' ']).unwrap_or(line.len());
                line[..end] == *name
            });
            lines
                .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
                .sum()
        };
        let clusters = proxy.admin_get("/clusters").json();
        let clusters = clusters["clusters"].as_array().unwrap();
        let count = |value: &serde_json::Value| value.as_u64().unwrap();
        let places = |cluster: &serde_json::Value| {
            let names = [
                "requests",
                "waiting",
                "connections",
                "waiting_for_connection",
            ];
            let own: u64 = names.iter().map(|name| count(&cluster[name])).sum();
            let endpoints = cluster["endpoints"].as_array().unwrap();
            let theirs = endpoints
                .iter()
                .map(|one| count(&one["outstanding"]) + count(&one["places_taken"]));
            own + theirs.sum::<u64>()
        };
        Self {
            clients: sum("maglor_downstream_open_connections"),
            requests: sum("maglor_upstream_outstanding_requests"),
            connections: sum("maglor_upstream_open_connections"),
            places: clusters.iter().map(places).sum(),
            kept: sum("maglor_memory_kept_bytes"),
            tasks: sum("maglor_worker_tasks"),
            files: proxy.open_files(),
            heap: sum("maglor_memory_heap_bytes"),
        }
    }

    /// Returns whether nothing but memory is held beyond the state before.
    pub(crate) fn is_back(&self, before: &Self) -> bool {
        self.clients == 0.0
            && self.requests == 0.0
            && self.connections == 0.0
            && self.places == 0
            && self.kept == 0.0
            && self.tasks <= before.tasks
            && self.files <= before.files
    }
}

/// Returns the requests that a proxy has answered, by class of status; `none` = the client disconnected first.
pub(crate) fn answered(proxy: &Proxy) -> String {
    let count = |class: &str| {
        let label = format!("status=\"{class}\"");
        proxy.metric("maglor_http_requests_total", &[&label])
    };
    let classes = ["2xx", "4xx", "5xx", "none"];
    classes
        .map(|class| format!("{class} {}", count(class)))
        .join(", ")
}
