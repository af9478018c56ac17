//! HTTP/1.1 endpoints that misbehave, close or are slow, and clients that disconnect from them.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use maglor_testkit::{RawServer, TIMEOUT, Upstream, eventually, pattern};

use crate::support::{Web, connect, get, outstanding, wait_quiet};

#[test]
fn bytes_are_counted_both_ways_whatever_says_how_many_there_are() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    let counted = || {
        let of = |name| proxy.metric(name, &[]) as u64;
        let sent = of("maglor_upstream_request_bytes_total");
        (sent, of("maglor_upstream_response_bytes_total"))
    };
    let mut client = connect(&proxy);
    assert_eq!(client.get("/bytes/700").status, 200);
    eventually(TIMEOUT, "a response", || counted() == (0, 700));
    let post = |framing: &str| format!("POST /upload HTTP/1.1\r\nhost: a\r\n{framing}");
    client.request(post("content-length: 5\r\n\r\nhello"));
    eventually(TIMEOUT, "a length", || counted().0 == 5);
    let chunks = "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n";
    client.request(post(chunks));
    eventually(TIMEOUT, "chunks", || counted().0 == 12);
}

#[test]
fn a_malformed_response_becomes_502_and_nothing_of_it_leaks() {
    let responses: &[&[u8]] = &[
        b"leak\r\n\r\n",
        b"HTTP/1.1 leak\r\n\r\n",
        b"HTTP/1.1 99 leak\r\n\r\n",
        b"HTTP/1.1 2000 leak\r\n\r\n",
        b"HTTP/2 200 leak\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx-leak\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx-leak : a\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx-leak: a\r\n b\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx-leak: a\0b\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\nx-leak: a\ncontent-length: 0\n\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: leak\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\nleak",
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\nleak!",
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\nleak",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: leak\r\n\r\nleak",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked, gzip\r\n\r\nleak",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: leak\r\nconnection: upgrade\r\n\r\nleak",
        b"HTTP/1.1 200 OK\r\nx-leak: unfinished",
        b"",
    ];
    for response in responses {
        let shown = response.escape_ascii();
        let server = RawServer::answering(*response, 1);
        let proxy = Web::to([server.address()]).start();
        let mut client = connect(&proxy);
        let answer = client.get("/");
        assert_eq!(answer.status, 502, "{shown}");
        assert!(
            !format!("{answer:?}").contains("leak"),
            "{shown}: {answer:?}"
        );
        // The client's connection is not affected.
        assert_eq!(client.get("/").status, 502, "{shown}");
        assert_eq!(server.connections(), 2, "{shown}");
        assert_eq!(outstanding(&proxy), 0.0, "{shown}");
    }
    let server = RawServer::start(|connection, _| {
        connection.read_head()?;
        connection.send("HTTP/1.1 200 OK\r\n")?;
        while connection
            .send([b"x".repeat(1000), b": y\r\n".to_vec()].concat())
            .is_ok()
        {}
        Ok(())
    });
    let proxy = Web::to([server.address()]).start();
    assert_eq!(get(&proxy, "/").status, 502);
}

#[test]
fn what_an_endpoint_says_unasked_is_not_the_next_answer() {
    // A second response after the first, at once and later.
    let server = RawServer::start(|connection, number| {
        connection.read_head()?;
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{number}");
        let poison = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison";
        if number == 0 {
            return connection.send(format!("{answer}{poison}")).and_then(|()| {
                // The connection stays open.
                connection.read_to_end().map(drop)
            });
        }
        connection.send(answer)?;
        if number == 1 {
            std::thread::sleep(Duration::from_millis(50));
            connection.send(poison)?;
        }
        connection.read_to_end().map(drop)
    });
    let proxy = Web::to([server.address()]).start();
    let mut client = connect(&proxy);
    assert_eq!(client.get("/").text(), "0");
    assert_eq!(client.get("/").text(), "1");
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(client.get("/").text(), "2");
}

