//! Balancing by true queues: outbound proxies, inbound proxies that report the load of their servers, and the
//! behaviour if some do not.

use std::net::SocketAddr;
use std::time::Duration;

use maglor_testkit::{Answer, Load, Proxy, RawHttp1, TIMEOUT, Upstream, eventually};

use crate::support;
use crate::support::mesh::Root;
use crate::support::{Web, get, reload};

/// An application with its inbound proxy.
struct Server {
    application: Upstream,
    inbound: Proxy,
}

impl Server {
    fn start(name: &str) -> Self {
        let application = Upstream::start(name);
        let inbound = Self::web(&application).http("load_reports: {}").start();
        Self {
            application,
            inbound,
        }
    }

    fn web(application: &Upstream) -> Web {
        Web::to([application.address()])
    }

    fn address(&self) -> SocketAddr {
        self.inbound.listener("web")
    }

    /// Configures the inbound proxies with each other, so that they host a ledger.
    fn know(&self, all: &[Self], policy: &str) {
        let endpoints: Vec<_> = all.iter().map(|one| one.address().to_string()).collect();
        let own = self.address();
        let config = Self::web(&self.application)
            .http(&format!(
                "load_reports: {{cluster: all, endpoint: \"{own}\"}}"
            ))
            .yaml();
        let all = endpoints.join("\", \"");
        reload(
            &self.inbound,
            &format!("{config}- {{name: all, endpoints: [\"{all}\"], policy: '{policy}'}}\n"),
        );
    }

    /// Makes the application slow, and sends it requests outside of any balancer. They end when the load is
    /// stopped.
    fn occupy(&self, requests: usize, service: Duration) -> Load {
        let name = self.application.name().to_owned();
        self.application
            .set_answer(move |_| Some(Answer::text(name.clone()).after(service)));
        let load = Load::start(
            self.address(),
            requests,
            "GET /foreign HTTP/1.1\r\nhost: a\r\n\r\n",
        );
        eventually(TIMEOUT, "the server is busy", || {
            in_flight(&self.inbound) == requests as f64
        });
        load
    }
}

fn servers(count: usize) -> Vec<Server> {
    (0..count)
        .map(|at| Server::start(&format!("server-{at}")))
        .collect()
}

fn outbound(servers: &[Server], policy: &str) -> Proxy {
    Web::to(servers.iter().map(Server::address))
        .cluster(&format!("policy: '{policy}'"))
        .start()
}

fn in_flight(inbound: &Proxy) -> f64 {
    inbound.metric("maglor_exchange_in_flight", &[])
}

fn count(proxy: &Proxy, name: &str) -> f64 {
    proxy.metric(&format!("maglor_exchange_{name}_total"), &[])
}

/// Returns the number of the application's requests without those of the background load.
fn own(server: &Server) -> usize {
    let recorded = server.application.recorded();
    recorded
        .iter()
        .filter(|one| one.uri.path() != "/foreign")
        .count()
}

#[test]
fn a_busy_server_sends_requests_back_before_it_sees_them() {
    let servers = servers(2);
    let busy = servers[0].occupy(1, Duration::from_secs(2));
    let outbound = outbound(&servers, "bounce(tries=3)");
    for _ in 0..40 {
        let response = get(&outbound, "/");
        assert_eq!((response.status, response.text()), (200, "server-1"));
        assert_eq!(
            response.header("x-maglor-queue"),
            None,
            "a client gets no report"
        );
    }
    assert_eq!(own(&servers[0]), 0);
    let bounces = count(&outbound, "bounces");
    // Each request picks the busy one first with probability 1/2: mean 20, standard deviation 3.2.
    assert!((4.0..=36.0).contains(&bounces), "{bounces}");
    assert_eq!(count(&servers[0].inbound, "refused"), bounces);
    let ejected = outbound.metric("maglor_upstream_ejected_endpoints", &[]);
    assert!(ejected.abs() < 0.5, "to be busy is no failure");
    busy.stop();
    let seen = servers[1].application.last();
    assert!(
        !seen.headers.contains_key("x-maglor-queue"),
        "nor is an application"
    );
}

