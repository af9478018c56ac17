//! A relay that delays, cuts, stops and resets.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use maglor_balance::Rng;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// Address to which a relay connects; may be changed.
pub(crate) type Target = Arc<Mutex<SocketAddr>>;

/// Fault of a direction of a connection, after a number of bytes.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Close(usize),
    None,
    Reset(usize),
    Stop(usize, Duration),
}

impl Fault {
    fn draw(rng: &mut Rng) -> Self {
        let after = rng.below(200_000) as usize;
        match rng.below(100) {
            0..3 => Self::Reset(after),
            3..6 => Self::Close(after),
            6..15 => Self::Stop(after, Duration::from_millis(u64::from(rng.below(1500)))),
            _ => Self::None,
        }
    }
}

/// Starts a relay that runs until the process ends; returns its address.
pub(crate) fn start(target: Target, seed: u64) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(accept(listener, target, Rng::seed(seed)));
    });
    address
}

async fn accept(listener: std::net::TcpListener, target: Target, mut rng: Rng) {
    let listener = TcpListener::from_std(listener).unwrap();
    while let Ok((client, _)) = listener.accept().await {
        let to = *target.lock().unwrap();
        let seed = rng.next_u64();
        tokio::spawn(async move {
            // Either end may disconnect at any moment.
            let _ = relay(client, to, Rng::seed(seed)).await;
        });
    }
}

async fn relay(mut client: TcpStream, to: SocketAddr, mut rng: Rng) -> io::Result<()> {
    sleep(Duration::from_millis(u64::from(rng.below(5)))).await;
    let mut server = TcpStream::connect(to).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let passed = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let up = pass(from_client, to_server, Rng::seed(rng.next_u64()));
        let down = pass(from_server, to_client, Rng::seed(rng.next_u64()));
        tokio::try_join!(up, down)
    };
    if matches!(passed, Err(error) if error.kind() == io::ErrorKind::ConnectionReset) {
        for socket in [&client, &server] {
            socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO))?;
        }
    }
    Ok(())
}

async fn pass(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, mut rng: Rng) -> io::Result<()> {
    let mut fault = Fault::draw(&mut rng);
    let (mut passed, mut buffer) = (0, vec![0; 16 * 1024]);
    loop {
        let most = match rng.below(4) {
            0 => 1 + rng.below(100) as usize,
            _ => buffer.len(),
        };
        let n = from.read(&mut buffer[..most]).await?;
        if n == 0 {
            return to.shutdown().await;
        }
        if rng.below(3) == 0 {
            sleep(Duration::from_millis(u64::from(rng.below(4)))).await;
        }
        to.write_all(&buffer[..n]).await?;
        passed += n;
        match fault {
            Fault::Close(after) if passed >= after => return Err(io::ErrorKind::Other.into()),
            Fault::Reset(after) if passed >= after => {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            Fault::Stop(after, pause) if passed >= after => {
                sleep(pause).await;
                fault = Fault::None;
            }
            _ => {}
        }
    }
}
