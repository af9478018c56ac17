//! Clients that do not read their responses, and endpoints that do not read uploads: whatever their number,
//! other requests on the same connections continue.

use std::time::Duration;

use futures_util::future::join_all;
use http::Response;
use hyper::body::Incoming;
use maglor_testkit::{Proxy, TIMEOUT, Upstream, eventually, pattern};

use crate::support::h2::{self, Client};
use crate::support::mesh::Root;
use crate::support::{Web, outstanding, start};

/// Numbers of stalled streams.
const STALLED: [usize; 4] = [12, 24, 64, 200];
/// Streams of one client's connection, below a listener's limit.
const BY_CLIENT: usize = 100;

/// Two workloads of the mesh in front of an application, so that all requests share one connection.
struct Pair {
    _root: Root,
    inbound: Proxy,
    outbound: Proxy,
}

impl Pair {
    fn start(protocol: &str, inbound: impl FnOnce(&str) -> Proxy) -> Self {
        let root = Root::new();
        let inbound = inbound(&root.member("server").yaml());
        let outbound = Web::to([inbound.listener("web")])
            .top(&root.member("client").yaml())
            .cluster("tls: mesh, max_concurrent_streams: 512")
            .cluster(protocol)
            .start();
        Self {
            _root: root,
            inbound,
            outbound,
        }
    }

    fn to(application: &Upstream, protocol: &str) -> Self {
        Self::start(protocol, |identity| {
            Web::to([application.address()])
                .top(identity)
                .listener("tls: mesh")
                .http("max_concurrent_streams: 512")
                .start()
        })
    }

    /// Returns the number of connections between the two.
    fn connections(&self) -> f64 {
        let name = "maglor_downstream_protocol_detected_total";
        ["mux", "http2"]
            .map(|protocol| {
                let label = format!("protocol=\"{protocol}\"");
                self.inbound.metric(name, &[&label])
            })
            .iter()
            .sum()
    }
}

/// Connects as many clients as are needed for this many streams.
fn clients(proxy: &Proxy, streams: usize) -> Vec<Client> {
    let many = streams.div_ceil(BY_CLIENT);
    let clients = (0..many).map(|_| Client::connect(proxy.listener("web")));
    clients.collect()
}

/// Starts this many responses of which only the heads are read.
fn stall_responses(clients: &mut [Client], streams: usize) -> Vec<Response<Incoming>> {
    let mut stalled = Vec::new();
    for client in clients {
        let more = BY_CLIENT.min(streams - stalled.len());
        let sent: Vec<_> = (0..more)
            .map(|_| client.send(h2::get("/bytes/600000")))
            .collect();
        stalled.extend(
            client
                .run(join_all(sent))
                .into_iter()
                .map(|sent| sent.expect("a response")),
        );
    }
    stalled
}

fn ask_all_is_well(client: &mut Client, what: &str) {
    for _ in 0..10 {
        let answer = client.ask(h2::get("/bytes/200000"));
        assert!(answer.body == pattern::bytes(200_000), "{what}");
    }
}

fn upload_all_is_well(client: &mut Client, what: &str) {
    for _ in 0..10 {
        let body = h2::full(pattern::bytes(200_000));
        let answer = client.ask(h2::request("POST", "/upload", body));
        assert_eq!(answer.json()["bytes"], 200_000, "{what}");
    }
}

/// Uploads, and cancels the upload if there is no response in time.
fn upload_ends_within(client: &mut Client, limit: Duration) -> bool {
    let body = h2::full(pattern::bytes(200_000));
    let sent = client.send(h2::request("POST", "/upload", body));
    let limited = async { tokio::time::timeout(limit, sent).await };
    client.run(limited).is_ok_and(|response| response.is_ok())
}

fn responses_stall_alone(protocol: &str) {
    let application = Upstream::start("a");
    for streams in STALLED {
        let pair = Pair::to(&application, protocol);
        let mut slow = clients(&pair.outbound, streams);
        let stalled = stall_responses(&mut slow, streams);
        let mut other = Client::connect(pair.outbound.listener("web"));
        ask_all_is_well(&mut other, &format!("{streams} slow readers"));
        assert!(pair.connections() <= 1.0, "{streams} slow readers");
        drop(stalled);
        eventually(TIMEOUT, "nothing is under way", || {
            outstanding(&pair.outbound) == 0.0
        });
    }
}

#[test]
fn slow_readers_delay_no_other_response_of_the_mesh_transport() {
    responses_stall_alone("policy: random");
}

#[test]
fn slow_readers_delay_no_other_response_of_http2_between_members() {
    responses_stall_alone("protocol: http2");
}

/// Starts a proxy whose `/hang` reads hardly anything of an upload, on separate connections.
fn two_applications(identity: &str, slow: &Upstream, fast: &Upstream) -> Proxy {
    start(&format!(
        "admin: {{address: '127.0.0.1:0'}}
{identity}
listeners:
- name: web
  address: 127.0.0.1:0
{tls}  http:
    max_concurrent_streams: 512
    virtual_hosts: [{{domains: ['*'], routes: [{{match: {{path: /hang}}, cluster: slow}}, {{cluster: fast}}]}}]
clusters:
- {{name: slow, endpoints: ['{}'], protocol: http2, max_concurrent_streams: 512}}
- {{name: fast, endpoints: ['{}']}}
",
        slow.address(),
        fast.address(),
        tls = if identity.is_empty() { "" } else { "  tls: mesh\n" },
    ))
}

