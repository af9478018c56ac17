//! The plan of the demo: policies, speeds of the servers, number of requests.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use maglor_balance::PolicySpec;

/// The mean time that a server needs for a request; it processes one at a time.
const SERVICE_TIME: Duration = Duration::from_millis(10);
/// The factor by which the last server is slower.
const SLOWER: u32 = 2;
/// The utilization of the slow server when requests are distributed evenly. Below 1, so that no
/// policy is overloaded; all servers together are about half busy.
const SLOW_SERVER_BUSY: f64 = 0.9;
/// The policies that every policy is compared with.
const BASELINES: [&str; 3] = ["lor(choices=2)", "random", "round-robin"];

#[derive(Debug)]
pub(super) struct Plan {
    /// The policies in the order of the demo; the first is the requested one.
    pub(super) policies: Vec<PolicySpec>,
    pub(super) servers: usize,
    /// The mean rate in requests per second.
    pub(super) rate: f64,
    /// The duration of each policy.
    pub(super) each: Duration,
}

impl Plan {
    pub(super) fn new(policy: &PolicySpec, servers: u16, seconds: u64) -> Self {
        let mut policies = vec![policy.clone()];
        for baseline in BASELINES.iter().filter_map(|name| name.parse().ok()) {
            if !policies.contains(&baseline) {
                policies.push(baseline);
            }
        }
        let slow = SERVICE_TIME * SLOWER;
        let each = Duration::from_secs(seconds).div_f64(policies.len() as f64);
        Self {
            policies,
            servers: usize::from(servers),
            rate: f64::from(servers) * SLOW_SERVER_BUSY / slow.as_secs_f64(),
            each,
        }
    }

    /// Returns the mean service time of each server.
    pub(super) fn service_times(&self) -> Vec<Duration> {
        let mut times = vec![SERVICE_TIME; self.servers];
        if let Some(last) = times.last_mut() {
            *last *= SLOWER;
        }
        times
    }

    /// Returns the name of a policy's listener and cluster.
    pub(super) fn listener(index: usize) -> String {
        format!("demo-{index}")
    }

    /// Returns the proxy's configuration: a listener and a cluster for each policy, all with the
    /// same servers.
    pub(super) fn configuration(&self, servers: &[SocketAddr]) -> String {
        let mut listeners = String::from("listeners:\n");
        let mut clusters = String::from("clusters:\n");
        for (index, policy) in self.policies.iter().enumerate() {
            let name = Self::listener(index);
            let hash = if policy.uses_hash() {
                ", hash_policy: [{header: x-user}]"
            } else {
                ""
            };
            let _ = write!(
                listeners,
                "- name: {name}\n  address: 127.0.0.1:0\n  http:\n    virtual_hosts:\n    \
                 - domains: [\"*\"]\n      routes: [{{cluster: {name}{hash}}}]\n",
            );
            let endpoints: Vec<_> = servers.iter().map(|a| format!("\"{a}\"")).collect();
            let _ = write!(
                clusters,
                "- name: {name}\n  policy: {policy}\n  endpoints: [{}]\n",
                endpoints.join(", "),
            );
        }
        format!("admin: {{address: \"127.0.0.1:0\"}}\n{listeners}{clusters}")
    }

    /// Returns the introduction before the statistics; `listener` is that of the first policy.
    pub(super) fn introduction(
        &self,
        servers: &[SocketAddr],
        listener: Option<SocketAddr>,
        admin: SocketAddr,
    ) -> String {
        let ports: Vec<_> = servers.iter().map(|a| a.port().to_string()).collect();
        let listener = listener.map(|address| address.to_string());
        let listener = listener.unwrap_or_default();
        format!(
            "{count} HTTP servers on 127.0.0.1, ports {ports}. Each works on one request at a time, \
             for {fast} ms\non average; server {count} takes {slow} ms.\n\
             The proxy is in front of them: {policy} at {listener}, metrics at \
             http://{admin}/metrics.\n\
             Load: {rate:.0} requests/s at random moments, half of what the servers can do. \
             Press Ctrl-C to stop.\n\n",
            count = self.servers,
            ports = ports.join(", "),
            fast = SERVICE_TIME.as_millis(),
            slow = (SERVICE_TIME * SLOWER).as_millis(),
            policy = self.policies[0],
            rate = self.rate,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_shown_once() {
        let policies = |text: &str| Plan::new(&text.parse().unwrap(), 4, 20).policies;
        assert_eq!(policies("lor(choices=2)").len(), 3);
        assert_eq!(policies("peak-ewma").len(), 4);
        assert_eq!(policies("random")[0].to_string(), "random");
    }

    #[test]
    fn the_configuration_is_valid_for_every_policy() {
        let servers = [([127, 0, 0, 1], 9001).into(), ([127, 0, 0, 1], 9002).into()];
        for policy in ["peak-ewma", "maglev(table_size=251)", "ring-hash(min=64)"] {
            let plan = Plan::new(&policy.parse().unwrap(), 2, 20);
            let text = plan.configuration(&servers);
            let loaded = maglor_config::parse(&text, "demo").unwrap();
            assert_eq!(loaded.warnings, [], "{text}");
            assert_eq!(loaded.config.clusters.len(), 4);
        }
    }

    #[test]
    fn load_is_sustainable() {
        let plan = Plan::new(&"random".parse().unwrap(), 5, 20);
        let share = plan.rate / 5.0;
        let busy = |time: &Duration| share * time.as_secs_f64();
        assert!(plan.service_times().iter().all(|time| busy(time) < 0.95));
    }
}
