//! A started proxy, and the origin behind all proxies.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::scratch::Scratch;
use super::{Peer, Subject};
use crate::child::Guarded;
use crate::error::{Doing, Error, Result};
use crate::forward;
use crate::http_codec::h1;
use crate::scenario::Protocol;
use crate::{ports, procfs};

const PATIENCE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_micros(100);

/// The origin server: two upstream endpoints and a port for the HTTP/2 baseline.
#[derive(Debug)]
pub(crate) struct Origin {
    /// The two endpoints, HTTP/1.1.
    pub upstreams: [SocketAddr; 2],
    /// HTTP/2 with prior knowledge.
    pub h2: SocketAddr,
    _child: Option<Guarded>,
}

impl Origin {
    /// Starts the origin on processor `cpu`.
    pub(crate) fn start(cpu: usize) -> Result<Self> {
        let upstreams = [ports::free()?, ports::free()?];
        let h2 = ports::free()?;
        let mut arguments = Vec::new();
        for (flag, address) in [("--h1", upstreams[0]), ("--h1", upstreams[1]), ("--h2", h2)] {
            arguments.extend([flag.to_owned(), address.to_string()]);
        }
        let mut child = Guarded::role("origin", &arguments, cpu)?;
        child.wait_ready()?;
        Ok(Self {
            upstreams,
            h2,
            _child: Some(child),
        })
    }

    /// Uses an origin that is already running for both endpoints; `GET /64` has to be answered with
    /// 200.
    pub(crate) fn at(address: SocketAddr) -> Self {
        Self {
            upstreams: [address; 2],
            h2: address,
            _child: None,
        }
    }

    /// Returns the address that the generator connects to when there is no proxy.
    pub(crate) fn address(&self, protocol: Protocol) -> SocketAddr {
        match protocol {
            Protocol::H1 => self.upstreams[0],
            Protocol::H2c => self.h2,
        }
    }
}

/// A started proxy; it is stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    /// The kind of proxy.
    pub subject: Subject,
    /// The time from just before the spawn to the first 200.
    pub ready_after: Duration,
    /// The address of its metrics.
    pub(super) admin: SocketAddr,
    h1: SocketAddr,
    h2: SocketAddr,
    inbound: SocketAddr,
    /// The processes; the first one accepts the connections of clients.
    children: Vec<Guarded>,
    scratch: Scratch,
}

impl Running {
    /// Starts `peer` on processor `cpu` and waits until it serves.
    pub(crate) fn start(peer: &Peer, origin: &Origin, cpu: usize) -> Result<Self> {
        let scratch = Scratch::new(peer.subject.key())?;
        let places = Places::choose(peer.subject, origin)?;
        let commands = match &peer.pair {
            None => vec![command(peer, &places, &scratch)?],
            Some(credentials) => {
                credentials.write(scratch.path())?;
                let sides = ["outbound", "inbound"];
                let both = sides.map(|side| paired(peer, side, &places, &scratch));
                both.into_iter().collect::<Result<_>>()?
            }
        };
        Self::spawn(peer, &places, scratch, commands, cpu)
    }

    /// Starts `peer` as a TLS server: with plain text at `h1`, TLS at `h2`, and TLS with client
    /// certificates at [`Running::mutual`]. `write` writes `root.pem`, `leaf.pem`, `key.pem` and
    /// `pair.pem` into a directory.
    pub(crate) fn start_tls(
        peer: &Peer,
        origin: &Origin,
        cpu: usize,
        write: impl FnOnce(&Path) -> std::io::Result<()>,
    ) -> Result<Self> {
        let scratch = Scratch::new(peer.subject.key())?;
        write(scratch.path()).doing("write certificates")?;
        let mut places = Places::choose(peer.subject, origin)?;
        places.h2 = ports::free()?;
        let template = match peer.subject {
            Subject::Envoy => tls::ENVOY,
            Subject::Haproxy => tls::HAPROXY,
            Subject::Maglor | Subject::Earlier => tls::MAGLOR,
            Subject::Nginx => tls::NGINX,
            Subject::Bare | Subject::Direct => return Err(Error::protocol("it speaks no TLS")),
        };
        let file = scratch.path().join("tls.yaml");
        fs::write(&file, places.fill(template, &scratch)).doing("write a configuration")?;
        Self::spawn(peer, &places, scratch, vec![peer.command(&file)], cpu)
    }

