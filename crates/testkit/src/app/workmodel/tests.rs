use std::time::Duration;

use super::*;

/// As µBench's examples are written, with the fields that only Kubernetes needs.
const MUBENCH: &str = r#"{
  "s0": {
    "external_services": [
      {"seq_len": 100, "services": ["s1", "s2"], "probabilities": {"s1": 0.5, "s9": 1}},
      {"seq_len": 1, "services": ["sdb1"]}
    ],
    "internal_service": {"loader": {
      "cpu_stress": {"run": true, "range_complexity": [100, 100], "trials": 33},
      "sleep_stress": {"run": true, "sleep_time": 0.01},
      "mean_response_size": 11, "function_id": "f4"}},
    "request_method": "rest", "workers": 4, "threads": 16,
    "url": "s0.default.svc.cluster.local", "path": "/api/v1",
    "image": "msvcbench/microservice_v6-screen:1.0", "namespace": "default"
  },
  "s1": {"external_services": [{"seq_len": 1, "services": []}],
         "internal_service": {"compute_pi": {"range_complexity": [1, 2]}}},
  "s2": {"external_services": [], "replicas": 3,
         "internal_service": {"queue": {"service_time": 0.02, "distribution": "lognormal:2", "workers": 4}}},
  "sdb1": {}
}"#;

#[test]
fn files_of_mubench_are_read() {
    let model = WorkModel::parse(MUBENCH).unwrap();
    let service = |name| model.called(name).unwrap().1;
    let s0 = service("s0");
    assert_eq!(s0.host("s0"), "s0.default.svc.cluster.local");
    assert_eq!(s0.work().mean, Duration::from_millis(10));
    assert_eq!(s0.work().shape, Shape::Deterministic);
    assert!((s0.mean_response_size() - 11.0).abs() < 1e-9);
    assert!((s0.external_services[0].probability("s1") - 0.5).abs() < 1e-9);
    assert!((s0.external_services[0].probability("s2") - 1.0).abs() < 1e-9);
    assert!(s0.external_services[0].takes_all());
    assert_eq!(service("s1").work().mean, Duration::ZERO);
    assert_eq!(service("s2__3").workers(), 4);
    assert_eq!(service("s2").work().shape, Shape::Lognormal { cv: 2.0 });
    assert_eq!(service("sdb1").path, "/api/v1");
    let hosts: Vec<_> = model.hosts().into_iter().collect();
    let expected = [
        ("s0.default.svc.cluster.local", 1),
        ("s1", 1),
        ("s2", 3),
        ("sdb1", 1),
    ];
    assert_eq!(hosts, expected);
}

#[test]
fn what_is_printed_is_read_again() {
    for text in [MUBENCH, "{}"] {
        let model = WorkModel::parse(text).unwrap();
        let again = serde_json::to_string(&model).unwrap();
        assert_eq!(WorkModel::parse(&again).unwrap(), model);
    }
}

