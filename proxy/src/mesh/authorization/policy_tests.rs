use super::*;

/// Returns the rules of a listener in the notation of the configuration.
fn policy(authorization: &str) -> Policy {
    let text = format!(
        "identity: {{certificate: a, private_key: b, trust_bundle: c}}\nlisteners:\n\
         - {{name: a, address: '127.0.0.1:80', tls: {{mesh: permissive}}, authorization: {{{authorization}}}, \
         http: {{virtual_hosts: [{{domains: '*', routes: [{{cluster: a}}]}}]}}}}\n\
         clusters: [{{name: a, endpoints: ['127.0.0.1:1']}}]\n"
    );
    let loaded = maglor_config::parse(&text, "test").unwrap_or_else(|e| panic!("{e}"));
    let listener = &loaded.config.listeners[0];
    Policy::new(listener.authorization.as_ref().unwrap())
}

fn id(text: &str) -> SpiffeId {
    text.parse().unwrap()
}

/// A client whose requests and connections are checked.
struct Asker {
    peer: Option<SpiffeId>,
    client: Option<IpAddr>,
    port: u16,
}

impl Asker {
    fn member(account: &str) -> Self {
        Self {
            peer: Some(id(&format!("spiffe://mesh.test/ns/shop/sa/{account}"))),
            ..Self::anonymous()
        }
    }

    fn anonymous() -> Self {
        Self {
            peer: None,
            client: Some(IpAddr::from([10, 0, 0, 9])),
            port: 4143,
        }
    }

    fn facts<'a>(&'a self, request: Option<RequestFacts<'a>>) -> Facts<'a> {
        Facts {
            peer: self.peer.as_ref(),
            client: self.client,
            port: Some(self.port),
            request,
        }
    }

    fn asks(&self, policy: &Policy, method: &Method, path: &str) -> (bool, Reason) {
        let decision = self.sends(policy, method, path, b"cart.Shop", &Fields::default());
        (decision.effect == Effect::Allow, decision.reason)
    }

    fn sends(
        &self,
        policy: &Policy,
        method: &Method,
        path: &str,
        host: &[u8],
        fields: &Fields,
    ) -> Decision {
        let request = RequestFacts {
            method,
            path: path.as_bytes(),
            host,
            fields,
        };
        policy.decide(&self.facts(Some(request)))
    }

    fn connects(&self, policy: &Policy) -> (bool, Reason) {
        let decision = policy.decide(&self.facts(None));
        (decision.effect == Effect::Allow, decision.reason)
    }
}

const GET: Method = Method::GET;

#[test]
fn the_default_is_istios() {
    let web = Asker::member("web");
    for (rules, allowed) in [
        ("", false),
        ("rules: []", false),
        ("default: allow", true),
        ("default: deny", false),
        ("rules: [{action: deny, from: [{namespaces: x}]}]", true),
        ("rules: [{action: audit}]", true),
        ("rules: [{from: [{namespaces: x}]}]", false),
        ("rules: [{}]", true),
        ("rules: [{action: deny}]", false),
        (
            "default: deny, rules: [{action: deny, from: [{namespaces: x}]}]",
            false,
        ),
    ] {
        assert_eq!(web.asks(&policy(rules), &GET, "/").0, allowed, "{rules}");
    }
}

#[test]
fn what_denies_is_asked_before_what_allows() {
    let policy = policy(
        "rules: [{from: [{namespaces: shop}]}, {action: deny, to: [{paths: /admin*}]}, {action: audit}]",
    );
    let web = Asker::member("web");
    assert_eq!(web.asks(&policy, &GET, "/"), (true, Reason::Rule(0)));
    assert_eq!(web.asks(&policy, &GET, "/admin"), (false, Reason::Rule(1)));
    let audited: Vec<_> = policy.audited(&web.facts(None)).collect();
    assert_eq!(audited, [2]);
    let anonymous = Asker::anonymous();
    assert_eq!(anonymous.asks(&policy, &GET, "/"), (false, Reason::Default));
}

#[test]
fn who_has_proved_nothing_matches_no_identity() {
    let anonymous = Asker::anonymous();
    for source in [
        "identities: '*'",
        "namespaces: '*'",
        "trust_domains: '*'",
        "identities: ['*'], networks: 10.0.0.0/8",
    ] {
        let allow = policy(&format!("rules: [{{from: [{{{source}}}]}}]"));
        assert!(!anonymous.asks(&allow, &GET, "/").0, "{source}");
        assert!(!anonymous.connects(&allow).0, "{source}");
        assert!(Asker::member("web").asks(&allow, &GET, "/").0, "{source}");
        // "From all except …" includes unauthenticated clients.
        let deny = policy(&format!(
            "rules: [{{action: deny, not_from: [{{{source}}}]}}]"
        ));
        assert!(!anonymous.asks(&deny, &GET, "/").0, "{source}");
        assert!(Asker::member("web").asks(&deny, &GET, "/").0, "{source}");
    }
    let by_address = policy("rules: [{from: [{networks: 10.0.0.0/8}]}]");
    assert!(anonymous.asks(&by_address, &GET, "/").0);
}

