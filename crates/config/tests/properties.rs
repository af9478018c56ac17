//! Properties of notations, and of the YAML reader compared with `serde_yaml`.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

use std::path::Path;
use std::time::Duration;

use maglor_config::raw::{Document, Size, TimeSpan};
use maglor_config::{Config, Filter, parse};
use proptest::prelude::*;

proptest! {
    /// Printed values are parsed as equal values.
    #[test]
    fn times_round_trip(nanos in 0..315_360_000_000_000_000_u64) {
        let span = TimeSpan(Duration::from_nanos(nanos));
        prop_assert_eq!(span.to_string().parse::<TimeSpan>().unwrap(), span);
    }

    #[test]
    fn sizes_round_trip(bytes in any::<u64>()) {
        let size = Size(bytes);
        prop_assert_eq!(size.to_string().parse::<Size>().unwrap(), size);
    }

    /// No text makes a notation panic.
    #[test]
    fn notations_take_any_text(text in "\\PC*") {
        let _ = text.parse::<TimeSpan>();
        let _ = text.parse::<Size>();
    }

    /// No text makes the reader panic.
    #[test]
    fn any_text_is_answered(text in "(?s).{0,200}") {
        let _ = parse(&text, "any.yaml");
    }

    /// A text in a scalar of any style arrives as it was written by another YAML writer.
    #[test]
    fn scalars_arrive_as_written(text in "[ -~éß💥\n]{1,40}", deep in any::<bool>()) {
        let mut value: serde_yaml::Value = serde_yaml::from_str(BASE).unwrap();
        let body = &mut value["listeners"][0]["http"]["virtual_hosts"][0]["routes"][0];
        body["direct_response"]["body"] = text.clone().into();
        if deep {
            value = serde_yaml::from_str(&serde_json::to_string(&value).unwrap()).unwrap();
        }
        let yaml = serde_yaml::to_string(&value).unwrap();
        let loaded = parse(&yaml, "scalar.yaml").unwrap_or_else(|e| panic!("{e}\n{yaml}"));
        let theirs: Document = serde_yaml::from_str(&yaml).unwrap();
        prop_assert_eq!(&*theirs.to_yaml().unwrap(), &*loaded.yaml);
        let (written, read) = (format!("{text:?}"), format!("{:?}", loaded.config));
        prop_assert!(read.contains(&written));
    }

    /// Flags and the file that they print mean the same; bad flags are named.
    #[test]
    fn flags_are_files(
        addresses in prop::collection::vec("(127\\.0\\.0\\.[0-9]{1,3}|[a-z]{1,8}(\\.[a-z]{1,5})?|\\[::1\\]):[0-9]{1,5}(,weight=[0-9]{1,3})?", 0..5),
        policy in prop::option::of("(lor|maglev|random)(\\((choices|table_size)=[0-9]{1,3}\\))?"),
        workers in 0..300_usize,
        admin in any::<u16>(),
    ) {
        let listen = "127.0.0.1:8080".parse().unwrap();
        let admin = Some(([127, 0, 0, 1], admin).into());
        match Config::from_flags(listen, &addresses, policy.as_deref(), admin, workers) {
            Ok(loaded) => {
                let file = parse(&loaded.yaml, "flags.yaml").unwrap();
                prop_assert_eq!(format!("{:?}", file.config), format!("{:?}", loaded.config));
                prop_assert_eq!(file.config.clusters[0].endpoints.len(), addresses.len());
            }
            Err(errors) => {
                for error in errors.0 {
                    prop_assert!(error.origin.to_string().starts_with("--"), "{}", error);
                }
            }
        }
    }
}

const BASE: &str = "
listeners:
- name: web
  address: 127.0.0.1:80
  http:
    virtual_hosts:
    - domains: ['*']
      routes:
      - direct_response: {status: 200, body: x}
";

#[test]
fn flag_errors_name_their_flag() {
    let upstreams = [
        "127.0.0.1:9001,weight=x",
        "a.b",
        "b:1,weight=0",
        "c:1,hight=2",
    ];
    let errors = Config::from_flags(
        "0.0.0.0:80".parse().unwrap(),
        &upstreams.map(str::to_owned),
        Some("maglevv"),
        Some("127.0.0.1:80".parse().unwrap()),
        0,
    )
    .unwrap_err();
    assert_eq!(
        errors.to_string(),
        "\
         --admin 127.0.0.1:80: error: 127.0.0.1:80 overlaps 0.0.0.0:80 of the listener `web`
  = help: use different ports, or different IP addresses

--policy: error: there is no policy `maglevv`
  = help: did you mean `maglev`? (available: a-lsq, bounce, ledger, lor, maglev, peak-ewma, probe, random, ring-hash, round-robin, subset)

--upstream 127.0.0.1:9001,weight=x: error: `x` is not a weight
  = help: the weight must be 1 to 1000000

--upstream a.b: error: `a.b` is not `IP:PORT`, `NAME:PORT` or `unix:/PATH`
  = help: write `a.b:80`

--upstream b:1,weight=0: error: an endpoint of weight 0 would never be used
  = help: remove the endpoint, or set its weight to 1 to 1000000

--upstream c:1,hight=2: error: unexpected `hight=2`
  = help: write `ADDR` or `ADDR,weight=N`

--workers 0: error: 0 is out of range; valid: 1 to 256
  = help: the nearest valid value is 1"
    );
}

#[test]
fn files_that_cannot_be_read_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("maglor.yaml");
    let error = maglor_config::load(&file).unwrap_err().to_string();
    assert!(
        error.contains("maglor.yaml: error: cannot read the file"),
        "{error}"
    );
    std::fs::write(&file, b"listeners:\n- name: \xff\n").unwrap();
    let error = maglor_config::load(&file).unwrap_err().to_string();
    assert!(error.contains("line 2 is not UTF-8 text"), "{error}");
    assert!(maglor_config::load(folder.path()).is_err());
    let endless = Path::new("/dev/zero");
    if endless.exists() {
        let error = maglor_config::load(endless).unwrap_err().to_string();
        let expected = "/dev/zero: error: the file has more than 8388608 bytes";
        assert!(error.contains(expected), "{error}");
    }
}

/// There may be ten thousand hosts, each with a route.
#[test]
fn a_virtual_host_keeps_no_space_for_further_routes_and_domains() {
    let text = "listeners: [{name: web, address: 127.0.0.1:1, http: {virtual_hosts: [{domains: [a], routes: [{cluster: c}]}]}}]
clusters: [{name: c, endpoints: ['127.0.0.1:2']}]";
    let config = parse(text, "test").unwrap().config;
    let Filter::Http(http) = &config.listeners[0].filter_chains[0].filter else {
        panic!("it is HTTP");
    };
    let host = &http.routes.virtual_hosts[0];
    assert!(host.routes.capacity() <= 2 && host.domains.capacity() == 1);
    assert!(host.request_headers.is_none() && host.routes[0].request_headers.is_none());
}
