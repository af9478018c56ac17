//! Tests of how tunnels end.

use super::*;

#[tokio::test]
async fn nothing_at_all() {
    local(async {
        let mut run = Running::new(HOUR).await;
        run.client.shutdown().await.unwrap();
        run.server.shutdown().await.unwrap();
        assert_eq!(run.client.read(&mut [0]).await.unwrap(), 0);
        assert_eq!(run.server.read(&mut [0]).await.unwrap(), 0);
        assert_eq!(run.task.await.unwrap(), outcome(0, 0, End::Closed));
    })
    .await;
}

#[tokio::test]
async fn the_end_of_one_side_is_passed_on_and_the_other_goes_on() {
    local(async {
        for client_first in [true, false] {
            let Running {
                client,
                server,
                task,
                ..
            } = Running::new(HOUR).await;
            let (mut first, mut second) = if client_first {
                (client, server)
            } else {
                (server, client)
            };
            send(&mut first, 1000, 1000).await.unwrap();
            assert_eq!(receive(&mut second).await.unwrap(), 1000);
            // The second direction begins only after the end of the first.
            for _ in 0..10 {
                second.write_all(&pattern::piece(0, 251)).await.unwrap();
                let mut buf = [0; 251];
                first.read_exact(&mut buf).await.unwrap();
                pattern::check(0, &buf);
            }
            second.shutdown().await.unwrap();
            assert_eq!(first.read(&mut [0]).await.unwrap(), 0);
            let (up, down) = if client_first {
                (1000, 2510)
            } else {
                (2510, 1000)
            };
            assert_eq!(task.await.unwrap(), outcome(up, down, End::Closed));
        }
    })
    .await;
}

#[tokio::test]
async fn what_was_sent_before_the_end_arrives() {
    local(async {
        let Running {
            mut client,
            mut server,
            task,
            ..
        } = Running::new(HOUR).await;
        client.write_all(&pattern::piece(0, 50_000)).await.unwrap();
        // An orderly close of both directions at once.
        drop(client);
        assert_eq!(receive(&mut server).await.unwrap(), 50_000);
        drop(server);
        assert_eq!(task.await.unwrap(), outcome(50_000, 0, End::Closed));
    })
    .await;
}

#[tokio::test]
async fn a_reset_is_passed_on() {
    local(async {
        for client_resets in [true, false] {
            let Running {
                client,
                server,
                task,
                ..
            } = Running::new(HOUR).await;
            let (side, mut resets, mut other) = match client_resets {
                true => (Side::Downstream, client, server),
                false => (Side::Upstream, server, client),
            };
            resets.write_all(b"some").await.unwrap();
            other.read_exact(&mut [0; 4]).await.unwrap();
            resets.set_zero_linger().unwrap();
            drop(resets);
            assert!(reset_seen(&mut other).await);
            let kind = ErrorKind::ConnectionReset;
            assert_eq!(task.await.unwrap().end, End::Error { side, kind });
        }
    })
    .await;
}

#[tokio::test]
async fn a_side_that_goes_away_in_the_middle_of_much() {
    local(async {
        for sender_goes in [true, false] {
            let Running {
                mut client,
                mut server,
                task,
                counted,
            } = Running::new(HOUR).await;
            let sender = tokio::task::spawn_local(async move {
                let result = send(&mut client, 1 << 40, 65536).await;
                assert!(result.is_err());
                client
            });
            let mut buf = vec![0; 65536];
            while counted.0.get() < 4 * MIB {
                assert_ne!(server.read(&mut buf).await.unwrap(), 0);
            }
            if sender_goes {
                sender.abort();
                assert!(sender.await.unwrap_err().is_cancelled());
                // Nothing was unread: an orderly end.
                while server.read(&mut buf).await.unwrap() > 0 {}
                drop(server);
                assert_eq!(task.await.unwrap().end, End::Closed);
            } else {
                server.set_zero_linger().unwrap();
                drop(server);
                let End::Error {
                    side: Side::Upstream,
                    kind,
                } = task.await.unwrap().end
                else {
                    panic!("not the upstream's error");
                };
                use ErrorKind::{BrokenPipe, ConnectionReset};
                assert!(matches!(kind, BrokenPipe | ConnectionReset), "{kind}");
                // Its writes fail, which ends it.
                sender.await.unwrap();
            }
        }
    })
    .await;
}