#[test]
fn sources_are_matched_by_all_that_is_given() {
    let policy = policy(
        "rules: [{from: [{identities: ['spiffe://mesh.test/ns/shop/sa/a', '*/sa/b']}, \
         {namespaces: sh*, networks: 192.168.0.0/16}, {trust_domains: other.test}]}]",
    );
    let allowed = |asker: &Asker| asker.asks(&policy, &GET, "/").0;
    assert!(allowed(&Asker::member("a")) && allowed(&Asker::member("b")));
    let mut c = Asker::member("c");
    assert!(!allowed(&c));
    c.client = Some(IpAddr::from([192, 168, 1, 1]));
    assert!(allowed(&c));
    c.peer = Some(id("spiffe://mesh.test/ns/other/sa/c"));
    assert!(!allowed(&c));
    // Without the mesh's form of identity there is no namespace.
    c.peer = Some(id("spiffe://mesh.test/shop"));
    assert!(!allowed(&c));
    c.peer = Some(id("spiffe://other.test/shop"));
    assert!(allowed(&c));
}

#[test]
fn operations_are_matched_by_all_that_is_given() {
    let policy = policy(
        "rules: [{to: [{methods: [GET, POST], paths: ['/a', '/b/*', '*.css']}, {hosts: '*.shop', ports: 8080}]}]",
    );
    let mut web = Asker::member("web");
    for (method, path, allowed) in [
        (Method::GET, "/a", true),
        (Method::POST, "/b/c", true),
        (Method::GET, "/x/y.css", true),
        (Method::PUT, "/a", false),
        (Method::GET, "/a/", false),
        (Method::GET, "/b", false),
        (Method::GET, "/A", false),
    ] {
        assert_eq!(
            web.asks(&policy, &method, path).0,
            allowed,
            "{method} {path}"
        );
    }
    web.port = 8080;
    assert!(
        web.asks(&policy, &Method::PUT, "/x").0,
        "hosts have no case"
    );
}

#[test]
fn exceptions_are_not_taken() {
    let policy = policy(
        "rules: [{action: deny, to: [{paths: /shop/*}], not_to: [{methods: GET}, {paths: /shop/open}]}, \
         {not_to: [{ports: 8080}, {paths: '*.bak'}]}]",
    );
    let mut web = Asker::member("web");
    for (method, path, allowed) in [
        (Method::GET, "/shop/a", true),
        (Method::PUT, "/shop/a", false),
        (Method::PUT, "/shop/open", true),
        (Method::PUT, "/b", true),
        (Method::GET, "/a.bak", false),
    ] {
        let found = web.asks(&policy, &method, path).0;
        assert_eq!(found, allowed, "{method} {path}");
    }
    web.port = 8080;
    assert!(!web.asks(&policy, &GET, "/b").0);
}

#[test]
fn bytes_are_allowed_only_by_what_says_nothing_about_http() {
    let web = Asker::member("web");
    for (rules, allowed) in [
        ("rules: [{from: [{namespaces: shop}]}]", true),
        (
            "rules: [{from: [{namespaces: shop}], to: [{ports: 4143}]}]",
            true,
        ),
        (
            "rules: [{from: [{namespaces: shop}], to: [{ports: 80}]}]",
            false,
        ),
        (
            "rules: [{from: [{namespaces: shop}], to: [{methods: GET}]}]",
            false,
        ),
        ("rules: [{action: deny, to: [{paths: /admin}]}]", false),
        (
            "rules: [{action: deny, to: [{paths: /admin, ports: 80}]}]",
            true,
        ),
        (
            "rules: [{action: deny, to: [{paths: /admin}], from: [{namespaces: x}]}]",
            true,
        ),
        ("rules: [{not_to: [{paths: /admin}]}]", false),
        ("rules: [{not_to: [{ports: 80}]}]", true),
        ("rules: [{not_to: [{ports: 4143}]}]", false),
        ("rules: [{action: deny, not_to: [{paths: /open}]}]", false),
        ("rules: [{action: deny, not_to: [{ports: 4143}]}]", true),
    ] {
        assert_eq!(web.connects(&policy(rules)).0, allowed, "{rules}");
    }
}

