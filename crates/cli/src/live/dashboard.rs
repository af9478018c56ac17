//! `maglor dashboard`: makes the controller's web page available on this machine.

use std::net::SocketAddr;
use std::process::{Command, ExitCode, Stdio};

use maglor_telemetry::command_line::output;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use super::LiveError;
use super::access::{Admin, Where};

/// The dashboard's port of a controller in a cluster.
const PORT: u16 = 15014;

const EXAMPLES: &str = "\
Examples:
  Open the page in a browser:
    maglor dashboard --open
  Use another local port:
    maglor dashboard --listen 127.0.0.1:9000
  Without Kubernetes, with the address of maglor-controller --dashboard:
    maglor dashboard --controller 127.0.0.1:15014

The page is served by one replica of the controller, through a port-forward with your permissions, until you
press Ctrl-C. It is read-only.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Local address of the page; port 0 lets the system choose.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8484", value_parser = loopback)]
    listen: SocketAddr,

    /// Open the page in a browser.
    #[arg(long)]
    open: bool,

    #[command(flatten)]
    place: Where,
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let expected = "expected a loopback address, such as 127.0.0.1:8484";
    let address: SocketAddr = text.parse().map_err(|_| expected.to_owned())?;
    let is_loopback = address.ip().is_loopback();
    is_loopback
        .then_some(address)
        .ok_or_else(|| expected.to_owned())
}

/// Forwards connections until Ctrl-C.
pub(crate) fn run(options: &Options) -> ExitCode {
    super::run(async {
        let controllers = options.place.controllers().await?;
        let Some(controller) = controllers.first() else {
            return Err(LiveError::NoController {
                namespace: options.place.mesh_namespace.clone(),
            });
        };
        let page = controller.at_port(PORT).admin;
        // An error is reported now rather than as an empty page.
        page.get("/api/v1/about").await?;
        let listening = TcpListener::bind(options.listen).await;
        let socket = listening.map_err(|source| LiveError::Listen {
            address: options.listen,
            source,
        })?;
        let address = socket.local_addr().map_err(LiveError::Runtime)?;
        output::print(&format!("http://{address}/\n"));
        eprintln!("the page of {}; press Ctrl-C to stop", controller.name);
        if options.open {
            open(&format!("http://{address}/"));
        }
        tokio::select! {
            () = forward(socket, page) => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        Ok(())
    })
}

/// Forwards each connection to the dashboard.
async fn forward(socket: TcpListener, page: Admin) {
    loop {
        match socket.accept().await {
            Ok((tcp, _)) => drop(tokio::spawn(relay(tcp, page.clone()))),
            Err(error) => {
                eprintln!("maglor: cannot accept a connection: {error}");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn relay(mut tcp: TcpStream, page: Admin) {
    match page.connect().await {
        // The browser reports a broken connection, and opens another one.
        Ok(mut remote) => drop(copy_bidirectional(&mut tcp, &mut remote).await),
        Err(error) => eprintln!("maglor: {error}"),
    }
}

/// Opens a URL in the browser of the desktop; the URL is printed anyway.
fn open(url: &str) {
    let program = match cfg!(target_os = "macos") {
        true => "open",
        false => "xdg-open",
    };
    let started = Command::new(program)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if let Err(error) = started {
        eprintln!("maglor: cannot start {program}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::live::access::Address;

    #[test]
    fn only_this_machine_gets_the_page() {
        assert!(loopback("127.0.0.1:0").is_ok() && loopback("[::1]:8484").is_ok());
        for bad in ["0.0.0.0:8484", "8484", "localhost:8484"] {
            assert!(loopback(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn bytes_are_forwarded_both_ways() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: Address = server.local_addr().unwrap().to_string().parse().unwrap();
        tokio::spawn(async move {
            let (mut tcp, _) = server.accept().await.unwrap();
            let mut read = [0; 4];
            tcp.read_exact(&mut read).await.unwrap();
            tcp.write_all(b"pong").await.unwrap();
        });
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let local = socket.local_addr().unwrap();
        tokio::spawn(forward(socket, Admin::Direct(address)));
        let mut tcp = TcpStream::connect(local).await.unwrap();
        tcp.write_all(b"ping").await.unwrap();
        let mut text = String::new();
        tcp.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "pong");
    }
}
