use super::*;

fn read(kind: RouteKind, spec: &str) -> Route {
    let text = format!("spec:\n{spec}");
    let value: Value = serde_yaml::from_str(&text).unwrap();
    let meta = Meta {
        name: "r".into(),
        namespace: "shop".into(),
        ..Meta::default()
    };
    Route::read(kind, &meta, &value)
}

fn yaml<T: serde::Serialize>(value: &T) -> String {
    let json = serde_json::to_value(value).unwrap();
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
    let mut json = json;
    prune(&mut json);
    json.to_string()
}

#[test]
fn parents_are_services() {
    let route = read(
        RouteKind::Http,
        "
  parentRefs:
  - {name: gateway}
  - {group: '', kind: Service, name: cart, port: 80}
  - {group: '', kind: Service, name: web, namespace: front}
",
    );
    let found: Vec<_> = route
        .parents
        .iter()
        .map(|parent| (parent.key.to_string(), parent.port))
        .collect();
    let expected = [
        ("shop/cart".to_owned(), Some(80)),
        ("front/web".to_owned(), None),
    ];
    assert_eq!(found, expected);
}

#[test]
fn matches_are_translated() {
    for (text, expected) in [
        ("{}", r#"{"path":"/"}"#),
        ("{path: {value: /}}", r#"{"path":"/"}"#),
        ("{path: {value: /api/}}", r#"{"path":"/api"}"#),
        (
            "{path: {type: Exact, value: /api/}}",
            r#"{"path":{"exact":"/api/"}}"#,
        ),
        (
            "{path: {type: RegularExpression, value: /a+}}",
            r#"{"path":{"regex":"/a+"}}"#,
        ),
        ("{method: POST}", r#"{"methods":["POST"],"path":"/"}"#),
        (
            "{headers: [{name: v, value: '2'}], queryParams: [{type: RegularExpression, name: q, value: a.*}]}",
            r#"{"headers":[{"exact":"2","name":"v"}],"path":"/","query":[{"name":"q","regex":"a.*"}]}"#,
        ),
    ] {
        let route = read(
            RouteKind::Http,
            &format!("  rules: [{{matches: [{text}]}}]"),
        );
        let rules = route.rules.unwrap();
        assert_eq!(yaml(&rules[0].matches[0].conditions), expected, "{text}");
    }
}

/// Gateway API, `HTTPHeaderMatch.name` and `HTTPHeader.name`: of equivalent names the first entry counts.
#[test]
fn of_headers_of_one_name_the_first_counts() {
    let route = read(
        RouteKind::Http,
        "
  rules:
  - matches: [{headers: [{name: Version, value: a}, {name: x, value: b}, {name: version, value: c}]}]
    filters:
    - {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: A, value: '1'}, {name: a, value: '2'}]}}
    - {type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: ''}}}
  - filters:
    - {type: RequestHeaderModifier, requestHeaderModifier: {remove: [x]}}
    - {type: RequestRedirect, requestRedirect: {path: {type: ReplacePrefixMatch, replacePrefixMatch: ''}}}
",
    );
    let rules = route.rules.unwrap();
    let headers = yaml(&rules[0].matches[0].conditions.headers);
    let expected = r#"[{"exact":"a","name":"Version"},{"exact":"b","name":"x"}]"#;
    assert_eq!(headers, expected);
    assert_eq!(
        yaml(&rules[0].action.request_headers),
        r#"{"set":{"A":"1"}}"#
    );
    // Nothing in place of a prefix leaves a slash.
    let rewrite = rules[0].action.rewrite.as_ref().unwrap();
    let redirect = rules[1].action.redirect.as_ref().unwrap();
    let prefixes = [&rewrite.prefix, &redirect.prefix];
    assert_eq!(prefixes.map(Option::as_deref), [Some("/"); 2]);
    assert_eq!(rules[1].action.request_headers, None);
}

