//! The translation of Istio's documents to our configuration.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use maglor_config::raw::MeshMode;
use maglor_manifests::istio::{
    AuthorizationPolicy, DestinationRule, Effect, Finding, PeerAuthentication, Telemetry,
    VirtualService,
};
use serde_json::Value;

fn spec(text: &str) -> Value {
    serde_yaml::from_str(text).unwrap()
}

/// A block as JSON, without unset fields.
fn json<T: serde::Serialize>(block: &T) -> String {
    fn prune(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|_, value| !value.is_null());
                map.values_mut().for_each(prune);
            }
            Value::Array(list) => list.iter_mut().for_each(prune),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(block).unwrap();
    prune(&mut value);
    value.to_string()
}

fn texts(findings: &[Finding], effect: Effect) -> Vec<String> {
    let of = findings.iter().filter(|one| one.effect == effect);
    of.map(ToString::to_string).collect()
}

/// Fig. 5 (a) of the paper on the communication graph (DOI 10.1371/journal.pone.0344516).
const CIRCUIT_BREAKING: &str = "
host: service-a
trafficPolicy:
  connectionPool:
    tcp: {maxConnections: 100}
    http: {http1MaxPendingRequests: 100, maxRequestsPerConnection: 100}
  outlierDetection: {consecutive5xxErrors: 5, interval: 10s, baseEjectionTime: 30s}
  loadBalancer: {simple: ROUND_ROBIN}
  tls: {mode: DISABLE}
";

#[test]
fn the_papers_destination_rule_is_whole() {
    let read = DestinationRule::read(&spec(CIRCUIT_BREAKING));
    assert_eq!(read.findings, []);
    let rule = read.value.unwrap();
    let settings = rule.settings(80, None);
    assert!(settings.plain_text);
    let cluster = settings.cluster;
    assert_eq!(cluster.policy, "round-robin".parse().ok());
    assert_eq!(
        json(&cluster.limits),
        r#"{"max_connections":100,"max_pending_requests":100}"#
    );
    assert_eq!(cluster.max_requests_per_connection, Some(100));
    assert_eq!(
        json(&cluster.outlier_ejection),
        r#"{"always_eject_one_host":true,"base_ejection_time":"30s","consecutive_5xx":5,"consecutive_gateway_failure":0,"consecutive_local_origin_failure":0,"enforcing_success_rate":0,"interval":"10s","max_ejection_percent":10}"#
    );
    assert_eq!(cluster.panic_threshold, Some(0));
}

/// Fig. 5 (b).
#[test]
fn the_papers_virtual_service_is_whole() {
    let text = "
hosts: [service-a]
http:
- route:
  - {destination: {host: service-a, subset: v1}, weight: 70}
  - {destination: {host: service-a, subset: v2}, weight: 30}
  retries: {attempts: 3, perTryTimeout: 2s, retryOn: 'gateway-error,connect-failure,refused-stream'}
  timeout: 5s
";
    let read = VirtualService::read(&spec(text));
    assert_eq!(read.findings, []);
    let service = read.value.unwrap();
    let rule = &service.rules[0];
    let to: Vec<_> = rule
        .destinations
        .iter()
        .map(|one| (one.host.as_str(), one.subset.as_deref(), one.weight))
        .collect();
    let expected = [("service-a", Some("v1"), 70), ("service-a", Some("v2"), 30)];
    assert_eq!(to, expected);
    assert_eq!(
        json(&rule.action),
        r#"{"retry":{"attempts":3,"non_idempotent":true,"per_try_timeout":"2s","retry_on":["gateway-error","connect-failure","refused-stream"]},"timeout":"5s"}"#
    );
}

