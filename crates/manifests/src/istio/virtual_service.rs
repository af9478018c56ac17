//! Translates `VirtualService`: HTTP routes to Services, for clients in the mesh. Gateways are not supported.

use maglor_config::header_format::{self, NotLiteral};
use maglor_config::raw::{self, HeaderRules, OneOrMany, Pairs};
use serde_json::Value;

use crate::istio::block::Block;
use crate::istio::finding::{Effect, Read, Report};
use crate::istio::matching::{self, Match, Matched};
use crate::istio::retries_and_faults;

/// A translated `VirtualService`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VirtualService {
    /// The hosts of the Services whose requests are routed, as written.
    pub hosts: Vec<String>,
    /// Whether the routes apply only to clients of the resource's namespace (`exportTo: ["."]`).
    pub own_namespace_only: bool,
    /// The rules, evaluated in order; the first match applies.
    pub rules: Vec<Rule>,
}

/// A rule: the requests that it matches, and how they are handled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// The position in `http` of what it was read from; several rules may have the same.
    pub position: usize,
    /// The name of the rule; `None` if it has none.
    pub name: Option<String>,
    /// The matches, one of which must hold.
    pub matches: Vec<Match>,
    /// The route, without its destinations.
    pub action: raw::Route,
    /// The weighted destinations; empty with a redirect or a direct response.
    pub destinations: Vec<Destination>,
    /// The destinations of copies, each with the percentage of requests to copy.
    pub mirrors: Vec<(Destination, f64)>,
}

/// A Service, or a subset of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Destination {
    /// The host of the Service, as written.
    pub host: String,
    /// The subset of the Service's pods; `None` = all pods.
    pub subset: Option<String>,
    /// The port of the Service; `None` = the only port, or the one that the request was sent to.
    pub port: Option<u16>,
    /// The weight of the destination.
    pub weight: u32,
    /// Header changes of requests to the destination.
    pub request_headers: Option<HeaderRules>,
    /// Header changes of responses from the destination.
    pub response_headers: Option<HeaderRules>,
}

impl VirtualService {
    /// Translates a `spec`.
    #[must_use]
    pub fn read(spec: &Value) -> Read<Self> {
        let report = Report::default();
        let block = Block::new(spec, "spec".to_owned(), &report);
        let hosts = block.texts("hosts");
        if hosts.is_empty() {
            let what = "the field is missing: delegate VirtualServices are not supported; write the \
                        rules into the delegating VirtualService";
            block.refuse("hosts", what);
        }
        let gateways = block.texts("gateways");
        if !gateways.is_empty() && !gateways.iter().any(|one| one == "mesh") {
            block.refuse(
                "gateways",
                "only `mesh` is served; write an HTTPRoute for a Gateway",
            );
        } else if gateways.iter().any(|one| one != "mesh") {
            block.ignore("gateways", "only `mesh` is served");
        }
        let bytes = ["tcp", "tls"];
        for name in bytes {
            block.without(name, Effect::Refused, "only `http` is supported; remove the field: \
                                                  connections go to the Service that the application called");
        }
        let export = block.texts("exportTo");
        let own_namespace_only = !export.is_empty() && export.iter().all(|to| to == ".");
        if !own_namespace_only && export.iter().any(|to| to != "*" && to != ".") {
            block.ignore("exportTo", "only `*` and `.` are supported");
        }
        let rules = block.blocks("http");
        let rules = rules.iter().enumerate();
        let rules: Vec<Rule> = rules
            .flat_map(|(at, block)| Rule::read(at, block))
            .collect();
        // Otherwise there is a finding already.
        if rules.is_empty() && bytes.iter().all(|name| spec.get(name).is_none()) {
            block.refuse("http", "no rule applies to the gateway `mesh`");
        }
        block.end(Effect::Refused);
        drop(block);
        report.read(Some(Self {
            hosts,
            own_namespace_only,
            rules,
        }))
    }
}

