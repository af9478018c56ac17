use proptest::prelude::*;

use super::*;

const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn parse(value: &str) -> Option<TraceContext> {
    TraceContext::parse(value.as_bytes())
}

fn find(headers: &[(&str, &str)]) -> Incoming {
    Incoming::extract(|name| {
        let values = headers.iter().filter(move |(header, _)| *header == name);
        values.map(|(_, value)| value.as_bytes())
    })
}

/// The headers that a span writes for a request that it received with these.
fn forwarded(headers: &[(&str, &str)]) -> Vec<(String, String)> {
    let incoming = find(headers);
    let own = match &incoming.parent {
        Some(parent) => parent.child([7; 8]),
        None => TraceContext::root([7; 24], incoming.sampling),
    };
    let parent = SpanId::new([5; 8]);
    let mut written = Vec::new();
    incoming.inject(&own, parent, |name, value| {
        written.push((name.to_owned(), String::from_utf8(value.to_vec()).unwrap()));
    });
    written
}

#[test]
fn the_example_of_the_specification() {
    let context = parse(EXAMPLE).unwrap();
    assert_eq!(
        context.trace_id.to_string(),
        "4bf92f3577b34da6a3ce929d0e0e4736"
    );
    assert_eq!(context.span_id.to_string(), "00f067aa0ba902b7");
    assert_eq!(context.sampling, Sampling::Accept);
    assert_eq!(context.to_string(), EXAMPLE);
    assert_eq!(
        parse(&EXAMPLE.replace("-01", "-00")).unwrap().sampling,
        Sampling::Deny
    );
    assert_eq!(parse(&format!(" {EXAMPLE}\t")), Some(context));
}

#[test]
fn unknown_flags_are_read_and_not_passed_on() {
    let context = parse(&EXAMPLE.replace("-01", "-ff")).unwrap();
    assert_eq!(context.sampling, Sampling::Accept);
    assert!(context.to_string().ends_with("-01"));
    let context = parse(&EXAMPLE.replace("-01", "-fe")).unwrap();
    assert_eq!(context.sampling, Sampling::Deny);
}

#[test]
fn later_versions_are_read_as_far_as_they_are_known() {
    let context = parse(EXAMPLE);
    assert_eq!(parse(&EXAMPLE.replacen("00", "01", 1)), context);
    assert_eq!(
        parse(&format!("cc{}-what-the-future-is-like", &EXAMPLE[2..])),
        context
    );
    assert_eq!(parse(&format!("cc{}-", &EXAMPLE[2..])), context);
    assert_eq!(parse(&format!("cc{}.what", &EXAMPLE[2..])), None);
}

#[test]
fn invalid_headers_are_refused() {
    for wrong in [
        "",
        "-",
        "00",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-extra",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "0x-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-.1",
    ] {
        assert_eq!(parse(wrong), None, "{wrong}");
    }
}

#[test]
fn a_root_is_valid_whatever_the_random_bytes() {
    let root = TraceContext::root([0; 24], Sampling::Deny);
    assert_eq!(parse(&root.to_string()), Some(root));
    assert_ne!(root.child([9; 8]).span_id, root.span_id);
}

const SINGLE: (&str, &str) = ("b3", "80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1");
const MULTI: [(&str, &str); 2] = [
    ("x-b3-traceid", "64fe8b2a57d3eff7"),
    ("x-b3-spanid", "e457b5a2e4d86bd1"),
];