#[test]
fn narrower_settings_take_the_place_of_wider_ones_as_wholes() {
    let text = "
host: reviews.shop.svc.cluster.local
trafficPolicy:
  loadBalancer: {simple: RANDOM}
  connectionPool: {tcp: {maxConnections: 7}}
  portLevelSettings:
  - {port: {number: 9090}, loadBalancer: {simple: LEAST_REQUEST}}
subsets:
- name: v2
  labels: {version: v2}
  trafficPolicy:
    loadBalancer: {consistentHash: {httpHeaderName: x-user, maglev: {tableSize: 251}}}
";
    let rule = DestinationRule::read(&spec(text)).value.unwrap();
    let policy = |port, subset| {
        let settings = rule.settings(port, rule.subset(subset));
        let policy = settings.cluster.policy.map(|one| one.to_string());
        (
            policy,
            settings.cluster.limits.is_some(),
            settings.hash_policy.len(),
        )
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(policy(80, ""), (some("random"), true, 0));
    assert_eq!(policy(9090, ""), (some("lor(choices=2)"), false, 0));
    assert_eq!(policy(80, "v2"), (some("maglev(table_size=251)"), true, 1));
    assert_eq!(rule.ports().collect::<Vec<_>>(), [9090]);
}

#[test]
fn matches_and_rewrites_mean_what_they_mean_there() {
    let rule = |text: &str| {
        let text =
            format!("{{hosts: [a], http: [{{route: [{{destination: {{host: a}}}}], {text}}}]}}");
        let read = VirtualService::read(&spec(&text));
        let refused = texts(&read.findings, Effect::Refused);
        read.value.map(|service| service.rules).ok_or(refused)
    };
    for (text, conditions, rewrite) in [
        // A prefix of characters, not of segments.
        (
            "match: [{uri: {prefix: /api}}]",
            r#"{"path":{"regex":"/api.*"}}"#,
            "null",
        ),
        (
            "match: [{uri: {prefix: /api/}}]",
            r#"{"path":"/api/"}"#,
            "null",
        ),
        (
            "match: [{uri: {prefix: /}}], rewrite: {uri: /v2/}",
            "{}",
            r#"{"regex":"^/","substitution":"/v2/"}"#,
        ),
        (
            "match: [{uri: {prefix: /a.b}}], rewrite: {uri: /$, authority: other}",
            r#"{"path":{"regex":"/a\\.b.*"}}"#,
            r#"{"host":"other","regex":"^/a\\.b","substitution":"/$$"}"#,
        ),
        (
            "match: [{uri: {prefix: /Api}, ignoreUriCase: true}], rewrite: {uri: /v2}",
            r#"{"path":{"regex":"(?i)/Api.*"}}"#,
            r#"{"regex":"(?i)^/Api","substitution":"/v2"}"#,
        ),
        (
            "match: [{uri: {exact: /Old}, ignoreUriCase: true}], rewrite: {uri: /new}",
            r#"{"path":{"regex":"(?i)/Old"}}"#,
            r#"{"path":"/new"}"#,
        ),
        (
            "rewrite: {uriRegexRewrite: {match: ^/(.*)$, rewrite: /x/\\1}}",
            "{}",
            r#"{"regex":"^/(.*)$","substitution":"/x/${1}"}"#,
        ),
        (
            "match: [{headers: {end-user: {exact: jason}}, withoutHeaders: {x-a: {}}, method: {exact: GET}, queryParams: {q: {regex: a+}}}]",
            r#"{"headers":[{"exact":"jason","name":"end-user"},{"invert":true,"name":"x-a","present":true}],"methods":["GET"],"query":[{"name":"q","regex":"a+"}]}"#,
            "null",
        ),
    ] {
        let rules = rule(text).unwrap();
        assert_eq!(json(&rules[0].matches[0].conditions), conditions, "{text}");
        assert_eq!(json(&rules[0].action.rewrite), rewrite, "{text}");
    }
    for (text, expected) in [
        (
            "match: [{sourceLabels: {app: a}}]",
            "spec.http[0].match[0].sourceLabels: not supported",
        ),
        (
            "match: [{method: {prefix: G}}]",
            "spec.http[0].match[0].method: only `exact` is supported",
        ),
        (
            "corsPolicy: {}",
            "spec.http[0].corsPolicy: not supported; answer CORS in the application, or set the headers with `headers.response`",
        ),
        (
            "match: [{uri: {regex: .*}}], rewrite: {uri: /x}",
            "spec.http[0].rewrite.uri: for a match by `regex`, use `uriRegexRewrite`",
        ),
        (
            "timeout: soon",
            "spec.http[0].timeout: expected a time such as `10s` or `500ms`",
        ),
    ] {
        assert_eq!(rule(text).unwrap_err(), [expected], "{text}");
    }
}

#[test]
fn faults_mirrors_redirects_and_headers_are_read() {
    let text = "
hosts: [ratings]
http:
- match: [{headers: {end-user: {exact: jason}}}]
  fault: {delay: {percentage: {value: 50}, fixedDelay: 3s}, abort: {percentage: {value: 20}, httpStatus: 500}}
  route: [{destination: {host: ratings, subset: v1}, headers: {request: {set: {x-a: '1'}}}}]
  mirror: {host: ratings, subset: v2}
  mirrorPercentage: {value: 10}
  headers: {response: {remove: [x-b]}}
- match: [{uri: {exact: /gone}}]
  directResponse: {status: 410, body: {string: gone}}
- redirect: {uri: /home, authority: example.org, redirectCode: 302}
";
    let read = VirtualService::read(&spec(text));
    assert_eq!(read.findings, []);
    let rules = read.value.unwrap().rules;
    assert_eq!(
        json(&rules[0].action),
        r#"{"fault":{"abort":{"http_status":500,"percent":20.0},"delay":{"fixed_delay":"3s","percent":50.0}},"response_headers":{"remove":["x-b"]}}"#
    );
    assert_eq!(
        json(&rules[0].destinations[0].request_headers),
        r#"{"set":{"x-a":"1"}}"#
    );
    assert_eq!(rules[0].mirrors[0].0.subset.as_deref(), Some("v2"));
    assert!((rules[0].mirrors[0].1 - 10.0).abs() < 1e-9);
    assert_eq!(
        json(&rules[1].action),
        r#"{"direct_response":{"body":"gone","status":410}}"#
    );
    assert_eq!(
        json(&rules[2].action),
        r#"{"redirect":{"host":"example.org","path":"/home","status":302}}"#
    );
}

/// Omitted fields have Istio's defaults, not ours.
#[test]
fn faults_without_a_share_affect_no_request() {
    for (fault, expected) in [
        (
            "{abort: {httpStatus: 503}}",
            r#"{"abort":{"http_status":503,"percent":0.0}}"#,
        ),
        (
            "{delay: {fixedDelay: 3s}}",
            r#"{"delay":{"fixed_delay":"3s","percent":0.0}}"#,
        ),
    ] {
        let route = "[{destination: {host: a}}]";
        let text = format!("{{hosts: [a], http: [{{fault: {fault}, route: {route}}}]}}");
        let read = VirtualService::read(&spec(&text));
        let reported = texts(&read.findings, Effect::Ignored);
        assert!(
            reported[0].ends_with("it applies to no request"),
            "{reported:?}"
        );
        let rules = read.value.unwrap().rules;
        assert_eq!(json(&rules[0].action.fault), expected);
    }
}

/// A 503 is not one of Istio's default conditions: an application may have processed the request.
#[test]
fn retries_without_conditions_have_those_of_istio() {
    let rules = |retries: &str| {
        let route = "[{destination: {host: a}}]";
        let text = format!("{{hosts: [a], http: [{{retries: {retries}, route: {route}}}]}}");
        let read = VirtualService::read(&spec(&text));
        assert_eq!(read.findings, []);
        read.value.unwrap().rules
    };
    assert_eq!(
        json(&rules("{attempts: 3, perTryTimeout: 2s}")[0].action.retry),
        r#"{"attempts":3,"non_idempotent":true,"per_try_timeout":"2s","retry_on":["connect-failure","refused-stream","unavailable","cancelled"]}"#
    );
    assert_eq!(
        json(&rules("{attempts: 0}")[0].action.retry),
        r#"{"attempts":0}"#
    );
}

#[test]
fn limits_of_zero_say_nothing() {
    let text = "{host: a, trafficPolicy: {connectionPool: {tcp: {maxConnections: 0}, http:
        {http1MaxPendingRequests: 0, http2MaxRequests: 0, maxRetries: 0, maxRequestsPerConnection: 0}},
        loadBalancer: {consistentHash: {httpHeaderName: x-user, ringHash: {minimumRingSize: 0}}}}}";
    let read = DestinationRule::read(&spec(text));
    assert_eq!(read.findings, []);
    let cluster = read.value.unwrap().settings(80, None).cluster;
    assert_eq!(cluster.limits, None);
    let policy = cluster.policy.map(|one| one.to_string());
    assert_eq!(policy.as_deref(), Some("ring-hash(min=1024)"));
    let odd = "{host: a, trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x-user,
        ringHash: {minimumRingSize: 4294967295}}}}}";
    let refused = texts(&DestinationRule::read(&spec(odd)).findings, Effect::Refused);
    let path = "spec.trafficPolicy.loadBalancer.consistentHash.ringHash: ";
    assert!(refused[0].starts_with(path), "{refused:?}");
}

