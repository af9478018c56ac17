//! A viewer of the page, and `maglor dashboard`, which makes it available over loopback.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use maglor_testkit::browser::Page;

use crate::support::installed::Installed;

/// Rates differ from those of the load by this share at most, and by requests that have just begun or ended.
const TOLERANCE: (f64, f64) = (0.1, 0.5);

/// A running `maglor dashboard`.
pub(crate) struct Forwarded {
    process: Child,
    pub(crate) url: String,
}

impl Forwarded {
    /// Starts it in the network of the browser.
    pub(crate) fn start(installed: &Installed) -> Self {
        let program = installed.program().display().to_string();
        let mut command = installed.cluster.network_command(&program).unwrap();
        command
            .args(["dashboard", "--listen", "127.0.0.1:0", "--kubeconfig"])
            .arg(installed.cluster.kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut url = String::new();
        let output = process.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut url).unwrap();
        let url = url.trim().to_owned();
        assert!(url.starts_with("http://127.0.0.1:"), "{url}");
        Self { process, url }
    }
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A page of the browser.
pub(crate) struct Viewer {
    pub(crate) page: Page,
    /// The address without a fragment.
    pub(crate) url: String,
}

impl Viewer {
    async fn open(&self, fragment: &str) {
        self.page
            .navigate(&format!("{}#/{fragment}", self.url))
            .await;
    }

    /// Waits for the question for a token, and answers it.
    pub(crate) async fn enter(&self, token: &str) {
        self.page
            .eventually("document.activeElement.id === 'token'")
            .await;
        let value = format!("document.getElementById('token').value = '{token}'");
        self.page.evaluate(&value).await;
        self.page.press("Enter").await;
        self.page
            .eventually("!document.querySelector('dialog')")
            .await;
    }

    /// Waits until the table of the graph has an edge with this rate, only successful calls, all by mutual TLS.
    pub(crate) async fn shows_rate(&self, [from, to]: [&str; 2], rate: u32) {
        self.open("?form=table").await;
        let most = TOLERANCE.0 * f64::from(rate) + TOLERANCE.1;
        self.page
            .eventually(&format!(
                "(() => {{
                   const rows = [...document.querySelector('table').tBodies[0].rows];
                   const cells = rows.map((row) => [...row.cells].map((cell) => cell.textContent));
                   const edge = cells.find(([a, b]) => a === '{from}' && b === '{to}');
                   return Math.abs(parseFloat(edge[2]) - {rate}) <= {most} && edge[3] === '100 %' && edge[9] === '100 %';
                 }})()"
            ))
            .await;
    }

    /// Waits until a service has exactly these endpoints, and their queues.
    pub(crate) async fn shows_endpoints(&self, service: &str, pods: &[String]) {
        self.open(&format!("service/{service}")).await;
        let names = serde_json::to_string(pods).unwrap();
        self.page
            .eventually(&format!(
                "((names) => {{
                   const rows = [...document.querySelector('.queue').closest('tbody').rows].map((row) => row.cells[0].textContent);
                   return rows.length === names.length && names.every((name) => rows.includes(name));
                 }})({names})"
            ))
            .await;
    }

    pub(crate) async fn shows_no_endpoint(&self, pod: &str) {
        self.page
            .eventually(&format!(
                "![...document.querySelector('.queue').closest('tbody').rows].some((row) => row.cells[0].textContent === '{pod}')"
            ))
            .await;
    }

    /// Over loopback, the page asks for a token for live requests and explanations only.
    pub(crate) async fn tap_and_why(&self, token: &str) {
        let asked = self.page.evaluate("!!document.querySelector('dialog')");
        assert_eq!(asked.await, false);
        self.open("tap").await;
        self.enter(token).await;
        self.tap_and_why_without_question().await;
    }

    pub(crate) async fn tap_and_why_without_question(&self) {
        self.open("tap").await;
        // Both sides of calls are seen: all four proxies are connected.
        for direction in ["in", "out"] {
            self.page
                .eventually(&format!(
                    "[...document.querySelectorAll('.tap tbody tr')].some((row) =>
                       ['Direction', 'Method', 'Status'].map((label) => row.querySelector(`[data-label=${{label}}]`).textContent).join(' ')
                         === '{direction} GET 200')"
                ))
                .await;
        }
        self.page
            .eventually("document.querySelector('.toolbar p').textContent.startsWith('4 proxies')")
            .await;
        // The slowest requests are kept.
        self.open("why").await;
        self.page
            .eventually("document.querySelectorAll('.tap tbody a').length >= 1")
            .await;
        self.page
            .evaluate("location.hash = document.querySelector('.tap tbody a').hash")
            .await;
        self.page
            .eventually("document.querySelector('.because p').textContent.length > 10 && document.querySelectorAll('.spent li').length >= 1")
            .await;
    }

    /// A user without the permission sees the graph, and in the tap the reason.
    pub(crate) async fn may_not_connect_to_proxies(&self) {
        self.open("").await;
        self.page
            .eventually("document.querySelector('[data-id=\"shop/details\"]')")
            .await;
        self.open("tap").await;
        self.page
            .eventually(
                "document.querySelector('dialog .notice').textContent.includes('pods/portforward')",
            )
            .await;
        self.page
            .evaluate("[...document.querySelectorAll('dialog button')].find(({ textContent }) => textContent === 'Cancel').click()")
            .await;
    }

    /// Whether the page asks for another user, because this one may not read it any more.
    pub(crate) async fn is_refused(&self) -> bool {
        let question = "document.querySelector('dialog .notice')?.textContent ?? ''";
        let question = self.page.evaluate(question).await;
        question.as_str().unwrap().contains("/maglor/dashboard")
    }

    pub(crate) async fn is_live(&self) {
        self.page
            .eventually("document.getElementById('freshness').dataset.state === 'live'")
            .await;
    }
}