    fn spawn(
        peer: &Peer,
        places: &Places,
        scratch: Scratch,
        commands: Vec<Command>,
        cpu: usize,
    ) -> Result<Self> {
        let log = scratch.log_file()?;
        let began = Instant::now();
        let mut children = Vec::new();
        for mut command in commands {
            scratch.run_in(&mut command, &log)?;
            children.push(Guarded::start(peer.subject.key(), &mut command, cpu)?);
        }
        let &Places {
            h1,
            h2,
            admin,
            inbound,
            ..
        } = places;
        let ready_after = Duration::ZERO;
        let mut running = Self {
            subject: peer.subject,
            ready_after,
            admin,
            h1,
            h2,
            inbound,
            children,
            scratch,
        };
        running.wait_ready(began)?;
        running.ready_after = began.elapsed();
        Ok(running)
    }

    /// Returns the address that the generator connects to.
    pub(crate) fn address(&self, protocol: Protocol) -> SocketAddr {
        match protocol {
            Protocol::H1 => self.h1,
            Protocol::H2c => self.h2,
        }
    }

    /// Returns the address where it requests client certificates, if it was started with
    /// [`Running::start_tls`].
    pub(crate) fn mutual(&self) -> SocketAddr {
        self.inbound
    }

    /// Returns its process ids, in the order in which they were started.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let roots = self.children.iter().map(Guarded::pid);
        roots.flat_map(procfs::tree).collect()
    }

    fn wait_ready(&mut self, began: Instant) -> Result<()> {
        loop {
            let Err(last) = get(self.h1, "/64") else {
                return Ok(());
            };
            let ended = self.children.iter_mut().map(Guarded::ended);
            let status = ended
                .collect::<Result<Vec<_>>>()?
                .into_iter()
                .flatten()
                .next();
            if status.is_some() || began.elapsed() > PATIENCE {
                let detail = format!("{last}; ended: {status:?}\n{}", self.scratch.log_end());
                return Err(Error::late(self.subject.to_string(), began, detail));
            }
            std::thread::sleep(POLL);
        }
    }
}

/// Sends one request on a separate connection; returns the whole answer if it is a 200.
pub(super) fn get(target: SocketAddr, path: &str) -> Result<String> {
    let what = format!("ask {target} for {path}");
    let mut stream = TcpStream::connect(target).doing(what.as_str())?;
    stream
        .set_read_timeout(Some(Duration::from_secs(2)))
        .doing(what.as_str())?;
    let request = h1::request_for(&target.to_string(), path);
    stream.write_all(&request).doing(what.as_str())?;
    let text = String::from_utf8_lossy(&read_answer(&mut stream)?).into_owned();
    if text.starts_with("HTTP/1.1 200 ") {
        return Ok(text);
    }
    Err(Error::protocol(text.lines().next().unwrap_or_default()))
}

/// Reads the head of an answer, and also the body if its length is announced.
fn read_answer(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        if let Some(head) = h1::head_len(&answer)
            && answer.len() >= h1::message_len(&answer[..head]).unwrap_or(head)
        {
            return Ok(answer);
        }
        match stream.read(&mut piece).doing("read an answer")? {
            0 => return Err(Error::protocol("closed within the answer")),
            read => answer.extend_from_slice(&piece[..read]),
        }
    }
}

/// The addresses of one proxy.
#[derive(Debug)]
struct Places {
    h1: SocketAddr,
    h2: SocketAddr,
    admin: SocketAddr,
    /// Between the two proxies of a pair.
    inbound: SocketAddr,
    upstreams: [SocketAddr; 2],
    /// For the proxy that cannot translate between protocols.
    origin_h2: SocketAddr,
}

impl Places {
    /// Chooses free ports: Maglor detects HTTP/1.1 and HTTP/2 on one port, the others need two.
    fn choose(subject: Subject, origin: &Origin) -> Result<Self> {
        let h1 = ports::free()?;
        let h2 = if subject.is_maglor() {
            h1
        } else {
            ports::free()?
        };
        Ok(Self {
            h1,
            h2,
            admin: ports::free()?,
            inbound: ports::free()?,
            upstreams: origin.upstreams,
            origin_h2: origin.h2,
        })
    }

    fn fill(&self, template: &str, scratch: &Scratch) -> String {
        let [first, second] = self.upstreams;
        let mut text = template.replace("{{dir}}", &scratch.path().display().to_string());
        for (name, address) in [
            ("h1", self.h1),
            ("h2", self.h2),
            ("admin", self.admin),
            ("inbound", self.inbound),
            ("upstream_1", first),
            ("upstream_2", second),
        ] {
            text = text.replace(&format!("{{{{{name}}}}}"), &address.port().to_string());
        }
        text
    }
}

const ENVOY: &str = include_str!("../../peers/envoy.yaml");
const HAPROXY: &str = include_str!("../../peers/haproxy.cfg");
const NGINX: &str = include_str!("../../peers/nginx.conf");

/// Configuration templates of TLS servers.
mod tls {
    pub(super) const ENVOY: &str = include_str!("../../peers/tls/envoy.yaml");
    pub(super) const HAPROXY: &str = include_str!("../../peers/tls/haproxy.cfg");
    pub(super) const MAGLOR: &str = include_str!("../../peers/tls/maglor.yaml");
    pub(super) const NGINX: &str = include_str!("../../peers/tls/nginx.conf");
}

