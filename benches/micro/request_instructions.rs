//! Instructions of the same steps: the same on every machine, so that a regression shows.
//!
//! `cargo bench -p maglor-benches --bench request_instructions`; needs valgrind and
//! `gungraun-runner` of the version of the `gungraun` dependency.
#![allow(
    missing_docs,
    unused_qualifications,
    reason = "gungraun's macros expand to both"
)]

use std::hint::black_box;

use bytes::BytesMut;
use gungraun::{library_benchmark, library_benchmark_group, main};
use maglor_proxy::seams::{Head, Router};

mod input;

fn router(hosts: usize) -> Router {
    Router::new(&input::config(hosts)).expect("a configuration")
}

fn routed(hosts: usize) -> (Router, Head) {
    (
        router(hosts),
        Head::parse(input::REQUEST).expect("a request"),
    )
}

#[library_benchmark]
fn parse() -> Option<Head> {
    Head::parse(black_box(input::REQUEST))
}

#[library_benchmark(setup = routed)]
#[bench::one_host(1)]
#[bench::thousand_hosts(1000)]
fn route((router, head): (Router, Head)) -> (Router, Head) {
    black_box(router.route(black_box(&head)));
    (router, head)
}

#[library_benchmark(setup = router)]
#[bench::request(1)]
fn parse_rewrite_encode(mut router: Router) -> (Router, BytesMut) {
    let mut out = BytesMut::with_capacity(4096);
    if let Some(mut head) = Head::parse(black_box(input::REQUEST)) {
        router.rewrite(&mut head);
        head.encode(&mut out);
    }
    (router, out)
}

library_benchmark_group!(name = request; benchmarks = parse, route, parse_rewrite_encode);
main!(library_benchmark_groups = request);
