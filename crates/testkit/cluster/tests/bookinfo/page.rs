//! The product page, as a browser outside the mesh gets it from the gateway.

use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use maglor_testkit::cluster::Cluster;
use tempfile::TempDir;

/// What the page says of the reviews.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Reviews {
    BlackStars,
    NoStars,
    RedStars,
    /// The error of the page.
    Unavailable,
    /// There is no page.
    Unknown,
    /// The error of the reviews.
    WithoutRatings,
}

/// A response for the page.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// `None` without a response.
    pub(crate) status: Option<u16>,
    pub(crate) time: Duration,
    /// Whether the details of the book are there.
    pub(crate) details: bool,
    pub(crate) reviews: Reviews,
    pub(crate) body: String,
}

impl Page {
    fn read(status: Option<u16>, time: Duration, body: String) -> Self {
        let has = |text: &str| body.contains(text);
        let reviews = if has("Error fetching product reviews")
            && has("Sorry, product reviews are currently unavailable for this book.")
        {
            Reviews::Unavailable
        } else if has("Ratings service is currently unavailable") {
            Reviews::WithoutRatings
        } else if has("gap-x-1 text-black-500") && has("glyphicon-star") {
            Reviews::BlackStars
        } else if has("gap-x-1 text-red-500") && has("glyphicon-star") {
            Reviews::RedStars
        } else if has("Reviews served by") {
            Reviews::NoStars
        } else {
            Reviews::Unknown
        };
        Self {
            status,
            time,
            details: has("Book Details") && has("ISBN-10") && has("PublisherA"),
            reviews,
            body,
        }
    }

    /// Whether it has details and reviews, of whichever version, and no error.
    pub(crate) fn is_whole(&self) -> bool {
        [Reviews::BlackStars, Reviews::NoStars, Reviews::RedStars]
            .iter()
            .any(|reviews| self.shows(*reviews))
    }

    /// Whether it has details and these reviews.
    pub(crate) fn shows(&self, reviews: Reviews) -> bool {
        self.status == Some(200) && self.details && self.reviews == reviews
    }
}

impl fmt::Display for Reviews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BlackStars => "black stars",
            Self::NoStars => "no stars",
            Self::RedStars => "red stars",
            Self::Unavailable => "\"Error fetching product reviews\"",
            Self::Unknown => "no reviews",
            Self::WithoutRatings => "\"Ratings service is currently unavailable\"",
        })
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.time.as_secs_f64();
        match self.status {
            None => return write!(f, "no response after {seconds:.2} s"),
            Some(200) => {}
            Some(status) => {
                return write!(f, "{status} `{}` after {seconds:.2} s", self.body.trim());
            }
        }
        let details = if self.details {
            "details"
        } else {
            "no details"
        };
        write!(f, "{details}, {} after {seconds:.2} s", self.reviews)
    }
}

/// A browser outside the mesh, with its cookies.
pub(crate) struct Browser<'a> {
    cluster: &'a Cluster,
    gateway: Ipv4Addr,
    folder: TempDir,
}

impl<'a> Browser<'a> {
    /// A browser in which no user is logged in.
    pub(crate) fn new(cluster: &'a Cluster, gateway: Ipv4Addr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            cluster,
            gateway,
            folder,
        }
    }

    /// A browser in which a user is logged in by the form of the page.
    pub(crate) fn of_user(cluster: &'a Cluster, gateway: Ipv4Addr, user: &str) -> Self {
        let browser = Self::new(cluster, gateway);
        let (page, form) = (browser.address("productpage"), format!("username={user}"));
        let (_, status, _) = curl(
            browser
                .curl()
                .args(["-e", &page, "-d", &form])
                .arg(browser.address("login")),
        );
        assert_eq!(status, Some(302), "the login redirects to the page");
        browser
    }

    pub(crate) fn page(&self) -> Page {
        self.get("productpage")
    }

    pub(crate) fn pages(&self, count: usize) -> Vec<Page> {
        (0..count).map(|_| self.page()).collect()
    }

    /// The response for another path.
    pub(crate) fn get(&self, path: &str) -> Page {
        let (body, status, time) = curl(self.curl().arg(self.address(path)));
        Page::read(status, time, body)
    }

    fn curl(&self) -> Command {
        let jar: PathBuf = self.folder.path().join("cookies");
        let mut command = self.cluster.network_command("curl").unwrap();
        command.arg("-b").arg(&jar).arg("-c").arg(&jar);
        command
    }

    fn address(&self, path: &str) -> String {
        format!("http://{}/{path}", self.gateway)
    }
}

/// Runs curl; returns the body, the status if there is a response, and the time.
pub(crate) fn curl(command: &mut Command) -> (String, Option<u16>, Duration) {
    let format = [
        "-s",
        "--max-time",
        "30",
        "-w",
        "\n%{http_code} %{time_total}",
    ];
    let output = command.args(format).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, last) = text.rsplit_once('\n').unwrap();
    let (status, time) = last.split_once(' ').unwrap();
    // `000` without a response.
    let status = status.parse().ok().filter(|status| *status > 0);
    let time = Duration::from_secs_f64(time.parse().unwrap());
    (body.to_owned(), status, time)
}