#[test]
fn a_body_that_breaks_off_does_not_look_whole() {
    let bodies: &[&[u8]] = &[
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n0123456789",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\na\r\n0123456789\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\na\r\n0123456789\r\nx\r\n\r\n",
    ];
    for body in bodies {
        let server = RawServer::answering(*body, 1);
        let proxy = Web::to([server.address()]).start();
        for version in ["1.1", "1.0"] {
            let mut client = connect(&proxy);
            client.send(format!("GET / HTTP/{version}\r\nhost: a\r\n\r\n"));
            let head = client.connection().read_head();
            // A reset may overtake earlier bytes.
            let Ok(head) = head else { continue };
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            let rest = client.connection().read_to_end();
            let whole = rest.is_ok_and(|rest| {
                let chunked = head.contains("chunked");
                let sized = head.contains("content-length");
                (chunked && rest.ends_with(b"0\r\n\r\n")) || (!chunked && !sized)
            });
            assert!(!whole, "{} in HTTP/{version}", body.escape_ascii());
        }
        wait_quiet(&proxy);
    }
    // Also when the endpoint is killed in the middle.
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    let mut client = connect(&proxy);
    client.send("GET /stall/1000 HTTP/1.1\r\nhost: a\r\n\r\n");
    client.connection().read_head().unwrap();
    client.connection().read_exact(1000).unwrap();
    upstream.kill();
    assert!(
        client
            .connection()
            .read_to_end()
            .map_or(true, |rest| rest.is_empty())
    );
    wait_quiet(&proxy);
}

#[test]
fn an_endpoint_that_is_not_there_returns_503() {
    let gone = Upstream::start("gone");
    let address = gone.address();
    gone.kill();
    let proxy = Web::to([address]).start();
    let mut client = connect(&proxy);
    for _ in 0..2 {
        let response = client.get("/");
        assert_eq!(
            (response.status, response.header("x-maglor-reason")),
            (503, Some("UF"))
        );
    }
    // The endpoint restarts.
    let back = Upstream::builder("back").address(address).start();
    assert_eq!(client.get("/").text(), "back");
    drop(back);
    let proxy = Web::to([]).start();
    let response = get(&proxy, "/");
    assert_eq!(
        (response.status, response.header("x-maglor-reason")),
        (503, Some("UH"))
    );
}

#[test]
fn an_answer_may_come_before_the_request_has_ended() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()]).start();
    let mut client = connect(&proxy);
    client.send("POST /early/413 HTTP/1.1\r\nhost: a\r\ncontent-length: 100000000\r\n\r\n");
    client.send(pattern::bytes(100_000));
    let response = client.response();
    assert_eq!(
        (response.status, response.header("connection")),
        (413, Some("close"))
    );
    drop(client);
    wait_quiet(&proxy);

    // Both at once: every piece is returned before the next one is sent.
    let server = RawServer::start(|connection, _| {
        connection.read_head()?;
        connection.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
        for _ in 0..20 {
            connection.expect("4\r\nping\r\n")?;
            connection.send("4\r\npong\r\n")?;
        }
        connection.expect("0\r\n\r\n")?;
        connection.send("0\r\n\r\n")
    });
    let proxy = Web::to([server.address()]).start();
    let mut client = connect(&proxy);
    client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n");
    let head = client.connection().read_head().unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    for _ in 0..20 {
        client.send("4\r\nping\r\n");
        client.connection().expect("4\r\npong\r\n").unwrap();
    }
    client.send("0\r\n\r\n");
    client.connection().expect("0\r\n\r\n").unwrap();
    server.finish();
}