#[test]
fn w3c_comes_before_b3() {
    let trace = |headers: &[_]| {
        find(headers)
            .parent
            .map(|parent| parent.trace_id.to_string())
    };
    let (w3c, single) = (&EXAMPLE[3..35], &SINGLE.1[..32]);
    let multi = format!("{:0>32}", MULTI[0].1);
    let [id, span] = MULTI;
    assert_eq!(
        trace(&[SINGLE, ("traceparent", EXAMPLE), id, span]).as_deref(),
        Some(w3c)
    );
    assert_eq!(
        trace(&[SINGLE, ("traceparent", "bad"), id]).as_deref(),
        Some(single)
    );
    assert_eq!(trace(&[("b3", "0"), id, span]), Some(multi));
    let twice = [("traceparent", EXAMPLE), ("traceparent", EXAMPLE)];
    assert_eq!(trace(&twice), None);
    assert_eq!(trace(&[id]), None);
    assert_eq!(trace(&[]), None);
}

#[test]
fn contexts_are_written_as_they_came() {
    let pairs = |headers: &[(&str, &str)]| {
        let pairs = headers
            .iter()
            .map(|(name, value)| (String::from(*name), String::from(*value)));
        pairs.collect::<Vec<_>>()
    };
    let state = ("tracestate", "a=1");
    let w3c = "00-4bf92f3577b34da6a3ce929d0e0e4736-0707070707070707-01";
    let single = "80f198ee56343ba864fe8b2a57d3eff7-0707070707070707-1-0505050505050505";
    let multi = [
        ("x-b3-traceid", "64fe8b2a57d3eff7"),
        ("x-b3-spanid", "0707070707070707"),
        ("x-b3-parentspanid", "0505050505050505"),
        ("x-b3-sampled", "0"),
    ];
    let [id, span] = MULTI;
    for (received, expected) in [
        (
            &[("traceparent", EXAMPLE), state][..],
            &[("traceparent", w3c), state][..],
        ),
        (&[SINGLE, state], &[("b3", single)]),
        (&[id, span, ("x-b3-sampled", "0")], &multi),
        (&[SINGLE, ("traceparent", "bad"), state], &[("b3", single)]),
        (
            &[SINGLE, ("traceparent", EXAMPLE)],
            &[
                ("traceparent", w3c),
                (
                    "b3",
                    "4bf92f3577b34da6a3ce929d0e0e4736-0707070707070707-1-0505050505050505",
                ),
            ],
        ),
    ] {
        assert_eq!(forwarded(received), pairs(expected), "{received:?}");
    }
    for new in [&[][..], &[("traceparent", "bad"), state], &[id]] {
        let written = forwarded(new);
        assert_eq!(written.len(), 1, "{new:?}");
        assert!(parse(&written[0].1).is_some_and(|new| new.sampling == Sampling::Deny));
    }
}

#[test]
fn a_decision_may_come_without_identifiers() {
    for (headers, sampling, b3_single) in [
        (&[("b3", "0")][..], Sampling::Deny, true),
        (&[("b3", "1")], Sampling::Accept, true),
        (&[("b3", "d")], Sampling::Debug, true),
        (&[("x-b3-sampled", "0")], Sampling::Deny, false),
        (&[("x-b3-flags", "1")], Sampling::Debug, false),
    ] {
        let incoming = find(headers);
        assert_eq!((incoming.parent, incoming.sampling), (None, sampling));
        let formats = Formats {
            w3c: false,
            b3_single,
            b3_multi: !b3_single,
        };
        assert_eq!(incoming.formats, formats, "{headers:?}");
    }
    assert_eq!(find(&[]).sampling, Sampling::Defer);
}

#[test]
fn b3_in_one_header() {
    let (trace, span) = ("80f198ee56343ba864fe8b2a57d3eff7", "e457b5a2e4d86bd1");
    let parent = SpanId::new([5; 8]).unwrap();
    for (rest, sampling) in [
        ("", Sampling::Defer),
        ("-0", Sampling::Deny),
        ("-1", Sampling::Accept),
        ("-d", Sampling::Debug),
    ] {
        let text = format!("{trace}-{span}{rest}");
        let context = b3::parse_single(text.as_bytes()).unwrap();
        assert_eq!(context.sampling, sampling);
        assert_eq!(b3::to_single(&context, None), text);
        let with_parent = b3::to_single(&context, Some(parent));
        assert_eq!(with_parent, format!("{text}-{parent}"));
        assert_eq!(b3::parse_single(with_parent.as_bytes()), Some(context));
    }
    for wrong in [
        "",
        "1",
        "d",
        "80f198ee56343ba864fe8b2a57d3eff7",
        "80f198ee56343ba864fe8b2a57d3eff7-",
        "80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-2",
        "80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-2-05e3ac9a4f6e3b90",
        "80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1-x",
        "80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1-05e3ac9a4f6e3b90-1",
        "0000000000000000-e457b5a2e4d86bd1",
    ] {
        assert_eq!(b3::parse_single(wrong.as_bytes()), None, "{wrong}");
    }
}