#[test]
fn where_all_are_busy_the_least_busy_takes_it() {
    let servers = servers(2);
    let (few, many) = (
        servers[0].occupy(1, Duration::from_millis(100)),
        servers[1].occupy(6, Duration::from_millis(100)),
    );
    let outbound = outbound(&servers, "bounce(tries=3)");
    for _ in 0..20 {
        assert_eq!(get(&outbound, "/").status, 200);
    }
    let taken = (own(&servers[0]), own(&servers[1]));
    // The background clients send again at once after each response, so that counts dip periodically.
    assert!(taken.0 >= 17 && taken.0 + taken.1 == 20, "{taken:?}");
    few.stop();
    many.stop();
}

#[test]
fn bodies_come_whole_to_the_server_that_lets_them_in() {
    let servers = servers(2);
    let busy = servers[0].occupy(1, Duration::from_millis(300));
    // The busy one gets a body, too, if it comes between two requests of the load.
    servers[0].application.set_answer(|request| {
        let foreign = request.uri.path() == "/foreign";
        foreign.then(|| Answer::text("foreign").after(Duration::from_millis(300)))
    });
    let outbound = outbound(&servers, "bounce(tries=2)");
    let body = "0123456789".repeat(1000);
    for _ in 0..10 {
        let request = format!(
            "POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut client = RawHttp1::connect(outbound.listener("web"));
        client.connection().send(&request).unwrap();
        assert!(client.response_to("POST").json()["body"] == body.as_str());
    }
    assert_eq!(servers[1].application.last().method, "POST");
    assert!(count(&outbound, "bounces") > 0.0);
    busy.stop();
}

#[test]
fn the_ledger_knows_what_no_balancer_sees() {
    let servers = servers(3);
    for server in &servers {
        server.know(&servers, "ledger(group=40)");
    }
    let busy = [
        servers[0].occupy(3, Duration::from_millis(200)),
        servers[2].occupy(2, Duration::from_millis(200)),
    ];
    let outbound = outbound(&servers, "ledger(group=40)");
    eventually(TIMEOUT, "the ledger answers, and knows", || {
        let answers = count(&outbound, "answers");
        let idle = (0..5).all(|_| get(&outbound, "/").text() == "server-1");
        idle && count(&outbound, "answers") >= answers + 5.0
    });
    let referrals: f64 = servers
        .iter()
        .map(|one| count(&one.inbound, "referrals"))
        .sum();
    assert!(referrals >= 5.0, "{referrals}");
    let reports: f64 = servers
        .iter()
        .map(|one| count(&one.inbound, "reports"))
        .sum();
    assert!(reports > 0.0);
    for load in busy {
        load.stop();
    }
}

/// Runs two servers of the mesh that host a ledger, each with the identity of an account, and sends requests
/// to both; returns the number of refused reports.
fn reports_refused(accounts: [&str; 2]) -> f64 {
    let root = Root::new();
    let members = accounts.map(|account| root.member(account));
    let applications = [Upstream::start("a"), Upstream::start("b")];
    let web = |at: usize, reports: &str| {
        Web::to([applications[at].address()])
            .top(&members[at].yaml())
            .listener("tls: mesh")
            .http(&format!("load_reports: {{{reports}}}"))
    };
    let inbound = [web(0, "").start(), web(1, "").start()];
    let addresses = inbound.each_ref().map(|proxy| proxy.listener("web"));
    let [a, b] = addresses;
    for (at, proxy) in inbound.iter().enumerate() {
        let reports = format!("cluster: all, endpoint: \"{}\"", addresses[at]);
        let yaml = web(at, &reports).yaml();
        let all = format!("endpoints: [\"{a}\", \"{b}\"], policy: ledger(group=40), tls: mesh");
        reload(proxy, &format!("{yaml}- {{name: all, {all}}}\n"));
    }
    let outbound = Web::to(addresses)
        .top(&root.member("web").yaml())
        .cluster("policy: round-robin, tls: mesh")
        .start();
    let sum = |name: &str| inbound.iter().map(|proxy| count(proxy, name)).sum::<f64>();
    eventually(TIMEOUT, "a server reports to the other one", || {
        (0..4).for_each(|_| assert_eq!(get(&outbound, "/").status, 200));
        sum("reports") >= 5.0
    });
    // The first reports have arrived when later ones have.
    eventually(
        TIMEOUT,
        "reports are refused, or have had the time to be",
        || {
            sum("reports_refused") > 0.0 || sum("reports") >= 20.0 || {
                assert_eq!(get(&outbound, "/").status, 200);
                false
            }
        },
    );
    sum("reports_refused")
}

#[test]
fn a_ledger_trusts_only_replicas_of_its_own_workload() {
    let refused = reports_refused(["reviews", "reviews"]);
    assert!(refused.abs() < 0.5, "{refused}");
    let refused = reports_refused(["reviews", "intruder"]);
    assert!(refused > 0.5, "{refused}");
}

#[test]
fn without_its_ledger_a_balancer_falls_back() {
    let mut servers = servers(3);
    for server in &servers {
        server.know(&servers, "ledger(group=40)");
    }
    let outbound = outbound(&servers, "ledger(group=40)");
    eventually(TIMEOUT, "the ledger answers", || {
        assert_eq!(get(&outbound, "/").status, 200);
        count(&outbound, "answers") > 3.0
    });
    let host = servers
        .iter()
        .position(|one| count(&one.inbound, "referrals") > 0.0)
        .unwrap();
    // Its proxy is killed with all its state.
    drop(servers.remove(host));
    let before = count(&outbound, "fallbacks");
    for _ in 0..50 {
        assert_eq!(get(&outbound, "/").status, 200);
    }
    assert!(count(&outbound, "fallbacks") > before);
}

#[test]
fn a_lsq_hears_of_what_others_send() {
    let servers = servers(2);
    let outbound = outbound(&servers, "a-lsq(choices=all,overhead=10)");
    assert_eq!(get(&outbound, "/").status, 200);
    let busy = servers[0].occupy(3, Duration::from_millis(200));
    eventually(TIMEOUT, "the balancer has heard", || {
        (0..5).all(|_| get(&outbound, "/").text() == "server-1")
    });
    assert!(count(&outbound, "loads_heard") > 0.0);
    busy.stop();
}

#[test]
fn a_probe_goes_to_the_shorter_queue() {
    let servers = servers(2);
    let busy = servers[0].occupy(2, Duration::from_millis(300));
    let outbound = outbound(&servers, "probe(choices=2)");
    // The first questions open the channels.
    eventually(TIMEOUT, "both answer", || {
        get(&outbound, "/");
        count(&outbound, "answers") >= 4.0
    });
    // A question with a late answer is decided without it.
    eventually(TIMEOUT, "the idle one gets all", || {
        (0..20).all(|_| get(&outbound, "/").text() == "server-1")
    });
    busy.stop();
}

#[test]
fn servers_that_do_not_know_the_protocol_are_balanced_by_lor() {
    for policy in ["bounce(tries=3)", "ledger(group=40)", "a-lsq", "probe"] {
        let applications = [Upstream::start("a"), Upstream::start("b")];
        let outbound = Web::to(applications.iter().map(Upstream::address))
            .cluster(&format!("policy: '{policy}'"))
            .start();
        for _ in 0..40 {
            assert_eq!(get(&outbound, "/").status, 200, "{policy}");
        }
        for application in &applications {
            assert!(application.requests() >= 8, "{policy}");
        }
        assert!(count(&outbound, "bounces").abs() < 0.5, "{policy}");
    }
}

#[test]
fn a_client_cannot_pose_as_a_balancer() {
    let servers = servers(1);
    let busy = servers[0].occupy(1, Duration::from_millis(100));
    let outbound = outbound(&servers, "lor(choices=2)");
    let mut client = RawHttp1::connect(outbound.listener("web"));
    let request = "GET / HTTP/1.1\r\nhost: a\r\nx-maglor-queue: limit=0\r\n\r\n";
    client.connection().send(request).unwrap();
    assert_eq!(client.response().status, 200);
    busy.stop();
}

#[test]
fn invalid_frames_on_a_channel_do_no_harm() {
    let servers = servers(1);
    let upgrade = "GET /.well-known/maglor/exchange HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: maglor-exchange/1\r\n\r\n";
    let mut client = RawHttp1::connect(servers[0].address());
    client.connection().send(upgrade).unwrap();
    assert_eq!(client.response().status, 101);
    let connection = client.connection();
    // All frame types, followed by ones only.
    for kind in 0..=255_u8 {
        let mut frame = [0xff_u8; 32];
        frame[0] = kind;
        connection.send(frame).unwrap();
    }
    drop(client);
    let mut other = RawHttp1::connect(servers[0].address());
    let unknown = upgrade.replace("exchange/1", "exchange/9");
    other.connection().send(&unknown).unwrap();
    assert_eq!(
        other.response().status,
        200,
        "a later version is the application's"
    );
    assert_eq!(get(&servers[0].inbound, "/").status, 200);
}

#[test]
fn a_draining_inbound_proxy_closes_its_channels() {
    let servers = servers(2);
    let outbound = outbound(&servers, "probe(choices=2)");
    eventually(TIMEOUT, "both answer", || {
        get(&outbound, "/");
        count(&outbound, "answers") >= 4.0
    });
    let mut servers = servers.into_iter();
    let leaving = servers.next().unwrap();
    let exit = leaving.inbound.terminate();
    assert!(exit.success(), "{exit:?}");
    for _ in 0..10 {
        assert_eq!(get(&outbound, "/").text(), "server-1");
    }
}

#[test]
fn a_request_that_waits_for_a_call_of_its_own_is_no_work() {
    let (application, below) = (Upstream::start("a"), Upstream::start("b"));
    let sidecar = support::start(&format!(
        "admin: {{address: \"127.0.0.1:0\"}}
listeners:
- name: web
  address: 127.0.0.1:0
  http: {{load_reports: {{}}, virtual_hosts: [{{domains: ['*'], routes: [{{cluster: application}}]}}]}}
- name: outbound
  address: 127.0.0.1:0
  http: {{virtual_hosts: [{{domains: ['*'], routes: [{{cluster: below}}]}}]}}
clusters:
- {{name: application, endpoints: ['{}']}}
- {{name: below, endpoints: ['{}']}}
",
        application.address(),
        below.address()
    ));
    let request = |path: &str, id: &str| {
        format!("GET {path} HTTP/1.1\r\nhost: a\r\nx-request-id: {id}\r\n\r\n")
    };
    let mut client = support::connect(&sidecar);
    client.send(request("/delay/2s", "one"));
    eventually(TIMEOUT, "the application works on it", || {
        application.requests() == 1
    });
    let ask = || {
        let mut balancer = support::connect(&sidecar);
        let question = "GET / HTTP/1.1\r\nhost: a\r\nx-maglor-queue: limit=0\r\n\r\n";
        let response = balancer.request(question);
        (
            response.status,
            response.header("x-maglor-queue").map(str::to_owned),
        )
    };
    assert_eq!(ask(), (503, Some("refused=1".into())));
    let mut call = RawHttp1::connect(sidecar.listener("outbound"));
    call.send(request("/delay/400ms", "one"));
    eventually(TIMEOUT, "the call is under way", || below.requests() == 1);
    assert_eq!(ask(), (200, Some("in-flight=1".into())), "itself");
    let mut outsider = RawHttp1::connect(sidecar.listener("outbound"));
    assert_eq!(outsider.request(request("/", "two")).status, 200);
    assert_eq!(call.response().status, 200);
    assert_eq!(ask(), (503, Some("refused=1".into())), "it goes on");
    assert_eq!(client.response().status, 200);
    assert_eq!(ask(), (200, Some("in-flight=1".into())));
}

#[test]
fn reports_in_the_orca_format_are_sent_and_understood() {
    let busy = Upstream::builder("busy")
        .answer(|_| {
            let report = "TEXT named_metrics.in_flight=50";
            Some(Answer::text("busy").header("endpoint-load-metrics", report))
        })
        .start();
    let servers = [Upstream::start("a"), busy];
    let outbound = Web::to(servers.iter().map(Upstream::address))
        .cluster("policy: 'a-lsq(choices=all)'")
        .start();
    eventually(TIMEOUT, "both are used", || {
        get(&outbound, "/").text() == "busy"
    });
    for _ in 0..10 {
        assert_eq!(get(&outbound, "/").text(), "a");
    }
    let inbound = Web::to([servers[0].address()])
        .http("load_reports: {orca: true}")
        .start();
    let response = get(&inbound, "/");
    let report = response.header("endpoint-load-metrics");
    assert_eq!(report, Some("TEXT named_metrics.in_flight=1"));
}

#[test]
fn inside_the_mesh_only_members_are_trusted() {
    let root = Root::new();
    let member = root.member("reviews");
    let web = root.member("web");
    let applications = [Upstream::start("a"), Upstream::start("b")];
    let inbound = applications.each_ref().map(|application| {
        Web::to([application.address()])
            .top(&member.yaml())
            .listener("tls: {mesh: permissive}")
            .http("load_reports: {}")
            .start()
    });
    applications[0].set_answer(|_| Some(Answer::text("a").after(Duration::from_millis(400))));
    let busy = Load::start(
        inbound[0].listener("web"),
        1,
        "GET /foreign HTTP/1.1\r\nhost: a\r\n\r\n",
    );
    eventually(TIMEOUT, "the server is busy", || {
        in_flight(&inbound[0]) > 0.5
    });
    for policy in ["bounce(tries=3)", "probe(choices=2)"] {
        let outbound = Web::to(inbound.each_ref().map(|proxy| proxy.listener("web")))
            .top(&web.yaml())
            .cluster(&format!("policy: '{policy}', tls: mesh"))
            .start();
        // Enough requests that the busy one is drawn first at least once.
        eventually(TIMEOUT, policy, || {
            (0..20).all(|_| get(&outbound, "/").text() == "b")
        });
        assert!(count(&outbound, "strangers").abs() < 0.5, "{policy}");
    }
    assert!(count(&inbound[0], "refused") > 0.5);
    let before = count(&inbound[0], "refused");
    let mut outsider = RawHttp1::connect(inbound[0].listener("web"));
    let question = "GET / HTTP/1.1\r\nhost: a\r\nx-maglor-queue: limit=0\r\n\r\n";
    let response = outsider.request(question);
    assert_eq!(
        (response.status, response.header("x-maglor-queue")),
        (200, None)
    );
    assert!((count(&inbound[0], "refused") - before).abs() < 0.5);
    busy.stop();
}

/// A channel outlives the configuration that it was opened under, and is opened again under the next one.
#[test]
fn channels_are_opened_again_after_a_reload() {
    let servers = servers(2);
    for server in &servers {
        server.know(&servers, "ledger(group=40)");
    }
    let web = |timeout: &str| {
        Web::to(servers.iter().map(Server::address)).cluster(&format!(
            "policy: 'ledger(group=40)', connect_timeout: {timeout}"
        ))
    };
    let outbound = web("3s").start();
    let answered = |what: &str| {
        let before = count(&outbound, "answers");
        eventually(TIMEOUT, what, || {
            assert_eq!(get(&outbound, "/").status, 200);
            count(&outbound, "answers") >= before + 5.0
        });
    };
    answered("the ledger answers");
    reload(&outbound, &web("4s").yaml());
    answered("the ledger answers under the new configuration");
    // Another filter chain: the channels of the previous one are closed.
    for server in &servers {
        let all: Vec<_> = servers
            .iter()
            .map(|one| one.address().to_string())
            .collect();
        let own = server.address();
        let yaml = Server::web(&server.application)
            .http(&format!(
                "load_reports: {{cluster: all, endpoint: \"{own}\", orca: true}}"
            ))
            .yaml();
        let all = all.join("\", \"");
        let cluster =
            format!("- {{name: all, endpoints: [\"{all}\"], policy: 'ledger(group=40)'}}\n");
        reload(&server.inbound, &format!("{yaml}{cluster}"));
    }
    answered("the ledger answers over a new channel");
}
