//! Clients that follow their scripts.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};

use super::schedule::{Leaves, Reads, Schedule, Script, Speaks};

/// Addresses to which clients connect.
#[derive(Clone)]
pub(crate) struct Addresses {
    pub(crate) outbound: SocketAddr,
    pub(crate) extra: SocketAddr,
    pub(crate) inbound: SocketAddr,
    pub(crate) member: Arc<ClientConfig>,
    pub(crate) member_http2: Arc<ClientConfig>,
}

/// Runs all clients in a thread of their own, which ends when all have disconnected.
pub(crate) fn start(schedules: &[Schedule], addresses: Addresses) -> JoinHandle<()> {
    let scripts: Vec<Script> = schedules
        .iter()
        .flat_map(|one| one.clients.clone())
        .collect();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(async {
            let clients: Vec<_> = scripts
                .into_iter()
                .map(|script| tokio::spawn(follow(script, addresses.clone())))
                .collect();
            for client in clients {
                // A proxy may refuse, reset or close: that is no failure here.
                let _ = client.await.expect("no panic");
            }
        });
    })
}

async fn follow(script: Script, to: Addresses) -> io::Result<()> {
    let (address, tls) = match script.speaks {
        Speaks::Http1 | Speaks::Http2 if script.extra => (to.extra, None),
        Speaks::Http1 | Speaks::Http2 => (to.outbound, None),
        Speaks::Member => (to.inbound, Some(to.member)),
        Speaks::MemberHttp2 => (to.inbound, Some(to.member_http2)),
    };
    let tcp = TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;
    if matches!(script.leaves, Leaves::Reset) {
        socket2::SockRef::from(&tcp).set_linger(Some(Duration::ZERO))?;
    }
    match tls {
        None => talk(tcp, &script).await,
        Some(config) => {
            let name = rustls::pki_types::ServerName::try_from("a.test").unwrap();
            let connector = tokio_rustls::TlsConnector::from(config);
            // The proxy may be one that is ending.
            let limit = Instant::now() + Duration::from_secs(3);
            let tls = timeout_at(limit, connector.connect(name, tcp)).await??;
            talk(tls, &script).await
        }
    }
}

/// Sends and reads at the same time, then disconnects.
async fn talk<S: AsyncRead + AsyncWrite + Unpin>(stream: S, script: &Script) -> io::Result<()> {
    let (mut reading, mut writing) = tokio::io::split(stream);
    let sending = async {
        for (pause, piece) in &script.pieces {
            sleep(*pause).await;
            let limit = Instant::now() + script.stays + Duration::from_millis(100);
            // The client disconnects from a proxy that does not read everything.
            timeout_at(limit, writing.write_all(piece)).await??;
            timeout_at(limit, writing.flush()).await??;
        }
        if matches!(script.leaves, Leaves::Half) {
            let limit = Instant::now() + script.stays;
            timeout_at(limit, writing.shutdown()).await??;
        }
        sleep(script.stays).await;
        io::Result::Ok(())
    };
    let receiving = async {
        loop {
            let read = match script.reads {
                Reads::Nothing => std::future::pending().await,
                Reads::Slowly(bytes) => {
                    sleep(Duration::from_millis(10)).await;
                    read(&mut reading, bytes).await
                }
                Reads::All => read(&mut reading, 64 * 1024).await,
            };
            if !matches!(read, Ok(1..)) {
                return;
            }
        }
    };
    tokio::select! {
        sent = sending => sent,
        () = receiving => Ok(()),
    }
}

async fn read(from: &mut (impl AsyncRead + Unpin), most: usize) -> io::Result<usize> {
    let mut bytes = vec![0; most];
    from.read(&mut bytes).await
}