#[test]
fn b3_in_several_headers() {
    let ids = [
        ("x-b3-traceid", "64fe8b2a57d3eff7"),
        ("x-b3-spanid", "e457b5a2e4d86bd1"),
    ];
    for (extra, sampling) in [
        (("x-b3-sampled", "1"), Sampling::Accept),
        (("x-b3-sampled", "true"), Sampling::Accept),
        (("x-b3-sampled", "0"), Sampling::Deny),
        (("x-b3-flags", "1"), Sampling::Debug),
        (("x-b3-flags", "0"), Sampling::Defer),
    ] {
        let context = find(&[ids[0], ids[1], extra]).parent.unwrap();
        assert_eq!(context.sampling, sampling);
        assert_eq!(
            context.trace_id.to_string(),
            "000000000000000064fe8b2a57d3eff7"
        );
        let parent = SpanId::new([5; 8]);
        let written: Vec<_> = b3::to_multi(&context, parent).collect();
        assert_eq!(written[0], ("x-b3-traceid", "64fe8b2a57d3eff7".to_owned()));
        let again = b3::parse_multi(|name| {
            let (_, value) = written.iter().find(|(header, _)| *header == name)?;
            Some(value.as_bytes())
        });
        assert_eq!(again, Some(context));
    }
}

#[test]
fn tracestate_rules() {
    let combine =
        |values: &[&str]| tracestate::combine(values.iter().map(|value| value.as_bytes()));
    let same = |value: &str| assert_eq!(combine(&[value]).as_deref(), Some(value));
    same("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE");
    same("fw529a3039@dt=FfbqqbfLRPxSpABc,0a-_*/=a b");
    same(&format!("{}={}", "a".repeat(256), "v".repeat(256)));
    same(&format!("{}@{}=v", "t".repeat(241), "v".repeat(14)));
    let list = |n| {
        (0..n)
            .map(|n| format!("k{n}=v"))
            .collect::<Vec<_>>()
            .join(",")
    };
    same(&list(32));
    assert_eq!(
        combine(&[" a=1 ,\t,, b=2", "", "c=3"]).as_deref(),
        Some("a=1,b=2,c=3")
    );

    let too_many = list(33);
    let long_key = format!("{}=v", "a".repeat(257));
    let long_value = format!("a={}", "v".repeat(257));
    let long_vendor = format!("t@{}=v", "v".repeat(15));
    for wrong in [
        "",
        " , ",
        "a",
        "=1",
        "a=",
        "A=1",
        "a.b=1",
        "a=1,a=2",
        "a=1=2",
        "a=é",
        "a @b=1",
        "@b=1",
        "a@=1",
        "a@b@c=1",
        "_a=1",
        "a@1=1",
        "a=\u{7f}",
        &too_many,
        &long_key,
        &long_value,
        &long_vendor,
    ] {
        assert_eq!(combine(&[wrong]), None, "{wrong}");
    }
    assert_eq!(combine(&["a=1", "a=2"]), None);
}

fn context() -> impl Strategy<Value = TraceContext> {
    let sampling = prop_oneof![Just(Sampling::Accept), Just(Sampling::Deny)];
    (proptest::array::uniform24(any::<u8>()), sampling)
        .prop_map(|(random, sampling)| TraceContext::root(random, sampling))
}

