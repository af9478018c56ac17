//! The dashboard on a real Kubernetes: who may read it over HTTPS, and the page in a Chromium, through `maglor
//! dashboard` and over the network: the graph while traffic changes, a replica that is deleted, live requests and
//! explanations of sidecars, with the permissions of the viewer.
//!
//! Ignored without `cargo xtask e2e`: the first time it builds Kubernetes. It needs root, Chromium and curl, and reports
//! when it skips.

mod network;
mod viewer;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use maglor_testkit::browser::{Browser, Device, Page};
use maglor_testkit::cluster::Kubectl;

use crate::support::installed::{Installed, until};
use crate::support::load::Load;
use crate::support::shop::{self, deploy_users_and_details, lasting};
use network::{Client, HOST_NAME};
use viewer::{Forwarded, Viewer};

const USERS: &str = include_str!("dashboard/users.yaml");
/// A window of a laptop.
const DESKTOP: Device = Device {
    width: 1280,
    height: 800,
    dark: false,
};
/// The port of the page over the network.
const HTTPS: u16 = 15_015;
/// Rates of requests a second, one after another, that a busy machine sustains, too.
const RATES: [u32; 3] = [12, 4, 18];
/// The edge of the calls, and the called service.
const EDGE: [&str; 2] = ["shop/users", "shop/details"];

#[test]
#[ignore = "builds Kubernetes the first time, for a quarter of an hour: cargo xtask e2e"]
fn the_page_is_true_and_shows_what_its_viewer_may_see() {
    let Some(program) = Browser::installed() else {
        println!("skipped: no Chromium is installed; on Debian: apt-get install chromium");
        return;
    };
    let host_names = format!("dashboard.https=true,dashboard.hostNames={{{HOST_NAME}}}");
    let Some(installed) = Installed::start_on("dashboard", 2, &[&host_names]) else {
        return;
    };
    let kubectl = installed.kubectl();
    deploy_users_and_details(kubectl, "disabled");
    kubectl.apply(USERS).unwrap();
    let client = Client::new(&installed, controller(kubectl));
    client.permissions_are_checked();
    client.foreign_sites_are_refused();

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    // Its connections are made in the network of the control plane, from where pods are reachable; so is that by which it
    // is driven.
    let handle = runtime.handle().clone();
    let started = move || handle.block_on(Browser::start(&program));
    let browser = installed.cluster.in_network(started).unwrap();
    let forwarded = Forwarded::start(&installed);
    let near = runtime.block_on(page(&browser, &forwarded.url));
    let far = runtime.block_on(page(&browser, &format!("https://{}/", client.address)));
    let users = SocketAddr::from((shop::address(kubectl, "users"), 9080));
    let mut load = Load::start(&installed.cluster, users, RATES[0]);
    runtime.block_on(far.enter(&client.token("viewer")));
    for (at, rate) in RATES.into_iter().enumerate() {
        if at > 0 {
            load.stop();
            load = Load::start(&installed.cluster, users, rate);
        }
        let begun = Instant::now();
        for viewer in [&near, &far] {
            runtime.block_on(viewer.shows_rate(EDGE, rate));
        }
        println!(
            "{rate} requests a second are shown after {:?}",
            begun.elapsed()
        );
    }
    runtime.block_on(near.tap_and_why(&client.token("viewer")));
    runtime.block_on(far.tap_and_why_without_question());
    deleted_pods_disappear(&installed, &runtime, [&near, &far]);
    load.stop();

    let reader = runtime.block_on(page(&browser, &format!("https://{}/", client.address)));
    runtime.block_on(reader.enter(&client.token("reader")));
    runtime.block_on(reader.may_not_connect_to_proxies());
    // The stream of an open page ends, too.
    let binding = ["delete", "clusterrolebinding", "reader-of-dashboard"];
    kubectl.run(&binding).unwrap();
    until("the revoked permission is noticed", || {
        runtime.block_on(reader.is_refused())
    });
    runtime.block_on(far.is_live());
    drop((near, far, reader, forwarded, browser));
    installed.stop();
}

/// The address of the page of a controller.
fn controller(kubectl: &Kubectl) -> SocketAddr {
    let name = "app.kubernetes.io/name=maglor-controller";
    let pods = kubectl.json(&["get", "pods", "-n", "maglor", "--selector", name]);
    let pods = pods.unwrap();
    let address: Ipv4Addr = pods["items"][0]["status"]["podIP"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    SocketAddr::from((address, HTTPS))
}

async fn page(browser: &Browser, url: &str) -> Viewer {
    let page: Page = browser.page().await;
    page.emulate(DESKTOP).await;
    page.accept_any_certificate().await;
    page.navigate(url).await;
    Viewer {
        page,
        url: url.to_owned(),
    }
}

/// Deletes replicas of the called service without grace, one for each viewer, who sees its endpoints.
fn deleted_pods_disappear(
    installed: &Installed,
    runtime: &tokio::runtime::Runtime,
    viewers: [&Viewer; 2],
) {
    let kubectl = installed.kubectl();
    for viewer in viewers {
        let mut names = Vec::new();
        until("there are three replicas", || {
            let pods = lasting(kubectl, "details");
            let all = pods.iter().map(|pod| &pod["metadata"]["name"]);
            names = all.map(|name| name.as_str().unwrap().to_owned()).collect();
            names.len() == 3
        });
        runtime.block_on(viewer.shows_endpoints(EDGE[1], &names));
        let deleted = Instant::now();
        let delete = ["delete", "pod", &names[0], "-n", "shop"];
        let now = ["--grace-period=0", "--force", "--wait=false"];
        kubectl.run(&[&delete[..], &now].concat()).unwrap();
        runtime.block_on(viewer.shows_no_endpoint(&names[0]));
        println!(
            "the deleted replica is not shown any more after {:?}",
            deleted.elapsed()
        );
    }
}