#[test]
fn errors_name_the_field_and_the_line() {
    let group = |text: &str| format!("{{\"a\": {{\n\"external_services\": [\n{text}\n]}}}}");
    let queue =
        |text: &str| format!("{{\"a\": {{\"internal_service\": {{\"queue\":\n{{{text}}}}}}}}}");
    for (text, line, needle) in [
        ("{".to_owned(), 1, "EOF"),
        (
            "{\"a\":\n{\"replicas\": 0}}".into(),
            2,
            "replicas: 0 is out of range",
        ),
        (
            "{\"a\":\n{\"replicas\": \"x\"}}".into(),
            2,
            "replicas: invalid type",
        ),
        (group("{\"services\": []}"), 3, "missing field `seq_len`"),
        (
            group("{\"seq_len\": -1, \"services\": []}"),
            3,
            "seq_len: invalid value",
        ),
        (
            group("{\"seq_len\": 1, \"services\": [\"b\"]}"),
            3,
            "calls `b`",
        ),
        (
            group("{\"seq_len\": 1, \"services\": [], \"probabilities\": {\"a\": 2}}"),
            3,
            "probabilities.a: 2 is out of range",
        ),
        (
            queue("\"service_time\": -1"),
            2,
            "service_time: -1 is out of range",
        ),
        (
            queue("\"service_time\": 1, \"workers\": 0"),
            2,
            "workers: 0",
        ),
        (
            queue("\"service_time\": 1, \"distribution\": \"x\""),
            2,
            "distribution: `x`",
        ),
        (
            queue("\"service_time\": 1, \"colour\": 1"),
            2,
            "unknown field `colour`",
        ),
        (
            "{\"a\": {},\n\"b\": {\"url\": \"a\"}}".into(),
            2,
            "b has the url and the path of a",
        ),
    ] {
        let error = WorkModel::parse(&text).unwrap_err().to_string();
        assert!(error.contains(needle), "{error}");
        assert!(
            error.contains(&format!("line {line}")),
            "{error} for {text}"
        );
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn only_certain_cycles_are_refused() {
    let chain = |probability: f64| {
        let call = |callee: &str, p| {
            let mut service = Service::exponential(1, 0.01).calling([callee]);
            service.external_services[0]
                .probabilities
                .insert(callee.into(), p);
            service
        };
        let services = [
            ("a", call("b", 1.0)),
            ("b", call("c", 1.0)),
            ("c", call("b", probability)),
        ];
        let model = WorkModel::new(services.map(|(name, service)| (name.to_owned(), service)));
        WorkModel::parse(&serde_json::to_string(&model).unwrap())
    };
    assert!(chain(0.5).is_ok());
    let error = chain(1.0).unwrap_err().to_string();
    assert!(error.contains("b -> c -> b"), "{error}");
}

/// Damaged files are accepted or rejected with one line, and accepted files are accepted again.
#[test]
fn damage_is_survived() {
    let mut rng = maglor_balance::Rng::seed(crate::seed());
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut bytes = MUBENCH.as_bytes().to_vec();
        for _ in 0..=rng.below(3) {
            let length = bytes.len() as u32;
            if length == 0 {
                break;
            }
            let (from, to) = (rng.below(length) as usize, rng.below(length) as usize);
            match rng.below(4) {
                0 => bytes[from] = b"\"{}[]:,-0e9."[rng.below(12) as usize],
                1 => drop(bytes.drain(from.min(to)..(from.min(to) + 5).min(length as usize))),
                2 => bytes.swap(from, to),
                _ => bytes.truncate(from.max(1)),
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        match WorkModel::parse(&text) {
            Ok(model) => {
                let printed = serde_json::to_string(&model).unwrap();
                assert!(WorkModel::parse(&printed).is_ok(), "{printed} of {text}");
                accepted += 1;
            }
            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        }
    }
    assert!(accepted > 100, "{accepted}");
}

#[test]
fn limits_need_one_worker() {
    let queue = |more: &str| {
        let text = format!(
            "{{\"a\":\n{{\"internal_service\": {{\"queue\": {{\"service_time\": 0.001, {more}}}}}}}}}"
        );
        WorkModel::parse(&text)
    };
    let model = queue("\"cpu_limit\": 0.1").unwrap();
    let limit = model.called("a").unwrap().1.cpu_limit();
    assert_eq!(limit, Some((0.1, Duration::from_millis(100))));
    for (more, needle) in [
        ("\"cpu_limit\": 2", "cpu_limit: 2 is out of range"),
        ("\"cpu_limit\": 0", "cpu_limit: 0 is out of range"),
        ("\"cpu_period\": 0", "cpu_period: 0 is out of range"),
        (
            "\"cpu_limit\": 0.5, \"workers\": 2",
            "a has a cpu_limit and 2 workers",
        ),
    ] {
        let error = queue(more).unwrap_err().to_string();
        assert!(error.contains(needle), "{error}");
    }
}