#[test]
fn weights_of_zero_are_refused() {
    let read = |weights: [&str; 2]| {
        let [one, other] = weights;
        let text = format!(
            "{{hosts: [a], http: [{{route: [{{destination: {{host: a}}, {one}}}, {{destination: {{host: b}}, {other}}}]}}]}}"
        );
        texts(
            &VirtualService::read(&spec(&text)).findings,
            Effect::Refused,
        )
    };
    for weights in [["weight: 0", "weight: 0"], ["name: null", "weight: 0"]] {
        let refused = read(weights);
        assert!(
            refused[0].starts_with("spec.http[0].route: "),
            "{refused:?}"
        );
    }
    assert_eq!(read(["weight: 0", "weight: 1"]), Vec::<String>::new());
}

#[test]
fn who_takes_plain_text_is_read() {
    let read = |text: &str| PeerAuthentication::read(&spec(text));
    assert_eq!(
        read("{mtls: {mode: STRICT}}").value.unwrap().mode,
        Some(MeshMode::Strict)
    );
    assert_eq!(read("{}").value.unwrap().mode, None);
    let disabled = read("{mtls: {mode: DISABLE}}");
    assert_eq!(disabled.value.unwrap().mode, Some(MeshMode::Permissive));
    assert_eq!(disabled.findings.len(), 1);
    let ports =
        "portLevelMtls: {'80': {mode: PERMISSIVE}, '81': {mode: STRICT}, '82': {mode: UNSET}}";
    let own = read(&format!(
        "{{selector: {{matchLabels: {{app: a}}}}, {ports}}}"
    ));
    assert_eq!(own.findings, []);
    let expected = [(80, MeshMode::Permissive), (81, MeshMode::Strict)];
    assert_eq!(own.value.unwrap().ports, expected.into());
    // Of a whole namespace Istio does not take them.
    let wide = read(&format!("{{mtls: {{mode: STRICT}}, {ports}}}"));
    let ignored = texts(&wide.findings, Effect::Ignored);
    assert!(
        ignored[0].starts_with("spec.portLevelMtls: "),
        "{ignored:?}"
    );
    let wide = wide.value.unwrap();
    assert_eq!((wide.mode, wide.ports.len()), (Some(MeshMode::Strict), 0));
    for odd in [
        "{'0': {mode: STRICT}}",
        "{http: {mode: STRICT}}",
        "{'80': {mode: ON}}",
    ] {
        let text = format!("{{selector: {{}}, portLevelMtls: {odd}}}");
        assert_eq!(read(&text).value, None, "{odd}");
    }
}