/// A server may treat `get` as `GET`: a deny rule matches it, an allow rule does not.
#[test]
fn methods_in_another_case_do_not_pass() {
    let web = Asker::member("web");
    let method = |text: &str| Method::from_bytes(text.as_bytes()).unwrap();
    for (rules, sent, allowed) in [
        ("{action: deny, to: [{methods: DELETE}]}", "DELETE", false),
        ("{action: deny, to: [{methods: DELETE}]}", "delete", false),
        ("{action: deny, to: [{methods: DELETE}]}", "DeLeTe", false),
        ("{action: deny, to: [{methods: DELETE}]}", "DELETED", true),
        ("{action: deny, to: [{methods: 'P*'}]}", "PROPFIND", false),
        ("{action: deny, to: [{methods: 'P*'}]}", "patch", false),
        ("{action: deny, to: [{methods: '*'}]}", "x", false),
        ("{action: deny, not_to: [{methods: GET}]}", "GET", true),
        ("{action: deny, not_to: [{methods: GET}]}", "get", false),
        ("{to: [{methods: GET}]}", "GET", true),
        ("{to: [{methods: GET}]}", "get", false),
        ("{to: [{methods: 'G*'}]}", "GET", true),
        ("{to: [{methods: '*'}]}", "BREW", true),
        ("{not_to: [{methods: DELETE}]}", "delete", false),
        ("{not_to: [{methods: DELETE}]}", "GET", true),
    ] {
        let policy = policy(&format!("rules: [{rules}]"));
        let found = web.asks(&policy, &method(sent), "/").0;
        assert_eq!(found, allowed, "{rules} {sent}");
    }
}

#[test]
fn hosts_that_are_missing_do_not_pass_what_denies_any() {
    let web = Asker::member("web");
    let allows = |rules: &str, host: &str| {
        let policy = policy(&format!("rules: [{rules}]"));
        web.sends(&policy, &GET, "/", host.as_bytes(), &Fields::default())
            .effect
            == Effect::Allow
    };
    assert!(!allows("{action: deny, to: [{hosts: '*'}]}", ""));
    assert!(!allows("{to: [{hosts: '*'}]}", ""));
    assert!(!allows(
        "{action: deny, to: [{hosts: 'a.example'}]}",
        "A.Example"
    ));
    assert!(!allows("{not_to: [{hosts: '*'}]}", ""));
}

#[test]
fn headers_are_compared_by_value() {
    let web = Asker::member("web");
    let fields = |list: &[(&str, &str)]| {
        let mut fields = Fields::default();
        for (name, value) in list {
            fields.push(&name.parse::<http::HeaderName>().unwrap(), value.as_bytes());
        }
        fields
    };
    let role = |values: &[&str]| {
        fields(
            &values
                .iter()
                .map(|value| ("x-role", *value))
                .collect::<Vec<_>>(),
        )
    };
    let allows = |rules: &str, fields: &Fields| {
        let policy = policy(&format!("rules: [{rules}]"));
        web.sends(&policy, &GET, "/", b"a", fields).effect == Effect::Allow
    };
    let allow = "{to: [{headers: [{name: X-Role, values: [admin, 'root*']}]}]}";
    let deny = "{action: deny, to: [{headers: [{name: x-role, values: [admin, 'root*']}]}]}";
    for (sent, allowed, denied) in [
        (&[][..], false, false),
        (&["admin"][..], true, true),
        (&["root-1"], true, true),
        // Values are case sensitive, names are not.
        (&["Admin"], false, false),
        (&["visitor"], false, false),
        (&[""], false, false),
        // It is unknown which of several values a server reads.
        (&["admin", "visitor"], false, true),
        (&["visitor", "admin"], false, true),
        (&["visitor, admin"], false, true),
        (&["visitor,admin,x"], false, true),
        (&["root-1", "root-2"], true, true),
        (&["admin", "admin"], false, true),
        (&["admin", ""], false, true),
    ] {
        let sent_fields = role(sent);
        assert_eq!(allows(allow, &sent_fields), allowed, "allow {sent:?}");
        assert_eq!(!allows(deny, &sent_fields), denied, "deny {sent:?}");
    }
    // Any value, also an empty one; exceptions get the wide reading, like deny rules.
    let any = "{to: [{headers: [{name: x-role, values: '*'}]}]}";
    assert!(
        allows(any, &role(&[""])) && allows(any, &role(&["a", "b"])) && !allows(any, &role(&[]))
    );
    let except = "{not_to: [{headers: [{name: x-role, values: visitor}]}]}";
    assert!(allows(except, &role(&[])) && allows(except, &role(&["admin"])));
    assert!(!allows(except, &role(&["admin", "visitor"])));
    let unless = "{action: deny, not_to: [{headers: [{name: x-role, values: admin}]}]}";
    assert!(allows(unless, &role(&["admin"])));
    assert!(!allows(unless, &role(&["admin", "visitor"])) && !allows(unless, &role(&[])));
    // All conditions have to hold.
    let both = "{to: [{methods: GET, headers: [{name: a, values: '1'}, {name: b, values: '2'}]}]}";
    assert!(allows(both, &fields(&[("a", "1"), ("b", "2")])));
    assert!(!allows(both, &fields(&[("a", "1")])));
    // Tunnels have no headers: an allow rule with headers does not match, a deny rule does.
    for (rules, allowed) in [(any, false), (deny, false)] {
        assert_eq!(
            web.connects(&policy(&format!("rules: [{rules}]"))).0,
            allowed,
            "{rules}"
        );
    }
}