#[test]
fn grpc_methods_are_paths() {
    for (text, expected) in [
        ("{service: a.B, method: C}", r#"{"exact":"/a.B/C"}"#),
        ("{service: a.B}", r#""/a.B/""#),
        ("{method: C}", r#"{"regex":"/[^/]+/C"}"#),
        (
            "{type: RegularExpression, service: a.*}",
            r#"{"regex":"/(?:a.*)/(?:[^/]+)"}"#,
        ),
    ] {
        let route = read(
            RouteKind::Grpc,
            &format!("  rules: [{{matches: [{{method: {text}}}]}}]"),
        );
        let rules = route.rules.unwrap();
        let found = &rules[0].matches[0].conditions;
        assert_eq!(yaml(found.path.as_ref().unwrap()), expected, "{text}");
        assert_eq!(found.grpc, Some(true));
    }
}

#[test]
fn filters_are_translated() {
    let route = read(
        RouteKind::Http,
        "
  rules:
  - filters:
    - {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: b}], remove: [c]}}
    - {type: URLRewrite, urlRewrite: {hostname: h, path: {type: ReplacePrefixMatch, replacePrefixMatch: /x}}}
    - {type: RequestMirror, requestMirror: {backendRef: {name: copy, port: 80}, fraction: {numerator: 1, denominator: 8}}}
    timeouts: {request: 2s, backendRequest: 500ms}
    backendRefs: [{name: v1, port: 80, weight: 9}, {name: v2, namespace: other, port: 81}]
",
    );
    let rules = route.rules.unwrap();
    assert_eq!(
        yaml(&rules[0].action),
        r#"{"request_headers":{"remove":["c"],"set":{"a":"b"}},"retry":{"per_try_timeout":"500ms"},"rewrite":{"host":"h","prefix":"/x"},"timeout":"2s"}"#
    );
    assert!((rules[0].mirrors[0].1 - 12.5).abs() < 1e-9);
    let backends: Vec<_> = rules[0]
        .backends
        .iter()
        .map(|one| {
            (
                one.service.clone().unwrap().to_string(),
                one.port,
                one.weight,
            )
        })
        .collect();
    let expected = [
        ("shop/v1".to_owned(), Some(80), 9),
        ("other/v2".to_owned(), Some(81), 1),
    ];
    assert_eq!(backends, expected);
    let redirect = read(
        RouteKind::Http,
        "  rules: [{filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}]}]",
    );
    let rules = redirect.rules.unwrap();
    assert_eq!(
        yaml(&rules[0].action),
        r#"{"redirect":{"port":443,"scheme":"https","status":302}}"#
    );
}

#[test]
fn what_is_not_supported_is_named() {
    for (spec, expected) in [
        (
            "  rules: [{}, {filters: [{type: ExtensionRef}]}]",
            "spec.rules[1].filters[0].type: the filter `ExtensionRef` is not supported",
        ),
        (
            "  rules: [{matches: [{headers: [{type: Glob, name: a}]}]}]",
            "spec.rules[0].matches[0].headers[0].type: the type `Glob` is not supported",
        ),
        (
            "  rules: [{backendRefs: [{name: a, filters: [{type: URLRewrite}]}]}]",
            "spec.rules[0].backendRefs[0].filters[0].type: the filter `URLRewrite` of one backend is not supported",
        ),
        (
            "  rules: [{backendRefs: [{name: a, port: 1}, {name: a, port: 1, filters: [{type: RequestHeaderModifier, requestHeaderModifier: {remove: [x]}}]}]}]",
            "spec.rules[0].backendRefs[1].filters: two references to one port of a Service differ in their filters",
        ),
        (
            "  rules: [{sessionPersistence: {type: Cookie}}]",
            "spec.rules[0].sessionPersistence: not supported; for session affinity use `route.hash_policy` of a TrafficPolicy",
        ),
    ] {
        let error = read(RouteKind::Http, spec).rules.unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let error = read(
        RouteKind::Http,
        "  rules: [{}, {matches: [{path: {type: RegularExpression, value: '(a'}}]}]",
    );
    let error = error.rules.unwrap_err().to_string();
    assert!(error.starts_with("spec.rules[1]: "), "{error}");
    let route = read(
        RouteKind::Http,
        "  parentRefs: [{group: '', kind: Service, name: web}, {name: edge}]\n  rules: {}",
    );
    let error = route.rules.unwrap_err();
    assert!(error.to_string().starts_with("spec.rules: "), "{error}");
    // Its recipients must be notified.
    assert_eq!((route.parents.len(), route.gateways.len()), (1, 1));
}

#[test]
fn the_more_specific_match_comes_first() {
    let precedence = |text: &str| {
        let route = read(
            RouteKind::Http,
            &format!("  rules: [{{matches: [{text}]}}]"),
        );
        route.rules.unwrap()[0].matches[0].precedence
    };
    let ordered = [
        "{path: {type: Exact, value: /a}}",
        "{path: {value: /abc}, method: GET}",
        "{path: {value: /abc}, headers: [{name: a, value: b}]}",
        "{path: {value: /abc}, queryParams: [{name: a, value: b}]}",
        "{path: {value: /abc}}",
        "{path: {value: /a}, method: GET}",
        "{}",
        "{path: {type: RegularExpression, value: /.*}}",
    ];
    let found: Vec<_> = ordered.iter().map(|text| precedence(text)).collect();
    assert!(found.is_sorted_by(|a, b| a > b), "{found:?}");
}