impl Rule {
    /// Translates a rule into one or several rules: several if a rewrite depends on which match holds.
    fn read(position: usize, block: &Block<'_>) -> Vec<Self> {
        let input = block.blocks("match");
        let mut matches: Vec<(Match, Matched)> = input.iter().filter_map(matching::read).collect();
        if input.is_empty() {
            matches.push((Match::default(), Matched::prefix("/", false)));
        }
        let mut rule = Self {
            position,
            name: block.text("name").map(str::to_owned),
            ..Self::default()
        };
        rule.forward(block);
        rule.answer(block);
        let delegate =
            "not supported; write the rules of the delegate VirtualService into this rule";
        block.without("delegate", Effect::Refused, delegate);
        let cors = "not supported; answer CORS in the application, or set the headers with `headers.response`";
        block.without("corsPolicy", Effect::Refused, cors);
        let headers = headers(block);
        (rule.action.request_headers, rule.action.response_headers) = headers;
        let rewrite = block.block("rewrite");
        let answers = rule.action.redirect.is_some() || rule.action.direct_response.is_some();
        let rules = rule.by_rewrite(matches, rewrite.as_ref());
        let delegates = block.value("delegate").is_some();
        if rules.iter().any(|rule| rule.destinations.is_empty()) && !answers && !delegates {
            block.refuse("route", "the field is missing");
        }
        block.end(Effect::Refused);
        rules
    }

    fn forward(&mut self, block: &Block<'_>) {
        let list = block.blocks("route");
        let only = list.len() == 1;
        for one in &list {
            let (request_headers, response_headers) = headers(one);
            let weight = one.number("weight");
            let destination = one.block("destination").map(|one| Destination::read(&one));
            let Some(destination) = destination else {
                one.refuse("destination", "the field is missing");
                continue;
            };
            one.end(Effect::Refused);
            self.destinations.push(Destination {
                // The weight of a single destination has no effect.
                weight: if only { 1 } else { weight.unwrap_or(0) },
                request_headers,
                response_headers,
                ..destination
            });
        }
        let several = self.destinations.len() > 1;
        if several && self.destinations.iter().all(|one| one.weight == 0) {
            block.refuse(
                "route",
                "all weights are 0: no cluster would receive requests",
            );
        }
        self.action.timeout = block.time("timeout");
        if let Some(retries) = block.block("retries") {
            self.action.retry = Some(raw::Short(retries_and_faults::retries(&retries)));
        }
        if let Some(fault) = block.block("fault") {
            self.action.fault = Some(retries_and_faults::fault(&fault));
        }
        let percent = block.block("mirrorPercentage").map(|share| {
            let value = share.float("value").unwrap_or(0.0);
            share.end(Effect::Ignored);
            value
        });
        let deprecated = block.number("mirrorPercent").map(f64::from);
        if let Some(mirror) = block.block("mirror") {
            let share = percent.or(deprecated).unwrap_or(100.0);
            self.mirrors.push((Destination::read(&mirror), share));
        }
        for mirror in block.blocks("mirrors") {
            let share = mirror.block("percentage").map(|share| {
                let value = share.float("value").unwrap_or(0.0);
                share.end(Effect::Ignored);
                value
            });
            if let Some(destination) = mirror.block("destination") {
                let destination = Destination::read(&destination);
                self.mirrors.push((destination, share.unwrap_or(100.0)));
            }
            mirror.end(Effect::Ignored);
        }
    }

    /// Translates `redirect` and `directResponse` into the action.
    fn answer(&mut self, block: &Block<'_>) {
        if let Some(redirect) = block.block("redirect") {
            let port = redirect.number("port");
            redirect.without(
                "derivePort",
                Effect::Ignored,
                "the port is derived from the request or the scheme",
            );
            let read = raw::Redirect {
                status: Some(redirect.number("redirectCode").unwrap_or(301)),
                scheme: redirect.text("scheme").map(str::to_owned),
                host: redirect.text("authority").map(str::to_owned),
                port,
                path: redirect.text("uri").map(str::to_owned),
                ..raw::Redirect::default()
            };
            redirect.end(Effect::Refused);
            self.action.redirect = Some(read);
        }
        if let Some(direct) = block.block("directResponse") {
            let body = direct.block("body").and_then(|body| {
                let text = body.text("string").map(str::to_owned);
                body.end(Effect::Refused);
                text
            });
            let status = direct.number("status");
            direct.end(Effect::Refused);
            self.action.direct_response = Some(raw::DirectResponse {
                status,
                body,
                headers: None,
            });
        }
    }

