//! Opens connections to endpoints: TCP, PROXY header and TLS, with one timeout.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::BytesMut;
use maglor_config::{Address, Origination};
use maglor_identity::tls::{Client, Expected};
use maglor_identity::{Live, TrustBundle};
use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::{ClientTls, Cluster, Target, rtt};
use crate::net::io::Io;
use crate::net::own_connections;
use crate::net::send_queue;
use crate::net::socket;
use crate::protocol::error::ProxyError;
use crate::protocol::mesh_transport;
use crate::protocol::proxy_protocol::{self, Addresses};
use crate::tls;

/// Protocol of a new connection, which determines what ALPN may offer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Speaks {
    /// Not HTTP. ALPN must not offer HTTP, because a peer that detects the protocol would expect it.
    Bytes,
    Http1,
    Http2,
    /// The endpoint chooses the HTTP version.
    Negotiated,
}

impl Speaks {
    /// Returns whether the endpoint chooses the protocol.
    pub(crate) fn is_chosen(self) -> bool {
        matches!(self, Self::Negotiated)
    }

    fn alpn(self, in_mesh: bool) -> &'static [&'static [u8]] {
        match self {
            Self::Negotiated if in_mesh => &[mesh_transport::ALPN, b"h2", b"http/1.1"],
            Self::Bytes => &[],
            Self::Http1 => &[b"http/1.1"],
            Self::Http2 => &[b"h2"],
            Self::Negotiated => &[b"h2", b"http/1.1"],
        }
    }

    /// Returns the cluster's TLS configuration that offers this protocol, for one handshake.
    fn offered_by(self, tls: &ClientTls) -> Arc<rustls::ClientConfig> {
        let config = tls.config();
        let wanted = self.alpn(tls.mesh().is_some());
        let offered = config.alpn_protocols.iter().map(Vec::as_slice);
        if offered.eq(wanted.iter().copied()) {
            return config;
        }
        let mut config = rustls::ClientConfig::clone(&config);
        config.alpn_protocols = wanted.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }
}

/// Connects to an endpoint. `ends` are the addresses of the client's connection for the PROXY header; without
/// them the header describes the proxy itself.
///
/// # Errors
/// [`ProxyError::Connect`] if the connection fails, or [`ProxyError::ConnectTimeout`].
pub(crate) async fn connect(
    cluster: &Cluster,
    target: &Target,
    ends: Option<Addresses>,
    speaks: Speaks,
) -> Result<Io, ProxyError> {
    let limit = cluster.config().connect_timeout;
    let established = async {
        identified(cluster).await?;
        establish(cluster, target, ends.as_ref(), cluster.tls(), speaks).await
    };
    match tokio::time::timeout(limit, established).await {
        Ok(Ok(io)) => Ok(io),
        Ok(Err(error)) => Err(ProxyError::Connect(error)),
        Err(_) => Err(ProxyError::ConnectTimeout),
    }
}

/// Connects to an endpoint's proxy for a channel of the queue protocol, over HTTP/1.1, regardless of the version that
/// requests use.
///
/// # Errors
/// If the connection fails. The caller sets a timeout.
pub(crate) async fn connect_channel(cluster: &Cluster, target: &Target) -> io::Result<Io> {
    identified(cluster).await?;
    establish(cluster, target, None, cluster.tls(), Speaks::Http1).await
}

/// Waits for an identity, because mesh members refuse unauthenticated clients. An expired identity is an error
/// instead: the renewal may take as long as the control plane is unavailable.
async fn identified(cluster: &Cluster) -> io::Result<()> {
    if let Some(mesh) = cluster.tls().and_then(ClientTls::mesh) {
        mesh.live.identified().await;
        let usable = mesh.live.usable(SystemTime::now());
        usable.map_err(|error| io::Error::new(io::ErrorKind::PermissionDenied, error))?;
    }
    Ok(())
}

/// Connects to a server of the control plane over HTTP/2, with or without an identity. The caller sets a timeout.
pub(crate) async fn connect_for_control(cluster: &Cluster, target: &Target) -> io::Result<Io> {
    establish(cluster, target, None, cluster.tls(), Speaks::Http2).await
}