#[test]
fn a_client_that_leaves_cancels_its_request() {
    let (begun, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let server = RawServer::start({
        let (begun, ended) = (Arc::clone(&begun), Arc::clone(&ended));
        move |connection, number| {
            let head = connection.read_head()?;
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n";
            if head.starts_with("GET /stall") || head.starts_with("GET /flood") {
                connection.send(answer)?;
            }
            begun.fetch_add(1, SeqCst);
            if head.starts_with("GET /flood") {
                while connection.send(b"x".repeat(10_000)).is_ok() {}
            }
            // An end or a reset, but not the time limit.
            match connection.read_to_end() {
                Err(error) if error.kind() == ErrorKind::TimedOut => {}
                Ok(rest) if rest.len() >= 10 => {}
                _ => drop(ended.fetch_or(1 << number, SeqCst)),
            }
            Ok(())
        }
    });
    let proxy = Web::to([server.address()]).start();
    let requests = [
        "GET /hang HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET /stall HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET /flood HTTP/1.1\r\nhost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nabc",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ];
    for (number, request) in (1..).zip(requests.iter().flat_map(|request| [request; 2])) {
        let mut client = connect(&proxy);
        client.send(request);
        if number % 2 == 0 {
            client.connection().reset_on_close().unwrap();
        }
        eventually(TIMEOUT, "the endpoint has the request", || {
            begun.load(SeqCst) == number
        });
        assert_eq!(outstanding(&proxy), 1.0, "{request}");
        drop(client);
        let left = Instant::now();
        let what = format!("the endpoint sees the end of {number} {request}");
        // The flooding endpoint may take longer to notice than the proxy.
        eventually(TIMEOUT, &what, || {
            request.contains("flood") || ended.load(SeqCst) & (1 << (number - 1)) != 0
        });
        wait_quiet(&proxy);
        assert!(left.elapsed() < Duration::from_secs(2), "{request}");
    }
    // The status is known for a request whose response had begun.
    let none = proxy.metric("maglor_upstream_requests_total", &["status=\"none\""]);
    let all = proxy.metric("maglor_upstream_requests_total", &[]);
    assert_eq!((none, all), (6.0, 10.0));
    server.finish();
}

#[test]
fn an_idle_connection_that_was_closed_costs_no_request() {
    // One response for each connection; then it closes as servers do when idle.
    let ended = Arc::new(AtomicUsize::new(0));
    let server = RawServer::start({
        let ended = Arc::clone(&ended);
        move |connection, _| {
            connection.read_head()?;
            connection.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
            connection.finish_sending()?;
            ended.fetch_add(1, SeqCst);
            Ok(())
        }
    });
    let proxy = Web::to([server.address()]).start();
    let mut client = connect(&proxy);
    for number in 0..200 {
        assert_eq!(client.get("/").status, 200, "request {number}");
    }
    for _ in 0..100 {
        // A request must not be repeated once it was sent: only an end that has arrived before prevents that.
        let all = server.connections();
        eventually(TIMEOUT, "ends", || ended.load(SeqCst) == all);
        let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(client.request(post).status, 200, "connection {all}");
    }
}

#[test]
fn a_request_that_meets_the_end_of_its_connection_is_repeated_only_if_harmless() {
    // The first request of a connection is answered; after the second one the connection is closed.
    let seen = Arc::new(AtomicUsize::new(0));
    let server = RawServer::start({
        let seen = Arc::clone(&seen);
        move |connection, _| {
            connection.read_head()?;
            connection.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
            connection.read_head()?;
            seen.fetch_add(1, SeqCst);
            Ok(())
        }
    });
    let proxy = Web::to([server.address()]).start();
    let ask = |request: &str| {
        let status = connect(&proxy).request(request).status;
        (status, seen.swap(0, SeqCst))
    };
    let get = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    assert_eq!(ask(get), (200, 0));
    assert_eq!(ask(get), (200, 1), "repeated on a new connection");
    assert_eq!(
        ask("PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"),
        (200, 1)
    );
    assert_eq!(
        ask("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"),
        (502, 1)
    );
    assert_eq!(ask(get), (200, 0));
    assert_eq!(
        ask("PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx"),
        (200, 1)
    );
    let retries = proxy.metric("maglor_upstream_stale_connection_retries_total", &[]);
    assert_eq!(retries, 2.0);
    assert_eq!(proxy.metric("maglor_upstream_retries_total", &[]), 1.0);
    // A failure on a new connection is not retried: the endpoint refuses this request.
    let server = RawServer::answering("", 1);
    let proxy = Web::to([server.address()]).start();
    assert_eq!(connect(&proxy).request(get).status, 502);
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_slow_reader_slows_the_endpoint_and_fills_no_memory() {
    const LENGTH: usize = 200 << 20;
    let sent = Arc::new(AtomicUsize::new(0));
    let server = RawServer::start({
        let sent = Arc::clone(&sent);
        move |connection, _| {
            connection.read_head()?;
            connection.send(format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n\r\n"
            ))?;
            let piece = vec![b'x'; 1 << 16];
            while sent.fetch_add(piece.len(), SeqCst) < LENGTH {
                connection.send(&piece)?;
            }
            Ok(())
        }
    });
    let proxy = Web::to([server.address()]).start();
    let before = proxy.allocated_bytes();
    let mut client = connect(&proxy);
    client.connection().limit_receive_buffer(64 * 1024).unwrap();
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    client.connection().read_head().unwrap();
    // Sockets' buffers fill, and then the transfer stops.
    let mut last = usize::MAX;
    eventually(TIMEOUT, "the endpoint is stopped", || {
        std::thread::sleep(Duration::from_millis(200));
        std::mem::replace(&mut last, sent.load(SeqCst)) == sent.load(SeqCst)
    });
    assert!(last < 40 << 20, "{last} bytes were taken from the endpoint");
    let grown = proxy.allocated_bytes().saturating_sub(before);
    assert!(grown < 2 << 20, "{grown} bytes");
    // And continues when it reads on.
    for _ in 0..100 {
        client.connection().read_exact(1 << 20).unwrap();
    }
    assert!(sent.load(SeqCst) > last);
}

#[test]
fn a_slow_endpoint_slows_the_client_and_fills_no_memory() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let server = RawServer::start(move |connection, _| {
        connection.limit_receive_buffer(64 * 1024)?;
        connection.read_head()?;
        let _ = wait.lock().unwrap().recv_timeout(TIMEOUT);
        for _ in 0..64 {
            connection.read_exact(1 << 20)?;
        }
        connection.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    });
    let proxy = Web::to([server.address()]).start();
    let before = proxy.allocated_bytes();
    let mut client = connect(&proxy);
    client.send(format!(
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n",
        64 << 20
    ));
    let sent = Arc::new(AtomicUsize::new(0));
    let sending = std::thread::spawn({
        let sent = Arc::clone(&sent);
        move || {
            for _ in 0..1024 {
                client.send([b'x'; 1 << 16]);
                sent.fetch_add(1 << 16, SeqCst);
            }
            client.response().status
        }
    });
    let mut last = usize::MAX;
    eventually(TIMEOUT, "the client is stopped", || {
        std::thread::sleep(Duration::from_millis(200));
        std::mem::replace(&mut last, sent.load(SeqCst)) == sent.load(SeqCst)
    });
    assert!(last < 40 << 20, "{last} bytes were taken from the client");
    let grown = proxy.allocated_bytes().saturating_sub(before);
    assert!(grown < 2 << 20, "{grown} bytes");
    go.send(()).unwrap();
    assert_eq!(sending.join().unwrap(), 200);
}

