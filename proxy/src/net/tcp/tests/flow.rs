//! Tests of data transfer: all bytes arrive in order and are not buffered.

use std::sync::Arc;

use maglor_testkit::Authority;
use rustls::pki_types::ServerName;

use super::*;

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[tokio::test]
async fn much_both_ways_at_once_with_flat_memory() {
    const LENGTH: u64 = 64 * MIB;
    Pipe::empty_pool();
    local(async {
        let Running {
            client,
            server,
            task,
            ..
        } = Running::new(HOUR).await;
        let ((mut client_read, mut client_write), (mut server_read, mut server_write)) =
            (client.into_split(), server.into_split());
        let _alone = crate::os::memory::MEASURING.lock().await;
        let before = resident();
        let (up, down, up_sent, down_sent) = tokio::join!(
            receive(&mut server_read),
            receive(&mut client_read),
            send(&mut client_write, LENGTH, 65536),
            send(&mut server_write, LENGTH, 65536),
        );
        up_sent.unwrap();
        down_sent.unwrap();
        assert_eq!((up.unwrap(), down.unwrap()), (LENGTH, LENGTH));
        assert_eq!(task.await.unwrap(), outcome(LENGTH, LENGTH, End::Closed));
        let grown = resident().saturating_sub(before);
        assert!(grown < 16 * MIB, "{grown} bytes");
        assert!(
            (1..=2).contains(&Pipe::empty_pool()),
            "spliced, and the pipes were given back"
        );
    })
    .await;
}

#[tokio::test]
async fn an_idle_tunnel_holds_no_pipe_after_much() {
    Pipe::empty_pool();
    local(async {
        let mut run = Running::new(HOUR).await;
        let bytes = pattern::bytes(4 << 20);
        let mut buf = vec![0; bytes.len()];
        let (sent, received) = tokio::join!(
            run.client.write_all(&bytes),
            run.server.read_exact(&mut buf)
        );
        sent.unwrap();
        received.unwrap();
        pattern::check(0, &buf);
        // The response shows that the tunnel has forwarded all data.
        run.server.write_all(b"x").await.unwrap();
        run.client.read_exact(&mut [0]).await.unwrap();
        assert_eq!(Pipe::empty_pool(), 1);
        assert!(!run.task.is_finished());
    })
    .await;
}

