use super::*;

const UNKNOWN: Own = Own {
    cpu: None,
    memory: None,
};

fn container(name: &str, cpu_millis: u64, memory_mib: u64) -> Container {
    Container {
        name: name.to_owned(),
        cpu_millis,
        memory_mib,
        ..Container::default()
    }
}

fn set(name: &str, cpu_millis: Option<u64>, memory_mib: Option<u64>) -> Share {
    Share {
        name: name.to_owned(),
        cpu_millis,
        memory_mib,
        memory_limit_mib: None,
    }
}

fn advised(value: u64) -> Option<Advised<u64>> {
    Some(Advised {
        value,
        reason: "why".to_owned(),
    })
}

/// Creates recommendations from names, CPU and memory.
fn advice(known: &[(&str, u64, u64)]) -> Vec<ContainerAdvice> {
    let each = known.iter().map(|(name, cpu, memory)| ContainerAdvice {
        name: (*name).to_owned(),
        cpu_millis: advised(*cpu),
        memory_mib: advised(*memory),
    });
    each.collect()
}

#[test]
fn what_is_injected_keeps_its_own() {
    let one = [container("app", 100, 64)];
    let shared = |injected, whole| share(&one, injected, whole, &UNKNOWN);
    assert_eq!(shared((10, 16), (60, 80)), [set("app", Some(50), None)]);
    assert_eq!(shared((10, 16), (110, 80)), [], "as it is");
    assert_eq!(shared((90, 16), (25, 24)), [set("app", Some(5), Some(8))]);
}

#[test]
fn containers_of_which_too_little_is_known_share_as_they_do_now() {
    let two = [
        container("app", 300, 0),
        container("log", 100, 0),
        container("idle", 0, 0),
    ];
    let shares = [set("app", Some(150), Some(40)), set("log", Some(50), None)];
    assert_eq!(share(&two, (0, 0), (200, 40), &UNKNOWN), shares);
    let none = [container("app", 0, 0), container("log", 0, 0)];
    assert_eq!(
        share(&none, (10, 16), (35, 48), &UNKNOWN),
        [set("app", Some(25), Some(32))]
    );
}

#[test]
fn limits_are_kept_or_raised() {
    let mut one = container("app", 100, 100);
    (one.cpu_limit_millis, one.memory_limit_mib) = (Some(200), Some(128));
    let own = Own::of(
        std::slice::from_ref(&one),
        &advice(&[("app", 300, 200)]),
        Held::default(),
    );
    for own in [UNKNOWN, own] {
        let shares = share(std::slice::from_ref(&one), (0, 0), (300, 200), &own);
        let [share] = shares.try_into().unwrap();
        assert_eq!((share.cpu_millis, share.memory_mib), (Some(200), Some(200)));
        assert_eq!(share.memory_limit_mib, Some(250));
    }
}

#[test]
fn each_container_requests_what_it_uses_and_the_pod_their_sum() {
    let mut two = [container("app", 10, 60), container("log", 100, 0)];
    let known = advice(&[("app", 95, 61), ("log", 15, 12), ("maglor-proxy", 99, 99)]);
    let own = Own::of(&two, &known, Held::default());
    let mut whole = Advice {
        cpu_millis: advised(200),
        memory_mib: advised(89),
        ..Advice::default()
    };
    own.put((10, 16), &mut whole);
    let (cpu, memory) = (whole.cpu_millis.unwrap(), whole.memory_mib.unwrap());
    assert_eq!(
        (cpu.value, memory.value),
        (120, 89),
        "with what is injected"
    );
    let expected = "why; the sum over containers is 120m, of which 10m are injected";
    assert_eq!((&*cpu.reason, &*memory.reason), (expected, "why"));
    let why = differ(&two, &own, 0.1);
    let expected = "by usage of its containers: `app` 95m instead of 10m; `log` 15m instead of 100m and 12Mi instead of 0Mi";
    assert_eq!(why.as_deref(), Some(expected));
    // An applied value is not written again, and its total is the recommendation.
    for share in share(&two, (10, 16), (cpu.value, memory.value), &own) {
        let one = two.iter_mut().find(|one| one.name == share.name).unwrap();
        one.cpu_millis = share.cpu_millis.unwrap_or(one.cpu_millis);
        one.memory_mib = share.memory_mib.unwrap_or(one.memory_mib);
    }
    assert_eq!(differ(&two, &own, 0.0), None);
    let sum = |of: fn(&Container) -> u64| two.iter().map(of).sum::<u64>();
    assert_eq!(sum(|one| one.cpu_millis) + 10, cpu.value);
    assert_eq!(sum(|one| one.memory_mib) + 16, memory.value);
}

#[test]
fn what_is_incomplete_or_managed_by_others_stays() {
    let two = [container("app", 10, 100), container("log", 100, 50)];
    let one = advice(&[("app", 90, 30)]);
    assert_eq!(Own::of(&two, &one, Held::default()), UNKNOWN);
    let mut both = advice(&[("app", 90, 30), ("log", 10, 10)]);
    let held = Held {
        cpu: true,
        ..Held::default()
    };
    let own = Own::of(&two, &both, held);
    assert_eq!((own.cpu, own.memory), (None, Some(vec![30, 10])));
    both[0].cpu_millis = None;
    let own = Own::of(&two, &both, Held::default());
    assert!(own.cpu.is_none(), "an autoscaler uses it");
    assert_eq!(Own::of(&[], &both, Held::default()), UNKNOWN);
    assert_eq!(differ(&two, &UNKNOWN, 0.1), None);
    let mut untouched = Advice {
        cpu_millis: advised(200),
        ..Advice::default()
    };
    UNKNOWN.put((10, 16), &mut untouched);
    assert_eq!(untouched.cpu_millis, advised(200));
}
