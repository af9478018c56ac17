//! `maglor identity`: a certificate authority in a directory, and certificates for proxies that read files.
//!
//! [`folder`] is the authority on disk, [`keep`] renews certificates that it has issued, [`show`]
//! prints certificates.

mod folder;
mod keep;
mod show;

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use maglor_config::raw::TimeSpan;
use maglor_identity::{Authority, LeafRequest, SpiffeError, SpiffeId, TrustDomain};
use maglor_telemetry::command_line::output;

use self::folder::{Folder, Leaf};

const EXAMPLES: &str = "\
Examples:
  Create an authority for a trust domain, in the directory ca:
    maglor identity ca --trust-domain mesh.example --out ca
  Issue a certificate for a proxy, and keep it renewed:
    maglor identity issue --ca ca --namespace shop --service-account cart --out cart --keep-renewed
  Show the identity and expiry of a certificate:
    maglor identity show cart/certificate.pem
  Rotate the root without downtime; finish when all certificates are reissued:
    maglor identity rotate --ca ca
    maglor identity rotate --ca ca --finish

The proxy's configuration names the three files:
  identity: {certificate: cart/certificate.pem, private_key: cart/private_key.pem, trust_bundle: cart/trust_bundle.pem}";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Create a certificate authority: a root certificate and its private key, in a directory.
    Ca(CaOptions),
    /// Issue a certificate with a new key to a workload.
    Issue(IssueOptions),
    /// Replace the root without interrupting trust; `--finish` drops the old root.
    Rotate(RotateOptions),
    /// Print the contents of certificates.
    Show(show::Options),
}

#[derive(Debug, clap::Args)]
struct CaOptions {
    /// Trust domain of the root: lower-case letters, digits, `.`, `-` and `_`.
    #[arg(long, value_name = "DOMAIN")]
    trust_domain: TrustDomain,

    /// Directory of the authority; created if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Replace an existing authority; certificates that it has issued are no longer trusted.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("who").required(true))]
struct IssueOptions {
    /// Directory of the authority.
    #[arg(long, value_name = "DIR")]
    ca: PathBuf,

    /// SPIFFE ID of the workload: spiffe://TRUST-DOMAIN/PATH.
    #[arg(long, value_name = "SPIFFE-ID", group = "who")]
    id: Option<SpiffeId>,

    /// Namespace of the workload; with --service-account, the SPIFFE ID is
    /// spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/ACCOUNT.
    #[arg(
        long,
        value_name = "NAMESPACE",
        group = "who",
        requires = "service_account"
    )]
    namespace: Option<String>,

    /// Service account of the workload.
    #[arg(long, value_name = "ACCOUNT", requires = "namespace")]
    service_account: Option<String>,

    /// Directory for certificate.pem, private_key.pem and trust_bundle.pem; created if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Lifetime of the certificate, at most 24h.
    #[arg(long, value_name = "TIME", default_value = "24h")]
    ttl: TimeSpan,

    /// Additional DNS name of the workload, for clients outside the mesh; may be repeated.
    #[arg(long = "dns", value_name = "NAME", value_parser = dns_name)]
    dns_names: Vec<String>,

    /// Additional IP address of the workload; may be repeated.
    #[arg(long = "ip", value_name = "ADDRESS")]
    addresses: Vec<IpAddr>,

    /// Keep running; renew at 70 % of the lifetime, and immediately when the authority changes.
    #[arg(long)]
    keep_renewed: bool,

    /// Overwrite an existing private key.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, clap::Args)]
struct RotateOptions {
    /// Directory of the authority.
    #[arg(long, value_name = "DIR")]
    ca: PathBuf,

    /// Drop the old root; certificates that it has issued are no longer trusted.
    #[arg(long)]
    finish: bool,
}

/// Errors of the identity commands.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{}: a rotation is in progress; complete the rotation with --finish", .0.display())]
    AlreadyRotating(PathBuf),
    #[error("{}: the file exists; use --force to replace it", .0.display())]
    Exists(PathBuf),
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: {source}", path.display())]
    Identity {
        path: PathBuf,
        source: maglor_identity::Error,
    },
    #[error("{0}")]
    Issue(#[from] maglor_identity::Error),
    #[error("--namespace, --service-account: {0}")]
    Name(#[from] SpiffeError),
    #[error("{}: no rotation is in progress; start one without --finish", .0.display())]
    NotRotating(PathBuf),
}

/// Runs a command. An error is printed as one line.
pub(crate) fn run(options: &Options) -> ExitCode {
    let done = match &options.command {
        Command::Ca(options) => create(options),
        Command::Issue(options) => issue(options),
        Command::Rotate(options) => rotate(options),
        Command::Show(options) => show::run(options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("maglor identity: {error}");
            ExitCode::FAILURE
        }
    }
}

fn create(options: &CaOptions) -> Result<(), Error> {
    let folder = Folder::new(&options.out);
    let authority = Authority::create(&options.trust_domain, SystemTime::now())?;
    folder.create(&authority, options.force)?;
    output::print(&format!(
        "authority of {} in {}, valid until {}\n",
        options.trust_domain,
        options.out.display(),
        show::date(authority.expires())
    ));
    Ok(())
}

fn issue(options: &IssueOptions) -> Result<(), Error> {
    let folder = Folder::new(&options.ca);
    let seen = folder.fingerprint();
    let authority = folder.authority()?;
    let request = options.request(&authority)?;
    let leaf = Leaf::new(&options.out);
    leaf.check_free(options.force)?;
    let issued = leaf.issue(&folder, &authority, &request)?;
    output::print(&format!(
        "{} in {}, valid until {}\n",
        request.id,
        options.out.display(),
        show::date(issued.expires())
    ));
    if options.keep_renewed {
        keep::renewed(&folder, &leaf, &request, seen, &issued);
    }
    Ok(())
}

impl IssueOptions {
    fn request(&self, authority: &Authority) -> Result<LeafRequest, Error> {
        let named = self
            .namespace
            .as_deref()
            .zip(self.service_account.as_deref());
        let id = match (&self.id, named) {
            (Some(id), _) => id.clone(),
            (None, named) => {
                let (namespace, account) = named.unwrap_or_default();
                SpiffeId::workload(authority.trust_domain(), namespace, account)?
            }
        };
        let TimeSpan(ttl) = self.ttl;
        Ok(LeafRequest {
            id,
            ttl,
            dns_names: self.dns_names.clone(),
            addresses: self.addresses.clone(),
        })
    }
}

/// Validates a DNS name of a certificate (RFC 6125); the first label may be `*`.
fn dns_name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let label = |label: &str| (1..=63).contains(&label.len()) && label.chars().all(fits);
    let labels = text.strip_prefix("*.").unwrap_or(text);
    match text.len() <= 253 && labels.split('.').all(label) {
        true => Ok(text.to_owned()),
        false => Err("expected a DNS name such as cart.shop.svc or *.example.com".to_owned()),
    }
}

fn rotate(options: &RotateOptions) -> Result<(), Error> {
    let folder = Folder::new(&options.ca);
    if options.finish {
        folder.finish_rotation()?;
        output::print("old root removed: certificates that it issued are no longer trusted\n");
    } else {
        folder.begin_rotation(SystemTime::now())?;
        output::print(
            "new root created; it is cross-signed, so clients that trust only the old root accept its certificates\n\
             complete the rotation with --finish when all certificates are reissued and all proxies \
             have loaded the bundle\n",
        );
    }
    Ok(())
}

/// Poll interval for files and the clock.
const TICK: Duration = Duration::from_secs(1);
