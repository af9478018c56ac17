//! Any bytes are a resource or are refused, and nothing panics: not reading them, not checking what
//! they say, not sending it on.
//!
//! The first byte chooses the kind. From crates/xds:
//!
//! ```text
//! cargo +nightly fuzz run resources -- -max_total_time=60
//! ```

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use maglor_config::resource;
use maglor_config::workload::{self, Workloads};
use maglor_xds::frame::Deframer;
use maglor_xds::load::{LoadReport, Wish};
use maglor_xds::proto::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use maglor_xds::{Message as _, decode, encode, snapshot};

fuzz_target!(|data: &[u8]| {
    let Some((kind, body)) = data.split_first() else {
        return;
    };
    match kind % 9 {
        0 => cluster(body),
        1 => drop(decode::usable_endpoints("a", body)),
        2 => drop(decode::listener("a", body)),
        3 => routes(body),
        4 => inbound(body),
        5 => drop(decode::bundle("default", body)),
        6 => drop(snapshot::read(body)),
        7 => load_report(body),
        _ => {
            let mut deframer = Deframer::new(1000);
            deframer.put(body);
            while let Ok(Some(message)) = deframer.message() {
                assert!(message.len() <= 1000);
            }
        }
    }
});

fn load_report(body: &[u8]) {
    if let Ok(request) = LoadStatsRequest::decode(body) {
        let report = LoadReport::read(&request);
        // A decoded resource is encoded and decoded again as the same one.
        let again = LoadReport::read(&report.request());
        assert_eq!(again.clusters.len(), report.clusters.len());
    }
    if let Ok(response) = LoadStatsResponse::decode(body) {
        drop(Wish::read(response));
    }
}

fn cluster(body: &[u8]) {
    if let Ok(decoded) = decode::cluster("a", body) {
        drop(resource::cluster(&decoded.raw, true));
        drop(encode::cluster(&decoded.raw));
    }
}

/// A listener to put it over.
const FILE: &str = "
identity: {certificate: a, private_key: a, trust_bundle: a}
control_plane: {cluster: a, node: {id: a/b}}
listeners: [{name: in, address: '[::]:1', tls: mesh, inbound: {discovery: a/b}}]
clusters: [{name: a, endpoints: ['127.0.0.1:1']}]";

fn inbound(body: &[u8]) {
    if let Ok((decoded, ahead)) = decode::inbound("a", body) {
        drop(decoded.check("a", true));
        drop(encode::inbound("a", &decoded, &ahead));
        let known = Workloads::from([("a/b".into(), Arc::new(decoded))]);
        drop(workload::overlay(FILE, &known));
    }
}

fn routes(body: &[u8]) {
    if let Ok(decoded) = decode::routes("a", body) {
        drop(resource::routes(&decoded));
        drop(encode::routes(&decoded));
    }
}
