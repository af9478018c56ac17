//! A request's way through the proxy without its sockets: parse, route, rewrite, encode.
//!
//! `cargo bench -p maglor-benches --bench request`

use std::fmt::Write as _;
use std::hint::black_box;

use bytes::BytesMut;
use criterion::{Criterion, criterion_group, criterion_main};
use maglor_proxy::seams::{Head, Router};

mod input;

fn parse(c: &mut Criterion) {
    c.bench_function("parse", |b| {
        b.iter(|| black_box(Head::parse(black_box(input::REQUEST))));
    });
}

fn route(c: &mut Criterion) {
    let head = Head::parse(input::REQUEST).expect("a request");
    for hosts in [1, 100, 1000] {
        let router = Router::new(&input::config(hosts)).expect("a configuration");
        let mut name = String::from("route/");
        let _ = write!(name, "{hosts} hosts");
        c.bench_function(&name, |b| {
            b.iter(|| black_box(router.route(black_box(&head))));
        });
    }
}

/// The last of ten thousand routes: no more than 2 µs.
fn route_of_many(c: &mut Criterion) {
    for shape in [input::Many::Hosts, input::Many::Prefixes] {
        let (yaml, head) = input::many(shape, 10_000);
        let router = Router::new(&yaml).expect("a configuration");
        let head = Head::parse(&head).expect("a request");
        c.bench_function(&format!("route/10000 {shape:?}"), |b| {
            b.iter(|| black_box(router.route(black_box(&head))));
        });
    }
}

fn rewrite(c: &mut Criterion) {
    let mut router = Router::new(&input::config(1)).expect("a configuration");
    c.bench_function("parse, rewrite, encode", |b| {
        let mut out = BytesMut::with_capacity(4096);
        b.iter(|| {
            let mut head = Head::parse(black_box(input::REQUEST)).expect("a request");
            router.rewrite(&mut head);
            out.clear();
            head.encode(&mut out);
            black_box(&out);
        });
    });
}

fn compile(c: &mut Criterion) {
    let yaml = input::config(100);
    c.bench_function("configuration of 100 hosts, read and compiled", |b| {
        b.iter(|| black_box(Router::new(black_box(&yaml)).is_some()));
    });
}

criterion_group!(benches, parse, route, route_of_many, rewrite, compile);
criterion_main!(benches);
