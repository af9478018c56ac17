use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use maglor_config::tls::CertificateFiles;
use maglor_config::{DownstreamTls, UpstreamTls};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{HandshakeKind, ProtocolVersion};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

mod files;
mod handshake;

/// A certification authority and a folder with the certificates that it has issued.
struct Ca {
    dir: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let dir = tempfile::tempdir().unwrap();
        // Authorities are distinguished by name.
        let name = dir.path().display().to_string();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap();
        fs::write(dir.path().join("ca.pem"), certificate.pem()).unwrap();
        Self {
            dir,
            issuer: Issuer::new(params, key),
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Issues a certificate for `names`, in files named after the first of them.
    fn issue(&self, names: &[&str]) -> CertificateFiles {
        self.issue_with(names, &KeyPair::generate().unwrap(), |_| {})
    }

    fn issue_with(
        &self,
        names: &[&str],
        key: &KeyPair,
        change: impl FnOnce(&mut CertificateParams),
    ) -> CertificateFiles {
        let names: Vec<_> = names.iter().copied().map(str::to_owned).collect();
        let file = format!("{}-{:?}", names[0].replace('*', "_"), key.algorithm());
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let certificate = params.signed_by(key, &self.issuer).unwrap();
        CertificateFiles {
            certificate: self.file(&format!("{file}.crt"), &certificate.pem()),
            private_key: self.file(&format!("{file}.key"), &key.serialize_pem()),
        }
    }
}

fn downstream(certificates: &[&CertificateFiles]) -> DownstreamTls {
    DownstreamTls {
        certificates: certificates.iter().copied().cloned().collect(),
        client_ca: None,
        require_client_certificate: false,
        alpn: Vec::new(),
        min_version: MinimumTlsVersion::Tls12,
    }
}

fn upstream(ca: &Ca) -> UpstreamTls {
    UpstreamTls {
        server_name: None,
        ca: Some(ca.path()),
        certificate: None,
        insecure_skip_verify: false,
        min_version: MinimumTlsVersion::Tls12,
    }
}

fn server(tls: &DownstreamTls) -> Arc<ServerConfig> {
    server_config(tls, &mut Roots::new()).unwrap()
}

fn client(tls: &UpstreamTls, alpn: &[&[u8]]) -> Arc<ClientConfig> {
    client_config(tls, alpn, &mut Roots::new()).unwrap()
}

/// Properties of a connection as seen by the client, after a byte was sent each way.
#[derive(Debug)]
struct Seen {
    alpn: Option<Vec<u8>>,
    certificate: CertificateDer<'static>,
    kind: HandshakeKind,
    version: ProtocolVersion,
    /// Whether the server has seen a client certificate.
    client_certificate: bool,
}

/// Opens one connection over loopback. The server reads its first bytes before the handshake.
async fn round_trip(
    server: &Arc<ServerConfig>,
    client: &Arc<ClientConfig>,
    name: &str,
) -> io::Result<Seen> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serve = async {
        let (mut tcp, _) = listener.accept().await.unwrap();
        let mut prefix = [0; 3];
        tcp.read_exact(&mut prefix).await.unwrap();
        let prefix = BytesMut::from(&prefix[..]);
        let mut io = accept(tcp, prefix, Arc::clone(server)).await?;
        let byte = io.read_u8().await?;
        io.write_u8(byte + 1).await?;
        io.flush().await?;
        // Wait until the client closes, so that it receives the byte and the tickets.
        let _ = io.read_u8().await;
        let Io::TlsServer(tls) = &io else {
            panic!("not TLS")
        };
        Ok(tls.get_ref().1.peer_certificates().is_some())
    };
    let ask = async {
        let tcp = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut io = connect(tcp, name, Arc::clone(client)).await?;
        io.write_u8(41).await?;
        io.flush().await?;
        assert_eq!(io.read_u8().await?, 42);
        assert!(io.is_tls());
        let alpn = io.alpn().map(<[u8]>::to_vec);
        let Io::TlsClient(tls) = &io else {
            panic!("not TLS")
        };
        let session = tls.get_ref().1;
        Ok(Seen {
            alpn,
            certificate: session.peer_certificates().unwrap()[0].clone(),
            kind: session.handshake_kind().unwrap(),
            version: session.protocol_version().unwrap(),
            client_certificate: false,
        })
    };
    let (served, asked): (io::Result<bool>, io::Result<Seen>) = tokio::join!(serve, ask);
    let seen = asked?;
    Ok(Seen {
        client_certificate: served?,
        ..seen
    })
}

/// Returns the rustls error of a failed connection.
async fn refusal(server: &DownstreamTls, client: &Arc<ClientConfig>, name: &str) -> rustls::Error {
    let error = round_trip(&self::server(server), client, name)
        .await
        .unwrap_err();
    let inner = error.into_inner().expect("an error of rustls");
    *inner.downcast().expect("an error of rustls")
}
