//! Tests of parsing Gateways.

use rcgen::{CertificateParams, KeyPair};
use serde_json::json;

use super::*;

fn secret(chain: &str, key: &str) -> Secret {
    let data = |text: &str| json!(BASE64.encode(text.as_bytes()));
    Secret::read(&json!({"data": {"tls.crt": data(chain), "tls.key": data(key)}}))
}

#[test]
fn only_certificates_that_a_server_can_show_are_taken() {
    let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let params = CertificateParams::new(["a.example".to_owned()]).unwrap();
    let chain = params.self_signed(&key).unwrap().pem();
    let good = secret(&chain, &key.serialize_pem());
    assert_eq!(good.certificate.as_ref().unwrap().0, chain);
    assert!(!format!("{good:?}").contains("PRIVATE"));
    let odd = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (chain, key, expected) in [
        (
            chain.as_str(),
            other.serialize_pem(),
            "`tls.crt` and `tls.key`",
        ),
        (
            odd,
            key.serialize_pem(),
            "`tls.crt` contains an invalid certificate",
        ),
        ("", key.serialize_pem(), "contains no certificate"),
        (chain.as_str(), "nothing".to_owned(), "`tls.key`"),
    ] {
        let why = secret(chain, &key).certificate.unwrap_err();
        assert!(why.contains(expected), "{why}");
    }
    let why = Secret::read(&json!({})).certificate.unwrap_err();
    assert_eq!(why, "`tls.crt` contains no certificate");
}

#[test]
fn who_wants_certificates_of_clients_is_known() {
    let read = |tls: Value, own: Value| {
        let listener = |name: &str, port: u16, protocol: &str| json!({"name": name, "port": port, "protocol": protocol});
        let mut listeners = vec![listener("a", 443, "HTTPS"), listener("b", 8443, "HTTPS")];
        listeners.push(listener("c", 80, "HTTP"));
        listeners[1]["tls"] = own;
        let gateway =
            json!({"spec": {"gatewayClassName": "maglor", "listeners": listeners, "tls": tls}});
        let gateway = Gateway::read(&Meta::default(), &gateway).unwrap();
        let asked = gateway.listeners.iter();
        asked
            .map(|one| one.wants_clients_certificates)
            .collect::<Vec<bool>>()
    };
    let roots = json!({"validation": {"caCertificateRefs": [{"name": "roots"}]}});
    assert_eq!(read(json!({}), json!({})), [false; 3]);
    let all = json!({"frontend": {"default": roots}});
    assert_eq!(read(all, json!({})), [true, true, false]);
    let one = json!({"frontend": {"default": {}, "perPort": [{"port": 443, "tls": roots}]}});
    assert_eq!(read(one, json!({})), [true, false, false]);
    let others = json!({"frontend": {"default": roots, "perPort": [{"port": 443, "tls": {}}]}});
    assert_eq!(read(others, json!({})), [false, true, false]);
    let before = json!({"frontendValidation": {"caCertificateRefs": []}});
    assert_eq!(read(json!({}), before), [false, true, false]);
}

#[test]
fn namespaces_are_selected_by_labels() {
    let labels: BTreeMap<String, String> = [("a".to_owned(), "1".to_owned())].into();
    for (selector, expected) in [
        (json!({}), true),
        (json!({"matchLabels": {"a": "1"}}), true),
        (json!({"matchLabels": {"a": "2"}}), false),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}),
            true,
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}),
            false,
        ),
        (
            json!({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}),
            true,
        ),
        (
            json!({"matchExpressions": [{"key": "b", "operator": "Exists"}]}),
            false,
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "Odd"}]}),
            false,
        ),
    ] {
        let read: Selector = serde_json::from_value(selector.clone()).unwrap();
        assert_eq!(read.selects(&labels), expected, "{selector}");
    }
}

#[test]
fn hostnames_are_dns_names() {
    for good in [
        "a",
        "a.example",
        "*.a.example",
        "A.Example",
        "a-1.b2",
        "xn--p1ai",
    ] {
        assert_eq!(hostname_fault(good), None, "{good}");
    }
    let long = "a".repeat(64);
    for bad in [
        "", "*", "*.", "a.*", "*a.b", "a..b", ".a", "a.", "-a", "a-", "a_b", "a/b", "a:80",
        "10.0.0.1", "[::1]", "\u{e9}", "a b", "%41", &long,
    ] {
        assert!(hostname_fault(bad).is_some(), "{bad}");
    }
}
