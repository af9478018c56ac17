//! A started proxy.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::linkerd::{LinkerdControl, Listeners};
use super::origin::Origin;
use super::places::Places;
use super::scratch::Scratch;
use super::{Peer, Subject};
use crate::child::Guarded;
use crate::error::{Doing, Error, Result};
use crate::forward;
use crate::http_codec::h1;
use crate::linkerd::ServiceEndpoints;
use crate::scenario::Protocol;
use crate::{ports, procfs};

const PATIENCE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_micros(100);

/// A started proxy; it is stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    /// The kind of proxy.
    pub subject: Subject,
    /// The time from just before the spawn to the first 200.
    pub ready_after: Duration,
    /// The address of its metrics.
    pub(super) admin: SocketAddr,
    /// Where clients connect, by protocol.
    clients: [SocketAddr; 2],
    inbound: SocketAddr,
    /// The processes; the first one accepts the connections of clients.
    children: Vec<Guarded>,
    /// The control plane of a proxy that cannot run without.
    _control: Option<LinkerdControl>,
    scratch: Scratch,
}

impl Running {
    /// Starts `peer` on processor `cpu` and waits until it serves.
    pub(crate) fn start(peer: &Peer, origin: &Origin, cpu: usize) -> Result<Self> {
        let scratch = Scratch::new(peer.subject.key())?;
        let places = Places::choose(peer, origin)?;
        let mut control = None;
        let commands = match &peer.pair {
            _ if peer.subject == Subject::Linkerd => {
                let started = control_of(peer, &places, &scratch)?;
                let commands = linkerd(peer, &started, &places)?;
                control = Some(started);
                commands
            }
            None => vec![command(peer, &places, &scratch)?],
            Some(credentials) => {
                credentials.write(scratch.path())?;
                let sides = ["outbound", "inbound"];
                let both = sides.map(|side| paired(peer, side, &places, &scratch));
                both.into_iter().collect::<Result<_>>()?
            }
        };
        Self::spawn(peer, &places, scratch, commands, control, cpu)
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
        let mut places = Places::choose(peer, origin)?;
        places.h2 = ports::free()?;
        places.clients[1] = places.h2;
        let template = match peer.subject {
            Subject::Envoy => tls::ENVOY,
            Subject::Haproxy => tls::HAPROXY,
            Subject::Maglor | Subject::Earlier => tls::MAGLOR,
            Subject::Nginx => tls::NGINX,
            Subject::Bare | Subject::Direct | Subject::Linkerd => {
                return Err(Error::protocol("it is no TLS server by configuration"));
            }
        };
        let file = scratch.path().join("tls.yaml");
        fs::write(&file, places.fill(template, &scratch)).doing("write a configuration")?;
        Self::spawn(peer, &places, scratch, vec![peer.command(&file)], None, cpu)
    }

    fn spawn(
        peer: &Peer,
        places: &Places,
        scratch: Scratch,
        commands: Vec<Command>,
        control: Option<LinkerdControl>,
        cpu: usize,
    ) -> Result<Self> {
        let log = scratch.log_file()?;
        let began = Instant::now();
        let mut children = Vec::new();
        for mut command in commands {
            scratch.run_in(&mut command, &log)?;
            children.push(Guarded::start(peer.subject.key(), &mut command, cpu)?);
        }
        let mut running = Self {
            subject: peer.subject,
            ready_after: Duration::ZERO,
            admin: places.admin,
            clients: places.clients,
            inbound: places.inbound,
            children,
            _control: control,
            scratch,
        };
        running.wait_ready(began)?;
        running.ready_after = began.elapsed();
        Ok(running)
    }

    /// Returns the address that the generator connects to.
    pub(crate) fn address(&self, protocol: Protocol) -> SocketAddr {
        let [h1, h2] = self.clients;
        match protocol {
            Protocol::H1 => h1,
            Protocol::H2c => h2,
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

    /// Returns whether it consists of two proxies.
    pub(super) fn is_pair(&self) -> bool {
        self.children.len() == 2
    }

    fn wait_ready(&mut self, began: Instant) -> Result<()> {
        loop {
            let Err(last) = get(self.address(Protocol::H1), "/64") else {
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
            let to = places.server;
            return Ok(forward::command(&peer.binary, [(places.h1, to)]));
        }
        Subject::Direct | Subject::Linkerd => return Err(no_file(peer.subject)),
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
        Subject::Direct | Subject::Linkerd => return Err(no_file(peer.subject)),
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

/// Starts the control plane of linkerd2-proxy: for a single proxy in front of the origin, or for a pair.
fn control_of(peer: &Peer, places: &Places, scratch: &Scratch) -> Result<LinkerdControl> {
    let pair = peer.pair.is_some();
    let service = ServiceEndpoints {
        address: places.clients[0],
        endpoints: match pair {
            true => vec![places.server],
            false => places.upstreams.to_vec(),
        },
    };
    LinkerdControl::start(scratch.path(), &[service], pair)
}

/// Returns the commands of linkerd2-proxy; the side of a proxy that is not used has an address, too.
fn linkerd(peer: &Peer, control: &LinkerdControl, places: &Places) -> Result<Vec<Command>> {
    let outbound = Listeners {
        outbound: places.h1,
        inbound: ports::free()?,
        admin: places.admin,
    };
    let mut commands = vec![control.command(&peer.binary, outbound)];
    if peer.pair.is_some() {
        let inbound = Listeners {
            outbound: ports::free()?,
            inbound: places.inbound,
            admin: ports::free()?,
        };
        let mut command = control.command(&peer.binary, inbound);
        places.group.map(|group| command.gid(group));
        commands.push(command);
    }
    Ok(commands)
}

fn no_file(subject: Subject) -> Error {
    Error::protocol(format!("{subject} has no configuration file"))
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
            clients: [address(1001), address(1002)],
            server: SocketAddr::from(([10, 90, 0, 1], 1008)),
            group: None,
            connections: 4096,
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
                (outbound, [1001, 1003, 1008]),
                (inbound, [1004, 1005, 1006]),
            ] {
                let text = places.fill(template, &scratch);
                assert!(!text.contains("{{"), "{text}");
                assert_eq!(text.contains("10.90.0.1"), ports.contains(&1008), "{text}");
                for port in ports {
                    assert!(text.contains(&port.to_string()), "{port} in {text}");
                }
            }
        }
    }
}
