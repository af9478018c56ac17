//! The service with a simulated mesh, and a browser.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use maglor_dashboard::{Access, Dashboard};
use maglor_testkit::browser::{Browser, Device, Page};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::support::{self, Simulated};

pub(crate) struct Fixture {
    pub(crate) mesh: Arc<Simulated>,
    browser: Browser,
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
