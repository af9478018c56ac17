use super::*;

fn parse(text: &str) -> Result<PolicySpec, SpecError> {
    text.parse()
}

#[track_caller]
fn message(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn the_words_of_the_contract_round_trip() {
    for word in [
        "random",
        "round-robin",
        "lor(choices=2)",
        "lor(choices=all)",
        "peak-ewma",
        "maglev(table_size=65537)",
        "ring-hash(min=1024)",
        "maglev(table_size=251,hash_balance_factor=125)",
        "ring-hash(min=10,max=20,hash_balance_factor=150)",
        "peak-ewma(choices=3,decay_ms=5000,default_rtt_ms=1)",
        "a-lsq(choices=2,overhead=10)",
        "a-lsq(choices=all,overhead=1)",
        "bounce(tries=3)",
        "ledger(group=40,fallback=bounce)",
        "probe(choices=2)",
        "subset(size=10,client=3,choices=1)",
    ] {
        assert_eq!(parse(word).unwrap().to_string(), word);
    }
}

#[test]
fn defaults_spaces_and_empty_parentheses() {
    assert_eq!(parse("lor"), Ok(PolicySpec::default()));
    assert_eq!(parse(" lor ( ) "), Ok(PolicySpec::default()));
    assert_eq!(parse("lor( choices = 2 )"), Ok(PolicySpec::default()));
    assert_eq!(PolicySpec::default().to_string(), "lor(choices=2)");
    assert_eq!(
        parse("maglev").unwrap().to_string(),
        "maglev(table_size=65537)"
    );
    assert_eq!(
        parse("ring-hash(max=4096)").unwrap().to_string(),
        "ring-hash(min=1024,max=4096)"
    );
}

#[test]
fn errors_name_parameter_reason_range_and_suggestion() {
    assert_eq!(
        message("maglev(table_size=65536)"),
        "policy maglev: table_size=65536 is not a prime number; the next one is 65537; \
         valid: a prime, 2-5000011"
    );
    assert_eq!(
        message("maglev(table_size=5000012)"),
        "policy maglev: table_size=5000012 is out of range; valid: 2-5000011"
    );
    assert_eq!(
        message("lor(choices=0)"),
        "policy lor: choices=0 is out of range; valid: 1-1024"
    );
    assert_eq!(
        message("lor(choices=two)"),
        "policy lor: choices=two is neither a whole number nor `all`; valid: 1-1024 or all"
    );
    assert_eq!(
        message("ring-hash(min=9,max=8)"),
        "policy ring-hash: min=9 is above max=8; valid: 1-8"
    );
    assert_eq!(
        message("maglev(hash_balance_factor=99)"),
        "policy maglev: hash_balance_factor=99 is out of range; valid: 100-100000"
    );
    assert_eq!(
        message("maglev(tablesize=7)"),
        "policy maglev has no parameter `tablesize`; did you mean `table_size`? \
         (it has: table_size, hash_balance_factor)"
    );
    assert_eq!(
        message("random(x=1)"),
        "policy random has no parameter `x`; it has no parameters"
    );
    assert_eq!(
        message("lor(choices=1,choices=2)"),
        "policy lor: parameter choices is given twice"
    );
    assert!(message("maglevv").contains("did you mean `maglev`?"));
    assert!(message("least_request").contains("did you mean `lor(choices=2)`?"));
    assert!(message("Round_Robin").contains("did you mean `round-robin`?"));
    assert!(!message("zzzzzzzz").contains("did you mean"));
}

#[test]
fn collaborative_policies_have_their_defaults() {
    for (short, full) in [
        ("a-lsq", "a-lsq(choices=2,overhead=10)"),
        ("bounce", "bounce(tries=3)"),
        ("ledger", "ledger(group=40,fallback=bounce)"),
        ("ledger(fallback=lor)", "ledger(group=40,fallback=lor)"),
        ("probe", "probe(choices=2)"),
        ("subset", "subset(size=20)"),
    ] {
        let spec = parse(short).unwrap();
        assert_eq!(spec.to_string(), full);
        assert_eq!(parse(full), Ok(spec.clone()));
        assert_eq!(spec.is_collaborative(), short != "subset");
    }
    assert!(!PolicySpec::default().is_collaborative());
    assert_eq!(
        message("ledger(group=40,fallback=bounc)"),
        "policy ledger: fallback=bounc is not a fallback policy; did you mean `bounce`?; \
         valid: bounce, lor, probe"
    );
    assert_eq!(
        message("bounce(tries=0)"),
        "policy bounce: tries=0 is out of range; valid: 1-16"
    );
    for name in ["jiq", "JIQ", "join_idle_queue", "prequal(probes=2)"] {
        let message = message(name);
        assert!(
            message.contains("`maglor-lab sim` only; write `"),
            "{message}"
        );
    }
}

#[test]
fn syntax_errors() {
    for text in [
        "",
        "()",
        "lor(",
        "lor)",
        "lor(choices)",
        "lor(choices=2",
        "lor(a=(b))",
        "lor(,)",
    ] {
        assert!(
            matches!(parse(text), Err(SpecError::Syntax { .. })),
            "{text}"
        );
    }
}

#[test]
fn mapping_and_string_are_the_same() {
    for (mapping, word) in [
        ("{name: maglev, table_size: 65537}", "maglev"),
        ("{name: lor, choices: all}", "lor(choices=all)"),
        ("{name: lor, choices: 3}", "lor(choices=3)"),
        ("{choices: '3', name: lor}", "lor(choices=3)"),
        ("name: round-robin", "round-robin"),
        ("round-robin", "round-robin"),
        ("maglev(table_size=7)", "maglev(table_size=7)"),
    ] {
        let spec: PolicySpec = serde_yaml::from_str(mapping).unwrap();
        assert_eq!(spec, parse(word).unwrap(), "{mapping}");
    }
    assert_eq!(
        serde_json::to_string(&PolicySpec::default()).unwrap(),
        "\"lor(choices=2)\""
    );
}

#[test]
fn mapping_errors_are_as_clear() {
    let error = |yaml: &str| {
        serde_yaml::from_str::<PolicySpec>(yaml)
            .unwrap_err()
            .to_string()
    };
    assert!(error("{name: maglev, table_size: 10}").contains("the next one is 11"));
    assert!(error("{name: maglev, table_size: 10.5}").contains("is not a whole number"));
    assert!(error("{name: lor, choices: -1}").contains("neither a whole number"));
    assert!(error("{table_size: 11}").contains("`name` is missing"));
    assert!(error("{name: lor, name: lor}").contains("name"));
    assert!(error("[lor]").contains("a policy such as"));
}

#[test]
fn a_spec_from_code_is_checked_when_built() {
    let view = View::build(Vec::new(), &crate::ViewParams::default(), crate::Time::ZERO);
    let bad = PolicySpec::Maglev(MaglevParams {
        table_size: 12,
        ..MaglevParams::default()
    });
    assert!(bad.build(&view).is_err());
    let bad = PolicySpec::RingHash(RingHashParams {
        min: 2,
        max: 1,
        ..RingHashParams::default()
    });
    assert!(bad.build(&view).is_err());
}

#[test]
fn tables_that_are_small_for_their_endpoints_are_found() {
    let wanted = |text: &str, endpoints| {
        let spec: PolicySpec = text.parse().unwrap();
        let uneven = spec.uneven_shares(endpoints);
        uneven.map(|uneven| (uneven.parameter, uneven.wanted))
    };
    assert_eq!(wanted("maglev(table_size=7)", 0), None);
    assert_eq!(
        wanted("maglev(table_size=7)", 40),
        Some(("table_size", 4001))
    );
    assert_eq!(wanted("maglev(table_size=4001)", 40), None);
    assert_eq!(wanted("maglev", 655), None);
    assert_eq!(wanted("maglev", 656), Some(("table_size", 65_609)));
    // No table is larger, however many endpoints there are.
    assert_eq!(wanted("maglev(table_size=5000011)", 1_000_000), None);
    assert_eq!(
        wanted("maglev", usize::MAX),
        Some(("table_size", 5_000_011))
    );
    assert_eq!(wanted("ring-hash(min=1,max=39)", 40), Some(("max", 40)));
    assert_eq!(wanted("ring-hash", 100_000), None);
    assert_eq!(wanted("lor", 1_000_000), None);
}
