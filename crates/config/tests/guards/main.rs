//! From the YAML of a field to the decision of its guard: each field decides otherwise than its default. That the
//! proxy takes the guards' parameters as they are, is shown by its own tests.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod health;
mod outlier;
mod overload;
mod retries;

use std::sync::Arc;

use maglor_balance::Time;
use maglor_config::{Cluster, Config};

/// So many milliseconds after the start.
fn at(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

/// A configuration with these settings of its listener, its route and its cluster.
fn config(listener: &str, route: &str, cluster: &str) -> Config {
    let yaml = format!(
        "listeners:\n- name: web\n  address: 127.0.0.1:80\n  {listener}\n  \
         http: {{virtual_hosts: [{{domains: '*', routes: [{{cluster: a, {route}}}]}}]}}\n\
         clusters: [{{name: a, endpoints: ['127.0.0.1:1', '127.0.0.1:2'], {cluster}}}]\n"
    );
    let loaded = maglor_config::parse(&yaml, "test");
    loaded.unwrap_or_else(|error| panic!("{error}")).config
}

fn cluster(settings: &str) -> Arc<Cluster> {
    Arc::clone(&config("", "", settings).clusters[0])
}
