//! Access control of an admin port: a pure function of the peer's address and the request head.

use std::net::{IpAddr, SocketAddr};

use http::header::{CONTENT_TYPE, HOST, HeaderName, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, Method, StatusCode, Version};

/// A header that browsers set on every request, and that scripts cannot set (Fetch Metadata, section 2.2).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The content types that a form of another website can send without a CORS preflight (Fetch standard, 2.2.2,
/// "CORS-safelisted request-header").
const FORMS: [&str; 3] = [
    "application/x-www-form-urlencoded",
    "multipart/form-data",
    "text/plain",
];

/// The origin of a connection to the admin port.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Via {
    /// From this host, including `kubectl port-forward`, which connects inside the pod.
    Loopback,
    /// From another host.
    Network,
}

impl Via {
    /// Classifies a connection by the addresses of both ends. The kernel drops packets from a network that have a
    /// loopback source address (RFC 1122, 3.2.1.3; RFC 4291, 2.5.3).
    #[must_use]
    pub fn of(peer: SocketAddr, local: SocketAddr) -> Self {
        let is_loopback = |end: SocketAddr| end.ip().to_canonical().is_loopback();
        match is_loopback(peer) && is_loopback(local) {
            true => Self::Loopback,
            false => Self::Network,
        }
    }
}

/// The peers for which a page is meant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Audience {
    /// Every peer that can reach the port; for probes and metrics.
    Network,
    /// Operators, who connect over loopback.
    Operators,
}

/// The methods allowed on a page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Methods {
    /// GET and HEAD.
    Read,
    /// POST and PUT.
    Change,
    /// GET, HEAD, POST and PUT.
    ReadAndChange,
}

impl Methods {
    /// Returns the value of `Allow` in a response with status 405.
    const fn allow(self) -> &'static str {
        match self {
            Self::Read => "GET, HEAD",
            Self::Change => "POST, PUT",
            Self::ReadAndChange => "GET, HEAD, POST, PUT",
        }
    }

    fn contain(self, method: &Method) -> bool {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        let changes = is_change(method);
        match self {
            Self::Read => reads,
            Self::Change => changes,
            Self::ReadAndChange => reads || changes,
        }
    }
}

fn is_change(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT)
}

/// A page of an admin port.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// The path of the page; a path that ends with a slash matches all paths with this prefix.
    pub path: &'static str,
    /// The audience of the page.
    pub audience: Audience,
    /// The allowed methods.
    pub methods: Methods,
}

impl Page {
    /// Creates a page that every peer may read.
    #[must_use]
    pub const fn public(path: &'static str) -> Self {
        Self {
            path,
            audience: Audience::Network,
            methods: Methods::Read,
        }
    }

    /// Creates a page for operators only.
    #[must_use]
    pub const fn operators(path: &'static str, methods: Methods) -> Self {
        Self {
            path,
            audience: Audience::Operators,
            methods,
        }
    }

    fn has(&self, path: &str) -> bool {
        match self.path.len() > 1 && self.path.ends_with('/') {
            true => path.starts_with(self.path),
            false => path == self.path,
        }
    }
}

/// The rejection of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Refusal {
    /// The status of the response: 400, 403, 404, 405 or 415.
    pub status: StatusCode,
    /// The reason with a valid alternative, as one line of text.
    pub why: &'static str,
    /// The value of `Allow`; only with status 405.
    pub allow: Option<&'static str>,
}

impl Refusal {
    const fn new(status: StatusCode, why: &'static str) -> Self {
        Self {
            status,
            why,
            allow: None,
        }
    }
}

/// Returns the rejection of a request; `None` if it is allowed. `opened` is whether pages for operators are available
/// to the network, too, because a documented setting enables this.
///
/// * A page for operators is rejected unless the connection came over loopback.
/// * The `Host` of the request must be a loopback name or address (with `opened`: `localhost` or any address, but no other name): a
///   website whose name resolves to this host (DNS rebinding) would have its own name there.
/// * `Origin` and `Sec-Fetch-Site`, which browsers set, must refer to this port.
/// * A change must not have a content type that a form of another website can send.
#[must_use]
pub fn refusal(pages: &[Page], via: Via, opened: bool, head: &Parts) -> Option<Refusal> {
    let path = head.uri.path();
    let Some(page) = pages.iter().find(|page| page.has(path)) else {
        return Some(Refusal::new(StatusCode::NOT_FOUND, "no such page"));
    };
    let operators = page.audience == Audience::Operators;
    if operators && via == Via::Network && !opened {
        return Some(Refusal::new(
            StatusCode::FORBIDDEN,
            "this page is available only over loopback: use `kubectl port-forward`, or a shell on this host",
        ));
    }
    if !page.methods.contain(&head.method) {
        return Some(Refusal {
            allow: Some(page.methods.allow()),
            ..Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed")
        });
    }
    if !operators {
        return None;
    }
    foreign_site(head, via, &[]).or_else(|| form(head))
}