/// Configuration templates of a pair: outbound and inbound.
mod pair {
    pub(super) const ENVOY: [&str; 2] = [
        include_str!("../../peers/pair/envoy-outbound.yaml"),
        include_str!("../../peers/pair/envoy-inbound.yaml"),
    ];
    pub(super) const HAPROXY: [&str; 2] = [
        include_str!("../../peers/pair/haproxy-outbound.cfg"),
        include_str!("../../peers/pair/haproxy-inbound.cfg"),
    ];
    pub(super) const MAGLOR: [&str; 2] = [
        include_str!("../../peers/pair/maglor-outbound.yaml"),
        include_str!("../../peers/pair/maglor-inbound.yaml"),
    ];
    pub(super) const NGINX: [&str; 2] = [
        include_str!("../../peers/pair/nginx-outbound.conf"),
        include_str!("../../peers/pair/nginx-inbound.conf"),
    ];
}

/// Returns the command of one side of a pair.
fn paired(peer: &Peer, side: &str, places: &Places, scratch: &Scratch) -> Result<Command> {
    let templates = match peer.subject {
        Subject::Bare if side == "inbound" => {
            let to = places.upstreams[0];
            return Ok(forward::command(&peer.binary, [(places.inbound, to)]));
        }
        Subject::Bare => {
            let to = places.inbound;
            return Ok(forward::command(&peer.binary, [(places.h1, to)]));
        }
        Subject::Direct => return Err(Error::protocol("the origin is no proxy")),
        Subject::Envoy => pair::ENVOY,
        Subject::Haproxy => pair::HAPROXY,
        Subject::Maglor | Subject::Earlier => pair::MAGLOR,
        Subject::Nginx => pair::NGINX,
    };
    let template = templates[usize::from(side == "inbound")];
    let file = scratch.path().join(format!("{side}.yaml"));
    fs::write(&file, places.fill(template, scratch)).doing("write a configuration")?;
    Ok(peer.command(&file))
}

fn command(peer: &Peer, places: &Places, scratch: &Scratch) -> Result<Command> {
    let write = |name: &str, template: &str| -> Result<PathBuf> {
        let file = scratch.path().join(name);
        fs::write(&file, places.fill(template, scratch)).doing("write a configuration")?;
        Ok(file)
    };
    let file = match peer.subject {
        Subject::Bare => {
            let h1 = (places.h1, places.upstreams[0]);
            let h2 = (places.h2, places.origin_h2);
            return Ok(forward::command(&peer.binary, [h1, h2]));
        }
        Subject::Direct => return Err(Error::protocol("the origin is no proxy")),
        Subject::Envoy => write("envoy.yaml", ENVOY)?,
        Subject::Haproxy => write("haproxy.cfg", HAPROXY)?,
        Subject::Maglor | Subject::Earlier => {
            let mut command = Command::new(&peer.binary);
            command.args(["--listen", &places.h1.to_string()]);
            command.args(["--admin", &places.admin.to_string()]);
            for upstream in places.upstreams {
                command.args(["--upstream", &upstream.to_string()]);
            }
            return Ok(command);
        }
        Subject::Nginx => write("nginx.conf", NGINX)?,
    };
    Ok(peer.command(&file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_filled_completely() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let places = Places {
            h1: address(1001),
            h2: address(1002),
            admin: address(1003),
            inbound: address(1006),
            upstreams: [address(1004), address(1005)],
            origin_h2: address(1007),
        };
        let scratch = Scratch::new("test").unwrap();
        for template in [ENVOY, HAPROXY, NGINX] {
            let text = places.fill(template, &scratch);
            assert!(!text.contains("{{"), "{text}");
            for port in 1001..=1005 {
                assert!(text.contains(&port.to_string()), "{port} in {text}");
            }
        }
        for template in [tls::ENVOY, tls::HAPROXY, tls::MAGLOR, tls::NGINX] {
            let text = places.fill(template, &scratch);
            assert!(!text.contains("{{"), "{text}");
            for port in 1001..=1006 {
                assert!(text.contains(&port.to_string()), "{port} in {text}");
            }
        }
        for [outbound, inbound] in [pair::ENVOY, pair::HAPROXY, pair::MAGLOR, pair::NGINX] {
            for (template, ports) in [
                (outbound, [1001, 1003, 1006]),
                (inbound, [1004, 1005, 1006]),
            ] {
                let text = places.fill(template, &scratch);
                assert!(!text.contains("{{"), "{text}");
                for port in ports {
                    assert!(text.contains(&port.to_string()), "{port} in {text}");
                }
            }
        }
    }
}
