//! Shared code of the tests of the whole proxy: configurations and helpers to communicate with it.

use std::net::SocketAddr;

pub(crate) mod collector;
pub(crate) mod control_plane;
pub(crate) mod h2;
pub(crate) mod mesh;
pub(crate) mod netns;
pub(crate) mod relay;
pub(crate) mod replicas;

use maglor_testkit::{Proxy, ProxyBuilder, RawHttp1, RawResponse, TIMEOUT, eventually};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

/// Returns the builder of a proxy.
pub(crate) fn builder() -> ProxyBuilder {
    ProxyBuilder::new(env!("CARGO_BIN_EXE_maglor-proxy"))
}

/// Starts a proxy with this configuration.
#[track_caller]
pub(crate) fn start(config: &str) -> Proxy {
    builder().config(config).start()
}

/// Returns whether `name` is in the list of an environment variable (`a,b`); without the variable every name is.
pub(crate) fn is_chosen(variable: &str, name: &str) -> bool {
    let names = std::env::var(variable).ok();
    names.is_none_or(|names| names.split(',').any(|one| one == name))
}

/// Runs `act` while the proxy can open no further descriptors.
pub(crate) fn without_descriptors(proxy: &Proxy, act: impl FnOnce()) {
    let pid = Pid::from_raw(i32::try_from(proxy.pid()).unwrap());
    let usual = getrlimit(Resource::Nofile);
    let none = Rlimit {
        current: Some(3),
        maximum: usual.maximum,
    };
    prlimit(pid, Resource::Nofile, none).unwrap();
    act();
    prlimit(pid, Resource::Nofile, usual).unwrap();
}

/// A minimal configuration of the proxy, with room for settings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Web {
    endpoints: Vec<SocketAddr>,
    top: String,
    listener: String,
    http: String,
    route: String,
    cluster: String,
}

impl Web {
    /// Creates a configuration that sends everything to these endpoints.
    pub(crate) fn to(endpoints: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self {
            endpoints: endpoints.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Adds top-level settings, one a line.
    pub(crate) fn top(mut self, settings: &str) -> Self {
        self.top.push_str(settings);
        self.top.push('\n');
        self
    }

    /// Adds a setting of the listener, as in `max_connections: 1`.
    pub(crate) fn listener(mut self, setting: &str) -> Self {
        self.listener.push_str(&format!("  {setting}\n"));
        self
    }

    /// Adds settings of `http`.
    pub(crate) fn http(mut self, settings: &str) -> Self {
        push(&mut self.http, settings);
        self
    }

    /// Adds settings of the only route.
    pub(crate) fn route(mut self, settings: &str) -> Self {
        push(&mut self.route, settings);
        self
    }

    /// Adds settings of the cluster.
    pub(crate) fn cluster(mut self, settings: &str) -> Self {
        push(&mut self.cluster, settings);
        self
    }

    /// Returns the configuration's text.
    pub(crate) fn yaml(&self) -> String {
        let endpoints: Vec<_> = self.endpoints.iter().map(|e| format!("\"{e}\"")).collect();
        format!(
            "admin: {{address: \"127.0.0.1:0\"}}\n{top}\
             listeners:\n- name: web\n  address: 127.0.0.1:0\n{listener}  \
             http: {{virtual_hosts: [{{domains: ['*'], routes: [{{cluster: backend{route}}}]}}]{http}}}\n\
             clusters:\n- {{name: backend, endpoints: [{endpoints}]{cluster}}}\n",
            top = self.top,
            listener = self.listener,
            route = self.route,
            http = self.http,
            cluster = self.cluster,
            endpoints = endpoints.join(", "),
        )
    }

    /// Starts a proxy with it.
    #[track_caller]
    pub(crate) fn start(&self) -> Proxy {
        start(&self.yaml())
    }
}

fn push(settings: &mut String, more: &str) {
    settings.push_str(", ");
    settings.push_str(more);
}

/// Connects to the listener `web`.
#[track_caller]
pub(crate) fn connect(proxy: &Proxy) -> RawHttp1 {
    RawHttp1::connect(proxy.listener("web"))
}

/// Sends one GET on a separate connection.
#[track_caller]
pub(crate) fn get(proxy: &Proxy, path: &str) -> RawResponse {
    connect(proxy).get(path)
}

/// Returns the number of requests in progress, by the proxy's count.
#[track_caller]
pub(crate) fn outstanding(proxy: &Proxy) -> f64 {
    proxy.metric("maglor_upstream_outstanding_requests", &[])
}

/// Waits until no request is in progress and no client is connected.
#[track_caller]
pub(crate) fn wait_quiet(proxy: &Proxy) {
    eventually(TIMEOUT, "no request is outstanding", || {
        outstanding(proxy) == 0.0
    });
    eventually(TIMEOUT, "no client is connected", || {
        proxy.metric("maglor_downstream_open_connections", &[]) == 0.0
    });
}

/// Returns the number of applied configurations, including that of the start.
#[track_caller]
pub(crate) fn applied(proxy: &Proxy) -> u64 {
    proxy.metric("maglor_config_reloads_total", &["result=\"applied\""]) as u64
}

/// Returns the number of rejected configurations.
#[track_caller]
pub(crate) fn refused(proxy: &Proxy) -> u64 {
    proxy.metric("maglor_config_reloads_total", &["result=\"refused\""]) as u64
}

/// Replaces the configuration and waits until the new one is in force.
#[track_caller]
pub(crate) fn reload(proxy: &Proxy, config: &str) {
    let before = applied(proxy);
    proxy.replace_config(config);
    eventually(TIMEOUT, "the configuration is applied", || {
        applied(proxy) > before
    });
}

/// Returns the current address of a listener, from the admin port.
#[track_caller]
pub(crate) fn address_now(proxy: &Proxy, listener: &str) -> SocketAddr {
    let listeners = proxy.admin_get("/listeners").json();
    let address = listeners[listener]
        .as_str()
        .expect("there is such a listener");
    address.parse().expect("an address")
}
