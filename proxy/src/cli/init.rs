//! `maglor-proxy init`: arguments and exit codes of the command that sets up traffic redirection.

use std::process::ExitCode;

use clap::Args;
use ipnet::IpNet;
use maglor_proxy::redirection::{self, InitError, PortRange, Redirection, Settings};

const HELP: &str = "\
Inbound connections (from other hosts) are redirected to the inbound port, and outbound connections (to
other hosts) to the outbound port, except those of the proxy's own user or group. Loopback, UDP, and the
skipped ports and subnets are never redirected. The proxy reads the original destination from the kernel:
its listeners need `original_destination: true`, or are defined by `inbound: {…}` and `outbound: {…}`.

The rules are one nftables table, `inet maglor` (IPv4 and IPv6). It is replaced atomically, so
the command can be repeated. It needs CAP_NET_ADMIN and Linux 5.2, but no `nft` program.

Examples:
  A pod's init container; the proxy runs as user 2102, port 9901 is its admin server:
    maglor-proxy init --inbound-port 15006 --outbound-port 15001 --proxy-uid 2102 \\
                      --skip-inbound-ports 9901

  Do not redirect ssh, and connections to a database on another network:
    maglor-proxy init --inbound-port 15006 --outbound-port 15001 --proxy-uid 2102 \\
                      --skip-inbound-ports 22 --skip-subnets 10.9.0.0/16

  Print the rules without applying them; remove them:
    maglor-proxy init --inbound-port 15006 --dry-run
    maglor-proxy init --remove

Exit codes: 0 done, 2 invalid arguments, 3 not permitted (CAP_NET_ADMIN), 4 no nf_tables
in this kernel, 1 other errors.";

/// Redirect the TCP connections of a pod or host to the proxy, or remove the redirection.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(super) struct InitArgs {
    /// Port of the listener for connections from other hosts.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    inbound_port: Option<u16>,

    /// Port of the listener for connections to other hosts.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    outbound_port: Option<u16>,

    /// User id that the proxy runs as; connections of this user are not redirected.
    #[arg(long, value_name = "UID")]
    proxy_uid: Option<u32>,

    /// Group id that the proxy runs as; connections of this group are not redirected.
    #[arg(long, value_name = "GID")]
    proxy_gid: Option<u32>,

    /// Inbound ports that are not redirected to the proxy: 22,8000-8010.
    #[arg(long, value_name = "PORTS", value_delimiter = ',')]
    skip_inbound_ports: Vec<PortRange>,

    /// Outbound ports that are not redirected to the proxy: 3306,8000-8010.
    #[arg(long, value_name = "PORTS", value_delimiter = ',')]
    skip_outbound_ports: Vec<PortRange>,

    /// Networks whose connections, inbound and outbound, are not redirected: 10.9.0.0/16,fd00::/8.
    #[arg(long, value_name = "SUBNETS", value_delimiter = ',', value_parser = subnet)]
    skip_subnets: Vec<IpNet>,

    /// Print the rules in the format of `nft -f`, without applying them.
    #[arg(long)]
    dry_run: bool,

    /// Remove the rules; no error if there are none. Open redirected connections are closed.
    #[arg(
        long,
        conflicts_with_all = ["inbound_port", "outbound_port", "proxy_uid", "proxy_gid", "skip_inbound_ports", "skip_outbound_ports", "skip_subnets"]
    )]
    remove: bool,
}

/// Parses a network or a single address.
fn subnet(text: &str) -> Result<IpNet, String> {
    let address = || text.parse::<std::net::IpAddr>().map(IpNet::from);
    let net = text.parse::<IpNet>().or_else(|_| address());
    let net = net.map_err(|_| "write a network such as 10.0.0.0/8 or fd00::/8, or an address")?;
    if net.trunc() != net {
        return Err(format!(
            "the address has bits set beyond the prefix; did you mean {}?",
            net.trunc()
        ));
    }
    Ok(net)
}

impl InitArgs {
    pub(super) fn run(self) -> ExitCode {
        match self.carry_out() {
            Ok(code) => code,
            Err(error) => {
                eprintln!("maglor-proxy init: {error}");
                match error {
                    InitError::NotPermitted => ExitCode::from(3),
                    InitError::NoNfTables => ExitCode::from(4),
                    InitError::Different | InitError::Refused { .. } | InitError::Socket(_) => {
                        ExitCode::FAILURE
                    }
                }
            }
        }
    }

    fn carry_out(self) -> Result<ExitCode, InitError> {
        if self.remove {
            if self.dry_run {
                print!("{}", redirection::REMOVAL);
            } else {
                redirection::remove()?;
                eprintln!("maglor-proxy init: rules removed; connections are no longer redirected");
            }
            return Ok(ExitCode::SUCCESS);
        }
        let dry_run = self.dry_run;
        let settings = self.settings();
        let redirection = match Redirection::new(&settings) {
            Ok(redirection) => redirection,
            Err(error) => {
                eprintln!("maglor-proxy init: {error}");
                return Ok(ExitCode::from(2));
            }
        };
        if settings.proxy_uid == Some(0) {
            eprintln!(
                "maglor-proxy init: warning: --proxy-uid 0: connections of root are not redirected"
            );
        }
        if dry_run {
            print!("{redirection}");
        } else {
            redirection.apply()?;
            eprintln!("maglor-proxy init: rules applied");
        }
        Ok(ExitCode::SUCCESS)
    }

    fn settings(self) -> Settings {
        Settings {
            inbound_port: self.inbound_port,
            outbound_port: self.outbound_port,
            proxy_uid: self.proxy_uid,
            proxy_gid: self.proxy_gid,
            skip_inbound_ports: self.skip_inbound_ports,
            skip_outbound_ports: self.skip_outbound_ports,
            skip_subnets: self.skip_subnets,
        }
    }
}