#[test]
fn who_may_do_what_is_read() {
    let text = "
selector: {matchLabels: {app: ratings}}
action: ALLOW
rules:
- from:
  - source: {principals: [cluster.local/ns/shop/sa/reviews, '*'], notNamespaces: [test]}
  - source: {ipBlocks: [10.0.0.0/8]}
  to:
  - operation: {methods: [GET], paths: ['/ratings/*'], ports: ['9080', '9081']}
  when:
  - {key: destination.port, values: ['9080']}
  - {key: source.namespace, notValues: [dev]}
";
    let read = AuthorizationPolicy::read(&spec(text));
    assert_eq!(read.findings, []);
    let policy = read.value.unwrap();
    assert_eq!(json(&policy.default), r#""deny""#);
    assert_eq!(
        json(&policy.rules),
        r#"[{"action":"allow","from":[{"identities":["spiffe://cluster.local/ns/shop/sa/reviews","*"]}],"name":"0-0","not_from":[{"namespaces":["test"]},{"namespaces":["dev"]}],"to":[{"methods":["GET"],"paths":["/ratings/*"],"ports":["9080"]}]},{"action":"allow","from":[{"networks":["10.0.0.0/8"]}],"name":"0-1","not_from":[{"namespaces":["dev"]}],"to":[{"methods":["GET"],"paths":["/ratings/*"],"ports":["9080"]}]}]"#
    );
    // Nothing is allowed, everything is, nothing is denied.
    let nothing = AuthorizationPolicy::read(&spec("{}")).value.unwrap();
    assert_eq!(
        (json(&nothing.default).as_str(), nothing.rules.len()),
        (r#""deny""#, 0)
    );
    let all = AuthorizationPolicy::read(&spec("{rules: [{}]}"))
        .value
        .unwrap();
    assert_eq!(json(&all.rules), r#"[{"action":"allow","name":"0"}]"#);
    let denies = AuthorizationPolicy::read(&spec("{action: DENY}"))
        .value
        .unwrap();
    assert_eq!((denies.default, denies.rules.len()), (None, 0));
}

/// Templates whose values are missing render them; without the condition, the rule would match any request.
#[test]
fn empty_conditions_are_refused() {
    for (rule, field) in [
        (
            "from: [{source: {principals: []}}]",
            "from[0].source.principals",
        ),
        ("from: [{source: {}}]", "from[0].source"),
        ("from: [{source: {notPrincipals: []}}]", "from[0].source"),
        ("to: [{operation: {}}]", "to[0].operation"),
        ("to: [{operation: {paths: []}}]", "to[0].operation.paths"),
        (
            "to: [{operation: {methods: []}}]",
            "to[0].operation.methods",
        ),
        (
            "when: [{key: source.namespace, values: []}]",
            "when[0].values",
        ),
        ("when: [{key: source.namespace}]", "when[0].values"),
    ] {
        let read = AuthorizationPolicy::read(&spec(&format!("rules: [{{{rule}}}]")));
        let refused = texts(&read.findings, Effect::Refused);
        let place = format!("spec.rules[0].{field}");
        let named = refused.iter().any(|one| one.starts_with(&place));
        assert!(named, "{rule}: {refused:?}");
    }
    let none = "rules: [{from: [{source: {namespaces: [a], notPrincipals: []}}]}]";
    assert_eq!(AuthorizationPolicy::read(&spec(none)).findings, []);
}

/// An empty selector selects all workloads, as an absent one.
#[test]
fn an_empty_selector_selects_all() {
    for selector in ["{}", "{matchLabels: {}}"] {
        let read = PeerAuthentication::read(&spec(&format!(
            "{{selector: {selector}, mtls: {{mode: STRICT}}}}"
        )));
        assert_eq!(read.value.unwrap().selector, None, "{selector}");
        let read = Telemetry::read(&spec(&format!(
            "{{selector: {selector}, tracing: [{{randomSamplingPercentage: 10}}]}}"
        )));
        assert_eq!(read.value.unwrap().selector, None, "{selector}");
    }
}

/// An operation with exceptions is a rule of its own.
#[test]
fn exceptions_of_operations_are_read() {
    let rules = |text: &str| {
        let read = AuthorizationPolicy::read(&spec(text));
        assert_eq!(read.findings, []);
        json(&read.value.unwrap().rules)
    };
    assert_eq!(
        rules(
            "{action: DENY, rules: [{to: [{operation: {notPaths: [/public, '/open/*']}}, {operation: {paths: [/a]}}, \
             {operation: {hosts: ['b:*', b], notMethods: [GET, P*], notPorts: ['80'], notHosts: [c, 'c:*']}}]}]}"
        ),
        r#"[{"action":"deny","name":"0-0","to":[{"paths":["/a"]}]},{"action":"deny","name":"0-1","not_to":[{"paths":["/public","/open/*"]}]},{"action":"deny","name":"0-2","not_to":[{"methods":["GET","P*"]},{"ports":["80"]},{"hosts":["c"]}],"to":[{"hosts":["b"]}]}]"#
    );
    assert_eq!(
        rules(
            "{rules: [{to: [{operation: {methods: ['*TE'], ports: ['80', '81']}}], \
             when: [{key: destination.port, values: ['81'], notValues: ['82']}]}]}"
        ),
        r#"[{"action":"allow","name":"0","not_to":[{"ports":["82"]}],"to":[{"methods":["*TE"],"ports":["81"]}]}]"#
    );
    // Any method, with names or without.
    assert_eq!(
        rules("{action: DENY, rules: [{to: [{operation: {methods: ['*']}}]}]}"),
        r#"[{"action":"deny","name":"0"}]"#
    );
    let allowed = rules("{rules: [{to: [{operation: {methods: ['*']}}]}]}");
    assert!(allowed.contains(r#""methods":["*"]"#), "{allowed}");
}

#[test]
fn headers_are_conditions() {
    let read = AuthorizationPolicy::read(&spec(
        "{action: DENY, rules: [{to: [{operation: {methods: [GET]}}], when: [{key: 'request.headers[X-Role]', values: [admin, 'root*']}, \
         {key: 'request.headers[x-role]', values: ['*'], notValues: [visitor]}]}]}",
    ));
    assert_eq!(read.findings, []);
    assert_eq!(
        json(&read.value.unwrap().rules),
        r#"[{"action":"deny","name":"0","not_to":[{"headers":[{"name":"x-role","values":["visitor"]}]}],"to":[{"headers":[{"name":"X-Role","values":["admin","root*"]},{"name":"x-role","values":["*"]}],"methods":["GET"]}]}]"#
    );
    let read = AuthorizationPolicy::read(&spec(
        "{rules: [{when: [{key: 'request.headers[a]', values: [b]}]}]}",
    ));
    assert_eq!(
        json(&read.value.unwrap().rules),
        r#"[{"action":"allow","name":"0","to":[{"headers":[{"name":"a","values":["b"]}]}]}]"#
    );
}

#[test]
fn percent_signs_are_envoys() {
    let set = |value: &str| {
        let text = format!(
            "{{hosts: [a], http: [{{route: [{{destination: {{host: a}}}}], headers: {{request: {{set: {{x: '{value}'}}}}}}}}]}}"
        );
        let read = VirtualService::read(&spec(&text));
        match read.value {
            Some(service) => Ok(json(&service.rules[0].action.request_headers)),
            None => Err(read.findings[0].to_string()),
        }
    };
    for (value, expected) in [
        ("100%", "100%"),
        ("100%%", "100%"),
        ("a%20b", "a%20b"),
        ("%%REQ(x)%%", "%REQ(x)%"),
    ] {
        assert_eq!(
            set(value),
            Ok(format!(r#"{{"set":{{"x":"{expected}"}}}}"#)),
            "{value}"
        );
    }
    for (value, instead) in [
        (
            "%DOWNSTREAM_REMOTE_ADDRESS%",
            "`x-forwarded-for` has the client",
        ),
        ("a %REQ(x-user)% b", "forwarded under their own names"),
        ("%UNKNOWN%", "for the literal text write `%%UNKNOWN%%`"),
    ] {
        let error = set(value).unwrap_err();
        assert!(
            error.starts_with("spec.http[0].headers.request.set.x: `%") && error.contains(instead),
            "{error}"
        );
    }
}

/// Unsupported conditions fail safe.
#[test]
fn conditions_that_are_not_done_never_open_anything() {
    for condition in [
        "when: [{key: 'request.headers[:path]', values: [a]}]",
        "when: [{key: 'request.headers[Host]', values: [a]}]",
        "when: [{key: 'request.auth.claims[iss]', values: [a]}]",
        "to: [{operation: {paths: ['/shop/{*}']}}]",
        "to: [{operation: {notPaths: ['/shop/{*}']}}]",
        "from: [{source: {requestPrincipals: ['*']}}]",
        "from: [{source: {namespaces: [a]}}], when: [{key: source.namespace, values: [b]}]",
        "when: [{key: source.principal, values: [a]}, {key: source.principal, values: [b]}]",
        "when: [{key: source.ip, values: [10.0.0.0/8]}, {key: source.ip, values: [10.1.0.0/16]}]",
    ] {
        let read = |action: &str| {
            let text = format!("{{action: {action}, rules: [{{{condition}}}]}}");
            AuthorizationPolicy::read(&spec(&text))
        };
        let allow = read("ALLOW");
        assert_eq!(allow.findings.len(), 1, "{condition}");
        let allow = allow.value.unwrap();
        assert_eq!(
            (json(&allow.default).as_str(), allow.rules.len()),
            (r#""deny""#, 0)
        );
        // Nothing of the condition is left that could not be used.
        let deny = read("DENY").value.unwrap();
        let rule = json(&deny.rules);
        assert_eq!(deny.rules.len(), 1, "{condition}");
        assert!(
            !rule.contains(r#""to":[{}]"#) && !rule.contains('*'),
            "{rule}"
        );
    }
    assert_eq!(
        AuthorizationPolicy::read(&spec("{action: CUSTOM, rules: [{}]}")).value,
        None
    );
    assert_eq!(AuthorizationPolicy::read(&spec("{rulez: []}")).value, None);
}

#[test]
fn tracing_of_telemetry_is_translated() {
    let read = Telemetry::read(&spec(
        "
selector: {matchLabels: {app: web}}
tracing:
- match: {mode: CLIENT_AND_SERVER}
  randomSamplingPercentage: 12.5
  disableSpanReporting: false
  customTags: {zone: {literal: {value: a}}, user: {header: {name: x-user}}}
- randomSamplingPercentage: 3
",
    ));
    let telemetry = read.value.unwrap();
    assert_eq!(telemetry.percent, Some(12.5));
    assert_eq!(telemetry.disabled, Some(false));
    assert_eq!(telemetry.attributes, [("zone".into(), "a".into())].into());
    assert_eq!(
        telemetry.selector,
        Some([("app".into(), "web".into())].into())
    );
    assert_eq!(
        texts(&read.findings, Effect::Ignored),
        [
            "spec.tracing[0].customTags.user.header: only `literal` is supported; what the proxy records of a request is in docs/tracing.md",
            "spec.tracing[1]: only the first entry has an effect; merge them",
        ]
    );
}

#[test]
fn telemetry_without_effect_is_refused() {
    for (text, expected) in [
        ("{}", "spec.tracing: sets nothing"),
        ("{metrics: []}", "spec.tracing: sets nothing"),
        (
            "{tracing: [{providers: [{name: otel}]}]}",
            "spec.tracing: sets nothing",
        ),
        (
            "{tracing: [{match: {mode: SERVER}, randomSamplingPercentage: 5}]}",
            "spec.tracing: sets nothing",
        ),
        (
            "{tracing: [{randomSamplingPercentage: -1}]}",
            "spec.tracing[0].randomSamplingPercentage: must be",
        ),
        (
            "{targetRefs: [{name: g}], tracing: [{randomSamplingPercentage: 1}]}",
            "spec.targetRefs: select pods",
        ),
    ] {
        let read = Telemetry::read(&spec(text));
        assert_eq!(read.value, None, "{text}");
        let found = texts(&read.findings, Effect::Refused);
        assert!(found[0].starts_with(expected), "{text}: {found:?}");
    }
}