#[tokio::test]
async fn many_tunnels_with_random_lengths_and_pieces() {
    let mut state = seed() | 1;
    let mut random = move |bound: u64| {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    };
    local(async {
        let mut tasks = Vec::new();
        for _ in 0..60 {
            let Running {
                client,
                server,
                task,
                ..
            } = Running::new(HOUR).await;
            let (up, down) = (random(MIB), random(MIB));
            let (up_piece, down_piece) = (1 + random(40_000), 1 + random(40_000));
            tasks.push(tokio::task::spawn_local(async move {
                let (mut client_read, mut client_write) = client.into_split();
                let (mut server_read, mut server_write) = server.into_split();
                let (up_got, down_got, up_sent, down_sent) = tokio::join!(
                    receive(&mut server_read),
                    receive(&mut client_read),
                    send(&mut client_write, up, up_piece),
                    send(&mut server_write, down, down_piece),
                );
                up_sent.unwrap();
                down_sent.unwrap();
                assert_eq!((up_got.unwrap(), down_got.unwrap()), (up, down));
                assert_eq!(task.await.unwrap(), outcome(up, down, End::Closed));
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_slow_reader_slows_the_sender_down() {
    const LENGTH: u64 = 64 * MIB;
    local(async {
        let Running {
            mut client,
            mut server,
            counted,
            task,
        } = Running::new(HOUR).await;
        let sender = tokio::task::spawn_local(async move {
            send(&mut client, LENGTH, 65536).await.unwrap();
            client
        });
        // Wait until all buffers on the path are full and nothing moves.
        let mut before = u64::MAX;
        while before != counted.0.get() || before == 0 {
            before = counted.0.get();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(
            before < 32 * MIB,
            "{before} bytes taken for a reader that does not read"
        );
        assert!(!sender.is_finished());
        // Single bytes first, then all.
        let mut buf = [0; 1000];
        for i in 0..1000 {
            server.read_exact(&mut buf[i..=i]).await.unwrap();
        }
        pattern::check(0, &buf);
        let mut rest = vec![0; 65536];
        let mut received = 1000;
        while received < LENGTH {
            let n = server.read(&mut rest).await.unwrap();
            pattern::check(received, &rest[..n]);
            received += n as u64;
        }
        drop(server);
        drop(sender.await.unwrap());
        assert_eq!(task.await.unwrap(), outcome(LENGTH, 0, End::Closed));
    })
    .await;
}

#[tokio::test]
async fn prefixes_come_first() {
    local(async {
        let ((client, down), (up, server)) = (pair().await, pair().await);
        let (down, up) = (
            with_prefix(down, b"from client,"),
            with_prefix(up, b"from server,"),
        );
        let Running {
            mut client,
            mut server,
            task,
            ..
        } = Running::over(client, down, up, server, HOUR);
        for (tcp, said) in [(&mut client, b" and more"), (&mut server, b" and more")] {
            tcp.write_all(said).await.unwrap();
            tcp.shutdown().await.unwrap();
        }
        let (mut at_server, mut at_client) = (String::new(), String::new());
        server.read_to_string(&mut at_server).await.unwrap();
        client.read_to_string(&mut at_client).await.unwrap();
        assert_eq!(at_server, "from client, and more");
        assert_eq!(at_client, "from server, and more");
        assert_eq!(task.await.unwrap(), outcome(21, 21, End::Closed));
    })
    .await;
}

#[tokio::test]
async fn tls_on_both_sides() {
    const LENGTH: u64 = 8 * MIB;
    const SHORT: u64 = 100_000;
    Pipe::empty_pool();
    local(async {
        let ca = Authority::new();
        let server_config = ca.server_config(&ca.issue(&["a.test"]), &[], false);
        let client_config = ca.client_config(None, &[]);
        let name = || ServerName::try_from("a.test").unwrap();
        let ((client, down), (up, server)) = (pair().await, pair().await);
        let connect = |tcp| crate::tls::connect(tcp, name(), Arc::clone(&client_config));
        let accept = |tcp| crate::tls::accept(tcp, BytesMut::new(), Arc::clone(&server_config));
        let (client, down, up, server) =
            tokio::join!(connect(client), accept(down), connect(up), accept(server));
        let plain = |io: io::Result<Io>| Stream {
            io: io.unwrap(),
            prefix: Bytes::new(),
            guard: None,
        };
        let (down, up) = (plain(down), plain(up));
        let task = tokio::task::spawn_local(tunnel(down, up, HOUR, |_, _| {}));
        let (client, server) = (client.unwrap(), server.unwrap());
        let (mut client_read, mut client_write) = tokio::io::split(client);
        let (mut server_read, mut server_write) = tokio::io::split(server);
        // One direction until its end, then the other.
        let (sent, received) = tokio::join!(
            send(&mut client_write, LENGTH, 50_000),
            receive(&mut server_read)
        );
        sent.unwrap();
        assert_eq!(received.unwrap(), LENGTH);
        let (sent, received) =
            tokio::join!(send(&mut server_write, SHORT, 7), receive(&mut client_read));
        sent.unwrap();
        assert_eq!(received.unwrap(), SHORT);
        assert_eq!(task.await.unwrap(), outcome(LENGTH, SHORT, End::Closed));
        assert_eq!(Pipe::empty_pool(), 0);
    })
    .await;
}

#[test]
fn a_tunnel_is_small() {
    fn size<F: Future>(_: impl FnOnce(Stream, Stream) -> F) -> usize {
        size_of::<F>()
    }
    let size = size(|down, up| tunnel(down, up, HOUR, |_, _| {}));
    assert!(size <= 768, "{size} bytes");
}

#[tokio::test]
async fn a_pipe_with_bytes_in_it_is_not_used_again() {
    Pipe::empty_pool();
    let (mut client, server) = pair().await;
    client.write_all(b"left behind").await.unwrap();
    server.readable().await.unwrap();
    let mut pipe = Pipe::take().unwrap();
    assert_eq!(pipe.fill(&server).unwrap(), 11);
    pipe.put_back();
    assert_eq!(Pipe::empty_pool(), 0);
    Pipe::take().unwrap().put_back();
    assert_eq!(Pipe::empty_pool(), 1);
}
