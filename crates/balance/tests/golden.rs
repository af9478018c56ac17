//! Tables must not change between versions: proxies of two versions in front of one service have
//! to agree. A failure here means that an upgrade moves keys; it is not to be fixed by new numbers.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failure is what a test is for"
)]

mod support;

use maglor_balance::{Endpoint, PickCtx, Rng, Time, combine, hash_bytes};
use support::{balancer, equal, weighted};

fn owner(b: &maglor_balance::Balancer, hash: u64) -> usize {
    let ctx = PickCtx::new(Time::ZERO).with_hash(hash);
    b.pick(&ctx, &mut Rng::seed(0)).unwrap().get()
}

/// XXH64 of the owners of 100 000 keys.
fn fingerprint(spec: &str, endpoints: Vec<Endpoint>) -> u64 {
    let b = balancer(spec, endpoints);
    let owners = (0..100_000_u64).map(|i| owner(&b, hash_bytes(&i.to_le_bytes())) as u8);
    hash_bytes(&owners.collect::<Vec<u8>>())
}

/// The table of Envoy's `MaglevLoadBalancerTest.Basic`: six hosts in seven slots.
#[test]
fn the_small_table_is_that_of_envoy() {
    let hosts = (90..96)
        .map(|port| Endpoint::new(format!("127.0.0.1:{port}")))
        .collect();
    let b = balancer("maglev(table_size=7)", hosts);
    let owners: Vec<usize> = (0..7).map(|slot| owner(&b, slot)).collect();
    assert_eq!(owners, [2, 4, 0, 1, 5, 0, 3]);
}

/// Weights 1 and 2 in 17 slots, by hand: six turns against eleven.
#[test]
fn the_small_weighted_table() {
    let hosts = [(90, 1), (91, 2)].map(|(port, weight)| {
        Endpoint::new(format!("127.0.0.1:{port}")).weight(weight.try_into().unwrap())
    });
    let b = balancer("maglev(table_size=17)", hosts.to_vec());
    let owners: Vec<usize> = (0..17).map(|slot| owner(&b, slot)).collect();
    assert_eq!(owners, [1, 0, 0, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 0, 1]);
}

#[test]
fn tables_are_stable() {
    let weights: Vec<u32> = (1..=20).collect();
    for (spec, equal_set, weighted_set) in [
        ("maglev", 0x3bc2_caec_c4b6_f88a, 0xffa6_1784_103c_00eb),
        (
            "maglev(table_size=251)",
            0xfc00_a622_7eb7_52e5,
            0x49d6_6e1f_2a72_5cd3,
        ),
        ("ring-hash", 0x181a_58dc_f56d_7a2d, 0x97ac_82f6_d6b2_8878),
        (
            "ring-hash(min=64,max=100)",
            0xf756_56db_6a58_1f88,
            0xa5f7_e20b_c86f_f881,
        ),
    ] {
        assert_eq!(fingerprint(spec, equal(50)), equal_set, "{spec}");
        assert_eq!(
            fingerprint(spec, weighted(&weights)),
            weighted_set,
            "{spec}, weighted"
        );
    }
}

#[test]
fn hashes_are_stable() {
    assert_eq!(hash_bytes(b"10.0.0.1:8080"), 14_670_231_106_277_521_029);
    let (user, number) = (hash_bytes(b"user"), hash_bytes(b"42"));
    assert_eq!(combine(user, number), user.rotate_left(1) ^ number);
}
