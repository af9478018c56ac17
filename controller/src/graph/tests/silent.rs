use super::*;

#[tokio::test(start_paused = true)]
async fn omitted_reports_count_as_reports_without_load() {
    let outcomes = [true, false].map(|omits| {
        let graphs = graphs();
        let open = omits.then(|| graphs.omits_empty("shop/web-0", None));
        graphs.take_at("shop/web-0", &report(10, vec![load(CART, 100)]), at(10));
        graphs.take_at("shop/web-0", &report(0, Vec::new()), at(20));
        for round in 3..6 {
            match omits {
                true => graphs.count_silent_at(at(round * 10 + 5)),
                false => graphs.take_at("shop/web-0", &report(0, Vec::new()), at(round * 10)),
            }
        }
        let rps = snapshot(&graphs, at(55)).edges[0].rps;
        drop(open);
        graphs.count_silent_at(at(1000));
        let reported = graphs.state().reported_at["shop/web-0"];
        (reported, rps)
    });
    assert_eq!(outcomes[0].0, at(50), "nothing is counted after the end");
    assert_eq!(outcomes[0], outcomes[1]);
}

/// A proxy that connects again reports what has happened meanwhile; it is not idle time.
#[tokio::test(start_paused = true)]
async fn the_time_without_a_stream_is_not_counted() {
    let graphs = graphs();
    graphs.take_at("shop/web-0", &report(10, vec![load(CART, 100)]), Time::ZERO);
    tokio::time::advance(Duration::from_secs(40)).await;
    let _open = graphs.omits_empty("shop/web-0", None);
    graphs.count_silent();
    let reported = graphs.state().reported_at["shop/web-0"];
    assert!(reported >= at(40), "{reported:?}");
    let other = Some("another");
    let _liar = graphs.omits_empty("shop/cart-0", other);
    tokio::time::advance(Duration::from_secs(40)).await;
    graphs.count_silent();
    assert!(!graphs.state().reported_at.contains_key("shop/cart-0"));
}