/// Like [`connect_for_control`], but for enrolment: no identity is presented, since it may have expired, and the
/// server is verified with `roots`.
pub(crate) async fn connect_to_enrol(
    cluster: &Cluster,
    target: &Target,
    roots: TrustBundle,
) -> io::Result<Io> {
    let mut tls = cluster.tls().cloned();
    if let (Some(ClientTls::Mesh(mesh)), Some(Origination::Mesh(expected))) =
        (&mut tls, &cluster.config().tls)
    {
        mesh.live = Live::nameless(roots).map_err(io::Error::other)?;
        let expected = Expected::OneOf(expected.clone());
        let client = Client::new(&mesh.live, expected, Speaks::Http2.alpn(true));
        mesh.client = client.map_err(io::Error::other)?;
    }
    establish(cluster, target, None, tls.as_ref(), Speaks::Http2).await
}

async fn establish(
    cluster: &Cluster,
    target: &Target,
    ends: Option<&Addresses>,
    tls: Option<&ClientTls>,
    speaks: Speaks,
) -> io::Result<Io> {
    if target.address.ip().is_some_and(own_connections::is_admin) {
        let what = "the endpoint is this proxy's own admin port";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    let mut tcp = socket::connect(&target.address).await?;
    if target.address.ip().is_some() {
        prepare(&tcp)?;
        if let Some(micros) = rtt::of(&tcp) {
            target.measured(micros);
        }
    }
    if let Some(version) = cluster.config().proxy_protocol {
        let mut header = BytesMut::new();
        proxy_protocol::encode(version, ends, &mut header);
        tcp.write_all(&header).await?;
    }
    let Some(tls) = tls else {
        return Ok(Io::Tcp(tcp));
    };
    let name = server_name(cluster, target)?;
    let config = speaks.offered_by(tls);
    match tls.mesh() {
        None => tls::connect(tcp, name, config)
            .await
            .map_err(tls::explain::explained),
        Some(mesh) => tls::mesh::connect(tcp, name, config, &mesh.refused).await,
    }
}

/// Sets the options of a connection to an endpoint. A dead peer is detected after 40 s, as with the PINGs of HTTP/2
/// and the mesh transport; the system's default takes eleven minutes longer.
fn prepare(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    send_queue::limit(tcp)?;
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(30))
        .with_interval(Duration::from_secs(5))
        .with_retries(2);
    socket2::SockRef::from(tcp).set_tcp_keepalive(&keepalive)
}

/// Returns the name that the endpoint's certificate must have: the configured one, its DNS name, or its
/// address.
fn server_name(cluster: &Cluster, target: &Target) -> io::Result<ServerName<'static>> {
    let configured = match &cluster.config().tls {
        Some(Origination::Names(tls)) => tls.server_name.as_deref(),
        Some(Origination::Mesh(_)) | None => None,
    };
    match configured.or(target.host.as_deref()) {
        Some(name) => ServerName::try_from(name.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error)),
        None => match &target.address {
            Address::Ip(address) => Ok(ServerName::from(address.ip())),
            // Mesh members are verified by their identities, and an IP address is not sent as a server name (RFC 6066
            // §3).
            Address::Unix(_) if cluster.is_in_mesh() => {
                Ok(ServerName::from(IpAddr::from(Ipv4Addr::LOCALHOST)))
            }
            Address::Unix(_) => {
                let what = "TLS to an endpoint on a Unix socket needs `tls.server_name`";
                Err(io::Error::new(io::ErrorKind::InvalidInput, what))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_has_gone_is_noticed_within_forty_seconds() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap());
        let tcp = tcp.await.unwrap();
        prepare(&tcp).unwrap();
        let socket = socket2::SockRef::from(&tcp);
        let (time, interval) = (
            socket.tcp_keepalive_time().unwrap(),
            socket.tcp_keepalive_interval().unwrap(),
        );
        let noticed = time + interval * socket.tcp_keepalive_retries().unwrap();
        // The timeout also applies to a live peer that does not read.
        assert!(socket.tcp_user_timeout().unwrap().is_some());
        assert!(socket.keepalive().unwrap() && noticed <= Duration::from_secs(40));
    }
}
