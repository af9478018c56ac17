//! Tests that callers' reports are compared with those of the called services.

use super::*;

/// All pods of `cart` have sidecars, which report accepted requests.
fn confirming() -> Graphs {
    let graphs = graphs();
    let mut topology = (*graphs.topology()).clone();
    let cart = Key::new("shop", "cart");
    topology
        .services
        .insert(cart.clone(), "shop/cart".to_owned());
    let servers = topology::Servers {
        count: 1,
        meshed: true,
    };
    topology.servers.insert(cart, servers);
    graphs.set_topology(topology);
    graphs
}

fn reported(graphs: &Graphs, liar: u64) -> Snapshot {
    for round in 1..=6 {
        let take = |node, name: &str, requests| {
            graphs.take_at(
                node,
                &report(10, vec![load(name, requests)]),
                at(round * 10),
            );
        };
        take("shop/web-0", CART, 100);
        take("shop/web-1", CART, liar);
        take("shop/cart-0", "inbound/application", 200);
    }
    let own = [graphs.state().averages.parts(at(60)).collect::<Vec<_>>()];
    snapshot(graphs, at(60)).with_parts(&own)
}

#[test]
fn reports_of_callers_count_as_far_as_confirmed() {
    let cart = |snapshot: &Snapshot| {
        let service = snapshot.services.iter().find(|one| one.name == "shop/cart");
        service.unwrap().clone()
    };
    let honest = reported(&confirming(), 100);
    assert!((honest.edges[0].rps - 20.0).abs() < 1e-9, "{honest:?}");
    assert!(!cart(&honest).contradicted && cart(&honest).takes);
    // A false report counts only up to the confirmed rate plus a tolerance; the service's own report sets its rate.
    let lied = reported(&confirming(), 1 << 50);
    assert!(lied.edges[0].rps < 2.0 * 20.0, "{lied:?}");
    assert!(cart(&lied).contradicted && (cart(&lied).rps - 20.0).abs() < 1e-9);
    // Without sidecars to confirm it, a proxy counts up to what one can send.
    let unconfirmed = reported(&graphs(), 1 << 50);
    assert!(
        unconfirmed.edges[0].rps < MOST_CALLS + 10.1,
        "{unconfirmed:?}"
    );
    assert!(!cart(&unconfirmed).contradicted);
}