fn extracted(headers: &[(usize, Vec<u8>)]) -> Incoming {
    Incoming::extract(|name| {
        let values = headers.iter().filter(move |(at, _)| HEADERS[*at] == name);
        values.map(|(_, value)| &**value)
    })
}

/// A value of a trace header: a valid one, one with a changed part, or any bytes.
fn header_value() -> impl Strategy<Value = Vec<u8>> {
    let valid = prop_oneof![
        Just(EXAMPLE),
        Just(SINGLE.1),
        Just(MULTI[0].1),
        Just(MULTI[1].1),
        Just("1"),
        Just("0"),
        Just("d"),
        Just("a=1,b@c=2"),
    ];
    let valid = valid.prop_map(|text| text.as_bytes().to_vec());
    let changed = (valid.clone(), any::<prop::sample::Index>(), any::<u8>());
    let changed = changed.prop_map(|(mut value, at, byte)| {
        let at = at.index(value.len());
        value[at] = byte;
        value
    });
    prop_oneof![3 => valid, 2 => changed, 1 => any::<Vec<u8>>()]
}

proptest! {
    #[test]
    fn what_is_written_is_read(context in context(), parent in any::<Option<u64>>()) {
        prop_assert_eq!(TraceContext::parse(&context.to_traceparent()), Some(context));
        let parent = parent.and_then(|parent| SpanId::new(parent.to_be_bytes()));
        let single = b3::to_single(&context, parent);
        prop_assert_eq!(b3::parse_single(single.as_bytes()), Some(context));
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in any::<Vec<u8>>(), at in 0..55usize) {
        let _ = TraceContext::parse(&bytes);
        let _ = b3::parse_single(&bytes);
        let _ = b3::parse_multi(|_| Some(&bytes));
        let _ = tracestate::combine([&bytes[..]]);
        // Near the valid ones too.
        let mut near = EXAMPLE.as_bytes().to_vec();
        near.splice(at..(at + bytes.len()).min(near.len()), bytes);
        if let Some(context) = TraceContext::parse(&near) {
            prop_assert_eq!(TraceContext::parse(&context.to_traceparent()), Some(context));
        }
        let _ = b3::parse_single(&near);
    }

    /// Whatever a client sends, the next hop gets values that are valid and lead to the same trace.
    #[test]
    fn headers_passed_on_are_valid(
        values in proptest::collection::vec((0..HEADERS.len(), header_value()), 0..9),
        random in proptest::array::uniform24(any::<u8>()),
    ) {
        let incoming = extracted(&values);
        let root = TraceContext::root(random, incoming.sampling);
        let own = incoming.parent.map_or(root, |parent| parent.child([9; 8]));
        let mut written = Vec::new();
        incoming.inject(&own, Some(root.span_id), |name, value| {
            let at = HEADERS.iter().position(|header| *header == name).unwrap();
            written.push((at, value.to_vec()));
        });
        prop_assert!(written.iter().all(|(_, value)| value.iter().all(|byte| matches!(byte, b' '..=b'~'))));
        let read = extracted(&written);
        let parent = read.parent.unwrap();
        prop_assert_eq!((parent.trace_id, parent.span_id), (own.trace_id, own.span_id));
        prop_assert_eq!(read.tracestate, incoming.tracestate);
        prop_assert!(incoming.parent.is_none() || read.formats == incoming.formats);
    }

    #[test]
    fn a_combined_tracestate_combines_to_itself(
        entries in proptest::collection::vec("[a-z0-9@_]{1,3}=[ -~]{0,4}[ ,]{0,2}", 0..6),
    ) {
        let values = entries.iter().map(String::as_bytes);
        if let Some(list) = tracestate::combine(values) {
            prop_assert_eq!(tracestate::combine([list.as_bytes()]), Some(list.clone()));
        }
    }
}
