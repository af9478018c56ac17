//! The one-line mode: converts flags to the same raw types as a file, which get the same checks.

use std::net::SocketAddr;

use crate::check::Known;
use crate::diagnostic::{Diagnostic, Errors, Origin, Severity};
use crate::load::{Loaded, finish};
use crate::report::Step;
use crate::source::Source;
use crate::{Address, Config, raw};

/// The flags of `maglor-proxy --listen … --upstream …`.
#[derive(Clone, Debug)]
pub struct Flags<'a> {
    /// `--listen`: the address of the listener.
    pub listen: Address,
    /// `--upstream`, each `ADDR[,weight=N]`; the address may be a DNS name with port.
    pub upstreams: &'a [String],
    /// `--policy`: the load balancing policy; `None` = the default.
    pub policy: Option<&'a str>,
    /// `--admin`: the address of the admin server; `None` = no admin port.
    pub admin: Option<SocketAddr>,
    /// `--workers`: the number of worker threads.
    pub workers: usize,
}

/// The name of the listener and of the cluster generated from flags.
const LISTENER: &str = "web";
const CLUSTER: &str = "upstream";

impl Flags<'_> {
    /// Validates the configuration for the flags.
    ///
    /// # Errors
    /// All errors; each names its flag.
    pub fn load(&self) -> Result<Loaded, Errors> {
        let (document, errors) = self.read();
        let known = Known {
            clusters: true,
            route_tables: true,
            identity: true,
            one_author: true,
        };
        finish(&document, known, errors, &Source::Flags(self.origins()))
    }

    fn read(&self) -> (raw::Document, Vec<Diagnostic>) {
        let (mut endpoints, mut errors) = (Vec::new(), Vec::new());
        for text in self.upstreams {
            match upstream(text) {
                Ok(endpoint) => endpoints.push(raw::Short(endpoint)),
                Err((message, help)) => {
                    // Keeps later positions right; its address was valid.
                    endpoints.push(raw::Short(raw::Endpoint {
                        address: Some("placeholder.invalid:1".into()),
                        ..raw::Endpoint::default()
                    }));
                    errors.push(error(upstream_flag(text), message, help));
                }
            }
        }
        if endpoints.is_empty() {
            let help = "add `--upstream ADDR`, for example `--upstream 127.0.0.1:9001`";
            errors.push(error(
                "--upstream".into(),
                "no upstream is given".into(),
                help.into(),
            ));
        }
        let policy = self.policy.map(str::parse).transpose();
        let policy = policy.unwrap_or_else(|why: maglor_balance::SpecError| {
            let text = why.to_string();
            let (message, help) = text.split_once("; ").unwrap_or((&text, ""));
            errors.push(error("--policy".into(), message.into(), help.into()));
            None
        });
        let document = raw::Document {
            workers: Some(u32::try_from(self.workers).unwrap_or(u32::MAX)),
            admin: self.admin.map(|address| raw::Admin {
                address: Some(address.to_string()),
                ..raw::Admin::default()
            }),
            listeners: vec![listener(&self.listen)],
            clusters: vec![raw::Cluster {
                name: Some(CLUSTER.into()),
                policy,
                endpoints,
                ..raw::Cluster::default()
            }],
            ..raw::Document::default()
        };
        (document, errors)
    }

    /// Returns, for each part of the configuration, the flag that it came from.
    fn origins(&self) -> Vec<(Vec<Step>, String)> {
        let field = |name: &str| Step::Field(name.into());
        let cluster = vec![field("clusters"), Step::Index(0)];
        let endpoints = [&cluster[..], &[field("endpoints")]].concat();
        let mut origins = vec![
            (
                vec![field("workers")],
                format!("--workers {}", self.workers),
            ),
            (
                vec![field("listeners")],
                format!("--listen {}", self.listen),
            ),
            (
                vec![field("admin")],
                "--admin".to_owned() + &self.admin.map_or_else(String::new, |a| format!(" {a}")),
            ),
            (cluster, "--upstream".into()),
        ];
        let each = self.upstreams.iter().enumerate();
        origins.extend(each.map(|(i, text)| {
            (
                [&endpoints[..], &[Step::Index(i)]].concat(),
                upstream_flag(text),
            )
        }));
        origins
    }
}

impl Config {
    /// Returns the configuration of the one-line mode; see [`Flags`].
    ///
    /// # Errors
    /// All errors; each names its flag.
    pub fn from_flags(
        listen: Address,
        upstreams: &[String],
        policy: Option<&str>,
        admin: Option<SocketAddr>,
        workers: usize,
    ) -> Result<Loaded, Errors> {
        Flags {
            listen,
            upstreams,
            policy,
            admin,
            workers,
        }
        .load()
    }
}

fn upstream_flag(text: &str) -> String {
    format!("--upstream {}", crate::yaml::short(text))
}

fn error(flag: String, message: String, help: String) -> Diagnostic {
    Diagnostic {
        severity: Severity::Error,
        origin: Origin::Flag(flag),
        path: String::new(),
        message,
        help: (!help.is_empty()).then_some(help),
        snippet: None,
        note: None,
    }
}

/// Parses `ADDR[,weight=N]`.
fn upstream(text: &str) -> Result<raw::Endpoint, (String, String)> {
    let mut parts = text.split(',');
    let mut endpoint = raw::Endpoint {
        address: parts.next().map(|address| address.trim().to_owned()),
        ..raw::Endpoint::default()
    };
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        if name.trim() != "weight" || endpoint.weight.is_some() {
            let message = format!("unexpected `{}`", crate::yaml::short(part));
            return Err((message, "write `ADDR` or `ADDR,weight=N`".into()));
        }
        endpoint.weight = Some(value.trim().parse().map_err(|_| {
            let message = format!("`{}` is not a weight", crate::yaml::short(value));
            (message, "the weight must be 1 to 1000000".to_owned())
        })?);
    }
    Ok(endpoint)
}

fn listener(address: &Address) -> raw::Listener {
    let route = raw::Route {
        cluster: Some(CLUSTER.into()),
        ..raw::Route::default()
    };
    let host = raw::VirtualHost {
        domains: Some(raw::OneOrMany(vec!["*".into()])),
        routes: vec![route],
        ..raw::VirtualHost::default()
    };
    raw::Listener {
        name: Some(LISTENER.into()),
        address: Some(address.to_string()),
        http: Some(raw::Http {
            virtual_hosts: vec![host],
            ..raw::Http::default()
        }),
        ..raw::Listener::default()
    }
}