/// Returns the rejection of a request that another website can have caused; `None` if none can. `names` are the host
/// names of this port in addition to `localhost`, without a port.
///
/// * `Host` must be `localhost`, one of `names`, a loopback address or, for a connection from the network, any address: no
///   address is the name of a website that resolves to this host (DNS rebinding).
/// * `Origin` and `Sec-Fetch-Site`, which browsers set, must refer to this port.
#[must_use]
pub fn foreign_site(head: &Parts, via: Via, names: &[String]) -> Option<Refusal> {
    wrong_host(head, via == Via::Network, names).or_else(|| other_site(head))
}

/// Rejects DNS rebinding, with which browsers send the name of a website as `Host`.
fn wrong_host(head: &Parts, any_address: bool, names: &[String]) -> Option<Refusal> {
    let refused = Refusal::new(
        StatusCode::FORBIDDEN,
        "the host of the request is not this host: use `localhost` or a loopback address",
    );
    let mut hosts = head.headers.get_all(HOST).iter();
    let (host, second) = (hosts.next(), hosts.next());
    if second.is_some() || (host.is_none() && head.version >= Version::HTTP_11) {
        // RFC 9112, 3.2.
        return Some(Refusal::new(
            StatusCode::BAD_REQUEST,
            "the request must have exactly one Host",
        ));
    }
    let of_field = host.map(|host| {
        host.to_str()
            .is_ok_and(|host| is_own(host, any_address, names))
    });
    let of_target = head
        .uri
        .authority()
        .map(|authority| is_own(authority.as_str(), any_address, names));
    let own = of_field.unwrap_or(true) && of_target.unwrap_or(true);
    (!own).then_some(refused)
}

/// Returns whether the host of `HOST[:PORT]` is a loopback name or address, one of `names` or, with `any_address`, any
/// address.
fn is_own(text: &str, any_address: bool, names: &[String]) -> bool {
    let Ok(authority) = text.parse::<Authority>() else {
        return false;
    };
    // User information is no part of Host; in a target it misleads readers (RFC 9110, 4.2.4).
    if text.contains('@') {
        return false;
    }
    let host = authority.host();
    let mut names = names.iter().map(String::as_str).chain(["localhost"]);
    if names.any(|name| host.eq_ignore_ascii_case(name)) {
        return true;
    }
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let address = bare.unwrap_or(host).parse::<IpAddr>();
    address.is_ok_and(|ip| any_address || ip.to_canonical().is_loopback())
}

/// Rejects a request that a page of another website has caused.
fn other_site(head: &Parts) -> Option<Refusal> {
    let refused = Refusal::new(StatusCode::FORBIDDEN, "cross-site requests are not allowed");
    let mut sites = head.headers.get_all(&SEC_FETCH_SITE).iter();
    let same_site = sites.all(|site| matches!(site.as_bytes(), b"none" | b"same-origin"));
    let mut origins = head.headers.get_all(ORIGIN).iter();
    let same_origin = origins.all(|origin| is_origin(origin.as_bytes(), &head.headers));
    (!same_site || !same_origin).then_some(refused)
}

/// Returns whether an origin is the host of the request; `null` is not.
fn is_origin(origin: &[u8], headers: &HeaderMap) -> bool {
    let of = |scheme: &[u8]| origin.strip_prefix(scheme);
    let Some(authority) = of(b"http://").or_else(|| of(b"https://")) else {
        return false;
    };
    let host = headers.get(HOST);
    host.is_some_and(|host| host.as_bytes().eq_ignore_ascii_case(authority))
}

/// Rejects a change that a form of a website could send.
fn form(head: &Parts) -> Option<Refusal> {
    if !is_change(&head.method) {
        return None;
    }
    let is_form = |kind: &http::HeaderValue| {
        let kind = kind.to_str().unwrap_or(FORMS[0]);
        let kind = kind.split([';', ',']).next().unwrap_or_default().trim();
        FORMS.iter().any(|form| kind.eq_ignore_ascii_case(form))
    };
    let refused = Refusal::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "forms are not accepted: send no body (`curl -X POST`)",
    );
    let any = head.headers.get_all(CONTENT_TYPE).iter().any(is_form);
    any.then_some(refused)
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