#[tokio::test]
async fn an_answer_before_a_close_reaches_the_client() {
    local(async {
        let Running {
            mut client,
            mut server,
            task,
            ..
        } = Running::new(HOUR).await;
        client.write_all(&pattern::piece(0, 10_000)).await.unwrap();
        server.read_exact(&mut [0; 100]).await.unwrap();
        server.write_all(b"too large").await.unwrap();
        // Closed with unread bytes: a reset, right after the answer.
        drop(server);
        let mut answer = [0; 9];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"too large");
        assert!(matches!(
            task.await.unwrap().end,
            End::Error {
                side: Side::Upstream,
                ..
            }
        ));
    })
    .await;
}

#[tokio::test]
async fn after_a_failed_write_the_other_way_is_finished() {
    local(async {
        let ((mut client, down), (up, mut server)) = (pair().await, pair().await);
        // Writing to the endpoint fails immediately, while its answer is in transit.
        socket2::SockRef::from(&up)
            .shutdown(std::net::Shutdown::Write)
            .unwrap();
        client.write_all(b"never arrives").await.unwrap();
        down.readable().await.unwrap();
        send(&mut server, 60_000, 60_000).await.unwrap();
        let run = Running::over(client, stream(down), stream(up), server, HOUR);
        let Running {
            mut client, task, ..
        } = run;
        assert_eq!(receive(&mut client).await.unwrap(), 60_000);
        let (side, kind) = (Side::Upstream, ErrorKind::BrokenPipe);
        assert_eq!(
            task.await.unwrap(),
            outcome(0, 60_000, End::Error { side, kind })
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_tunnel_ends_at_its_timeout() {
    local(async {
        let start = Instant::now();
        let mut run = Running::new(HOUR).await;
        assert_eq!(run.task.await.unwrap(), outcome(0, 0, End::IdleTimeout));
        let took = start.elapsed();
        assert!(
            (HOUR..HOUR + Duration::from_secs(1)).contains(&took),
            "{took:?}"
        );
        assert_eq!(run.client.read(&mut [0]).await.unwrap(), 0, "closed");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn bytes_either_way_put_the_timeout_off() {
    local(async {
        let start = Instant::now();
        let mut run = Running::new(HOUR).await;
        for minutes in [40, 35] {
            tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
            // Sockets need real time.
            tokio::time::resume();
            let (from, to) = match minutes {
                40 => (&mut run.client, &mut run.server),
                _ => (&mut run.server, &mut run.client),
            };
            from.write_all(b"x").await.unwrap();
            to.read_exact(&mut [0]).await.unwrap();
            tokio::time::pause();
        }
        assert_eq!(run.task.await.unwrap(), outcome(1, 1, End::IdleTimeout));
        let (took, last) = (start.elapsed(), Duration::from_secs(60 * 75));
        assert!(
            (HOUR + last..HOUR + last + Duration::from_secs(5)).contains(&took),
            "{took:?}"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_half_closed_tunnel_times_out_too() {
    local(async {
        let mut run = Running::new(HOUR).await;
        run.client.shutdown().await.unwrap();
        assert_eq!(run.task.await.unwrap(), outcome(0, 0, End::IdleTimeout));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_timeout_without_end() {
    local(async {
        let run = Running::new(Duration::MAX).await;
        let year = Duration::from_secs(365 * 24 * 3600);
        assert!(tokio::time::timeout(year, run.task).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn dropping_a_tunnel_closes_both_sides() {
    local(async {
        let mut run = Running::new(HOUR).await;
        run.client.write_all(b"x").await.unwrap();
        run.server.read_exact(&mut [0]).await.unwrap();
        assert_eq!(run.counted(), (1, 0), "counted while it runs");
        run.task.abort();
        assert_eq!(run.client.read(&mut [0]).await.unwrap(), 0);
        assert_eq!(run.server.read(&mut [0]).await.unwrap(), 0);
    })
    .await;
}