#[test]
fn timeouts_are_those_of_the_route_and_of_the_stream() {
    let upstream = Upstream::start("a");
    let proxy = Web::to([upstream.address()])
        .route("timeout: 200ms")
        .start();
    let mut client = connect(&proxy);
    let response = client.get("/hang");
    assert_eq!(
        (response.status, response.header("x-maglor-reason")),
        (504, Some("UT"))
    );
    assert_eq!(client.get("/").status, 200);
    // Cut off in the middle, visibly.
    client.send("GET /drip/100/20ms HTTP/1.1\r\nhost: a\r\n\r\n");
    client.connection().read_head().unwrap();
    let rest = client.connection().read_to_end();
    assert!(!rest.is_ok_and(|rest| rest.ends_with(b"0\r\n\r\n")));

    let proxy = Web::to([upstream.address()])
        .http("stream_idle_timeout: 300ms")
        .route("timeout: 0s")
        .start();
    let mut client = connect(&proxy);
    let response = client.get("/hang");
    assert_eq!(
        (response.status, response.header("x-maglor-reason")),
        (504, Some("SI"))
    );
    // As long as bytes are transferred, it may take longer.
    assert_eq!(client.get("/drip/20/50ms").body.len(), 200);
    client.send("GET /stall/10 HTTP/1.1\r\nhost: a\r\n\r\n");
    client.connection().read_head().unwrap();
    client.connection().read_exact(10).unwrap();
    assert!(
        client
            .connection()
            .read_to_end()
            .map_or(true, |rest| rest.is_empty())
    );
    // An upload that stalls is ended, too.
    let mut client = connect(&proxy);
    client.send("POST /upload HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nabc");
    assert!(matches!(client.response().status, 408 | 504));
    client.assert_closed();
    wait_quiet(&proxy);
}