/// Starts this many uploads that are never read; they are cancelled on drop.
fn stall_uploads(
    proxy: &Proxy,
    clients: &mut [Client],
    streams: usize,
) -> Vec<impl Future<Output = hyper::Result<Response<Incoming>>> + use<>> {
    let mut stalled = Vec::new();
    let body = pattern::bytes(300_000);
    for client in clients.iter_mut() {
        let more = BY_CLIENT.min(streams - stalled.len());
        for _ in 0..more {
            let sent = client.send(h2::request("POST", "/hang", h2::full(body.clone())));
            let mut sent = Box::pin(sent);
            client.run(std::future::poll_fn(|cx| {
                assert!(sent.as_mut().poll(cx).is_pending());
                std::task::Poll::Ready(())
            }));
            stalled.push(sent);
        }
        // A future is sent when its connection is ready; the driver does the rest.
        client.run(tokio::task::yield_now());
    }
    eventually(TIMEOUT, "all uploads have begun", || {
        outstanding(proxy) >= streams as f64
    });
    stalled
}

#[test]
fn uploads_that_stand_still_delay_no_other_upload_of_the_mesh_transport() {
    uploads_stall_alone("policy: random");
}

#[test]
fn uploads_that_stand_still_delay_no_other_upload_of_http2_between_members() {
    uploads_stall_alone("protocol: http2");
}

fn uploads_stall_alone(protocol: &str) {
    let (slow, fast) = (Upstream::start("slow"), Upstream::start("fast"));
    for streams in STALLED {
        let pair = Pair::start(protocol, |identity| {
            two_applications(identity, &slow, &fast)
        });
        let mut uploading = clients(&pair.outbound, streams);
        let stalled = stall_uploads(&pair.outbound, &mut uploading, streams);
        let mut other = Client::connect(pair.outbound.listener("web"));
        let what = format!("{streams} uploads");
        upload_all_is_well(&mut other, &what);
        ask_all_is_well(&mut other, &what);
        assert!(pair.connections() <= 1.0, "{what}");
        drop(stalled);
        eventually(TIMEOUT, "nothing is under way", || {
            outstanding(&pair.outbound) == 0.0
        });
    }
}

#[test]
fn uploads_that_stand_still_delay_no_other_stream_of_their_client() {
    let (slow, fast) = (Upstream::start("slow"), Upstream::start("fast"));
    let proxy = two_applications("", &slow, &fast);
    for streams in STALLED {
        let mut client = Client::connect(proxy.listener("web"));
        // The shared connection is the client's own.
        let sent: Vec<_> = (0..streams)
            .map(|_| {
                let (frames, body) = h2::channel();
                let data = pattern::bytes(300_000);
                frames
                    .send(Ok(http_body::Frame::data(data.into())))
                    .unwrap();
                (client.send(h2::request("POST", "/hang", body)), frames)
            })
            .collect();
        let (sent, frames): (Vec<_>, Vec<_>) = sent.into_iter().unzip();
        let mut all = Box::pin(join_all(sent));
        client.run(std::future::poll_fn(|cx| {
            assert!(all.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        }));
        eventually(TIMEOUT, "all uploads have begun", || {
            outstanding(&proxy) >= streams as f64
        });
        let what = format!("{streams} uploads");
        upload_all_is_well(&mut client, &what);
        ask_all_is_well(&mut client, &what);
        drop((all, frames));
        eventually(TIMEOUT, "nothing is under way", || {
            outstanding(&proxy) == 0.0
        });
    }
}

#[test]
fn uploads_that_hold_the_window_of_an_endpoint_delay_no_other_upload_to_it() {
    // Its connections have a window of 1 MiB, whether the application reads or not.
    let endpoint = Upstream::start("a");
    for streams in STALLED {
        let before = endpoint.requests();
        let proxy = Web::to([endpoint.address()])
            .cluster("protocol: http2, max_concurrent_streams: 512")
            .start();
        let mut uploading = clients(&proxy, streams);
        let stalled = stall_uploads(&proxy, &mut uploading, streams);
        let mut other = Client::connect(proxy.listener("web"));
        let what = format!("{streams} uploads");
        eventually(TIMEOUT, "the endpoint knows of all", || {
            endpoint.requests() - before >= streams as u64
        });
        // While the others still use up windows, one that is not known to be held may stop an upload midway.
        eventually(
            3 * TIMEOUT,
            "no upload waits for those that stand still",
            || (0..10).all(|_| upload_ends_within(&mut other, Duration::from_secs(1))),
        );
        ask_all_is_well(&mut other, &what);
        // Each connection carries at least three of them.
        let connections = proxy.metric("maglor_upstream_open_connections", &[]);
        assert!(connections <= (streams / 3) as f64, "{what}: {connections}");
        drop(stalled);
        eventually(TIMEOUT, "nothing is under way", || {
            outstanding(&proxy) == 0.0
        });
    }
}