    fn by_rewrite(self, matches: Vec<(Match, Matched)>, rewrite: Option<&Block<'_>>) -> Vec<Self> {
        let Some(block) = rewrite else {
            let matches = matches.into_iter().map(|(one, _)| one).collect();
            return vec![Self { matches, ..self }];
        };
        let host = block.text("authority").map(str::to_owned);
        let uri = block.text("uri");
        let regex = block.block("uriRegexRewrite").map(|regex| {
            let found = regex.text("match").unwrap_or_default().to_owned();
            let substitution =
                raw::Rewrite::substitution_from_re2(regex.text("rewrite").unwrap_or_default());
            regex.end(Effect::Refused);
            (found, substitution)
        });
        block.end(Effect::Refused);
        let with = |matched: &Matched| {
            let mut rewrite = raw::Rewrite {
                host: host.clone(),
                ..raw::Rewrite::default()
            };
            match (uri, &regex, matched) {
                (Some(uri), _, Matched::Prefix(prefix)) => {
                    rewrite.regex = Some(prefix.clone());
                    rewrite.substitution = Some(uri.replace('$', "$$"));
                }
                (Some(uri), _, Matched::Exact) => rewrite.path = Some(uri.to_owned()),
                (Some(_), _, Matched::Regex) => {
                    block.refuse("uri", "for a match by `regex`, use `uriRegexRewrite`");
                }
                (None, Some((regex, substitution)), _) => {
                    rewrite.regex = Some(regex.clone());
                    rewrite.substitution = Some(substitution.clone());
                }
                (None, None, _) => {}
            }
            (rewrite != raw::Rewrite::default()).then_some(rewrite)
        };
        let rules = matches.into_iter().map(|(one, matched)| {
            let mut rule = self.clone();
            rule.action.rewrite = with(&matched);
            rule.matches = vec![one];
            rule
        });
        rules.collect()
    }
}

impl Destination {
    fn read(block: &Block<'_>) -> Self {
        let port = block.block("port").and_then(|port| {
            let number = port.port("number");
            port.end(Effect::Refused);
            number
        });
        let destination = Self {
            host: block.text("host").unwrap_or_default().to_owned(),
            subset: block.text("subset").map(str::to_owned),
            port,
            weight: 1,
            ..Self::default()
        };
        if destination.host.is_empty() {
            block.refuse("host", "the field is missing");
        }
        block.end(Effect::Refused);
        destination
    }
}

/// Translates `headers` into header changes of requests and of responses.
fn headers(block: &Block<'_>) -> (Option<HeaderRules>, Option<HeaderRules>) {
    let Some(headers) = block.block("headers") else {
        return (None, None);
    };
    let rules = |name| {
        let block = headers.block(name)?;
        let one = |(name, value)| (name, OneOrMany(vec![value]));
        let set = literal(&block, "set");
        let add: Vec<(String, OneOrMany)> = literal(&block, "add").into_iter().map(one).collect();
        let remove = block.texts("remove");
        block.end(Effect::Refused);
        Some(HeaderRules {
            remove: (!remove.is_empty()).then_some(OneOrMany(remove)),
            set: (!set.is_empty()).then_some(Pairs(set)),
            add: (!add.is_empty()).then_some(Pairs(add)),
        })
    };
    let both = (rules("request"), rules("response"));
    headers.end(Effect::Refused);
    both
}

/// Returns names and values, without Envoy's escape sequences.
fn literal(block: &Block<'_>, field: &'static str) -> Vec<(String, String)> {
    let pairs = block.pairs(field).into_iter();
    let each = pairs.map(|(name, value)| {
        let literal = match header_format::unescape_lenient(&value) {
            Ok(literal) => literal.into_owned(),
            Err(NotLiteral::Command(command)) => {
                let what = header_format::refusal(command);
                block.refuse(
                    &format!("{field}.{name}"),
                    format!("{what}; for the literal text write `%%{command}%%`"),
                );
                String::new()
            }
            Err(NotLiteral::Percent) => value.clone(),
        };
        (name, literal)
    });
    each.collect()
}
