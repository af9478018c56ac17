//! The service with a simulated mesh, and a browser.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use maglor_controller::dashboard::page::{Access, Dashboard, Denied, Review, Reviewer};
use maglor_testkit::browser::{Browser, Device, Page};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::support::{self, Simulated};

struct Operator;

impl Reviewer for Operator {
    fn review(&self, token: &str) -> Review {
        let result = match token {
            "operator" => Ok(()),
            _ => Err(Denied::Invalid),
        };
        Box::pin(async move { result })
    }
}

pub(crate) struct Fixture {
    pub(crate) mesh: Arc<Simulated>,
    pub(crate) browser: Browser,
    address: SocketAddr,
    dashboard: Dashboard,
    server: JoinHandle<()>,
    recorder: JoinHandle<()>,
}

impl Fixture {
    /// Starts both; `None` if no browser is installed.
    pub(crate) async fn start(services: usize, edges: usize) -> Option<Self> {
        let Some(program) = Browser::installed() else {
            eprintln!("skipped: no Chromium is installed; on Debian: apt-get install chromium");
            return None;
        };
        let mesh = Simulated::new(services, edges);
        let proxy = support::tapped_proxy().await;
        mesh.taps
            .lock()
            .unwrap()
            .push(("shop/productpage-0".to_owned(), proxy));
        let dashboard = Dashboard::new(Arc::<Simulated>::clone(&mesh), Access::default());
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let recorder = dashboard.clone();
        Some(Self {
            mesh,
            browser: Browser::start(&program).await,
            address,
            server: tokio::spawn(dashboard.clone().serve_socket(socket)),
            recorder: tokio::spawn(async move { recorder.run().await }),
            dashboard,
        })
    }

    /// Returns the address of the page, with a fragment.
    pub(crate) fn url(&self, fragment: &str) -> String {
        format!("http://{}/{fragment}", self.address)
    }

    pub(crate) async fn page(&self, device: Device) -> Page {
        let page = self.browser.page().await;
        page.emulate(device).await;
        page
    }

    /// Advances the traffic by a second each second.
    pub(crate) fn traffic(&self) -> JoinHandle<()> {
        let mesh = Arc::clone(&self.mesh);
        tokio::spawn(async move {
            let mut second = tokio::time::interval(Duration::from_secs(1));
            loop {
                second.tick().await;
                mesh.seconds.fetch_add(1, Ordering::Relaxed);
            }
        })
    }

    /// Waits until the history covers a number of seconds; it has a sample every ten.
    pub(crate) async fn has_history(&self, seconds: u32) {
        let page = self.browser.page().await;
        page.navigate(&self.url("icon.svg")).await;
        let history = "fetch('api/v1/about').then((response) => response.json()).then(({ history }) => history)";
        let enough =
            format!("{history}.then(({{ oldest, newest }}) => newest - oldest >= {seconds})");
        page.eventually(&enough).await;
        page.close().await;
    }

    /// Serves on another port, where connections seem to come from the network; returns its address. The token is `operator`.
    pub(crate) async fn over_the_network(&self) -> String {
        let access = Access {
            host_names: Vec::new(),
            reviewer: Some(Arc::new(Operator)),
        };
        let dashboard = Dashboard::new(Arc::<Simulated>::clone(&self.mesh), access);
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let far = (
            SocketAddr::from(([10, 1, 2, 3], 4000)),
            SocketAddr::from(([10, 1, 2, 4], 15015)),
        );
        // It ends with the runtime of the test.
        tokio::spawn(async move {
            let recorder = dashboard.clone();
            tokio::spawn(async move { recorder.run().await });
            while let Ok((tcp, _)) = socket.accept().await {
                tokio::spawn(dashboard.clone().serve(tcp, far.0, far.1));
            }
        });
        format!("http://{address}/")
    }

    /// Closes the socket and all connections.
    pub(crate) fn stop(&mut self) {
        self.server.abort();
    }

    /// Serves on the same address again.
    pub(crate) async fn restart(&mut self) {
        let socket = TcpListener::bind(self.address).await.unwrap();
        self.server = tokio::spawn(self.dashboard.clone().serve_socket(socket));
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.server.abort();
        self.recorder.abort();
    }
}
