//! Runs against a server of this process.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use clap::Parser;

use super::*;
use crate::commands::format::Format;

/// The options alone.
#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

pub(super) fn options(words: &[&str]) -> Options {
    let words = ["load"].iter().chain(words);
    Line::try_parse_from(words).expect("valid options").options
}

/// Starts a server of HTTP/1.1 that responds with 204, to paths with `fail` with 503.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    address
}

fn serve(mut stream: TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    loop {
        let first = lines.next()?.ok()?;
        while !lines.next()?.ok()?.is_empty() {}
        let status = match first.contains("fail") {
            true => "503 Service Unavailable\r\ncontent-length: 0",
            false => "204 No Content",
        };
        write!(stream, "HTTP/1.1 {status}\r\n\r\n").ok()?;
    }
}

#[test]
fn users_and_rates_have_results_and_files() {
    let url = format!("http://{}/", server());
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("new").display().to_string();
    let users = [
        &*url,
        "--users",
        "4",
        "--think-ms",
        "5",
        "--duration-s",
        "1",
    ];
    let rate = [&*url, "--rate", "200", "--duration-s", "1", "--out", &out];
    for words in [&users[..], &rate] {
        let results = load(&options(words)).expect("results");
        assert!(results.succeeded() > 20, "{results:?}");
        let csv = results.text(Format::Csv);
        assert!(csv.starts_with("requests,failed,requests_per_s,"), "{csv}");
        assert!(
            csv.lines().nth(1).is_some_and(|row| row.contains(",0,")),
            "{csv}"
        );
        assert!(results.text(Format::Json).contains("\"p99_ms\""));
    }
    let read = |name: &str| std::fs::read_to_string(format!("{out}/{name}")).expect(name);
    let seconds = read("seconds.csv");
    assert!(
        seconds.starts_with("second,succeeded,failed,p50_ms,p99_ms,max_ms\n1,"),
        "{seconds}"
    );
    assert!(read("latency.svg").contains("<svg") && read("rate.svg").contains("<svg"));
}

#[test]
fn an_open_loop_sends_what_was_planned() {
    let url = format!("http://{}/", server());
    let words = [&*url, "--rate", "100", "--ramp-s", "1", "--duration-s", "1"];
    let results = load(&options(&words)).expect("results");
    // The requests that are due in the measured second; those of the ramp are not counted.
    assert!((99..=101).contains(&results.succeeded()), "{results:?}");
}

#[test]
fn failed_requests_are_results_and_wrong_urls_are_errors() {
    let url = format!("http://{}/fail", server());
    let results = load(&options(&[&*url, "--users", "1", "--duration-s", "1"])).expect("results");
    assert_eq!(results.succeeded(), 0);
    assert!(results.text(Format::Table).contains("× status 503"));
    // No latency is not a latency of 0.
    assert!(results.text(Format::Csv).ends_with(",0.000,,,,,,\n"));

    for (words, wanted) in [
        (
            &["ftp://127.0.0.1:1/"][..],
            "the scheme must be http or https",
        ),
        (
            &["http://127.0.0.1:1/", "--insecure"],
            "--insecure is for TLS",
        ),
        (
            &["https://127.0.0.1:1/", "--ca", "/no/such"],
            "--ca /no/such",
        ),
        (
            &["https://127.0.0.1:1/", "--ca", "/dev/null"],
            "no certificate of an authority",
        ),
    ] {
        let error = load(&options(words)).expect_err(wanted);
        assert!(error.to_string().contains(wanted), "{error}");
    }
    let error = load(&options(&["http://127.0.0.1:1/", "--body", "/no/such"]));
    assert!(
        error
            .expect_err("no file")
            .to_string()
            .contains("--body /no/such")
    );
}

#[test]
fn users_exclude_a_rate() {
    let words = ["load", "http://a/", "--users", "1", "--rate", "1"];
    assert!(Line::try_parse_from(words).is_err());
    let words = ["load", "http://a/", "--connections", "1"];
    assert!(Line::try_parse_from(words).is_err());
    for wrong in ["0", "-1", "x", "1e9"] {
        let words = ["load", "http://a/", "--rate", wrong];
        assert!(Line::try_parse_from(words).is_err(), "{wrong}");
    }
}
