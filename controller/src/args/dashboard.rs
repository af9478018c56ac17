//! Arguments of the dashboard.

use std::net::SocketAddr;

use crate::dashboard::Options;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Dashboard")]
pub(super) struct Dashboard {
    /// Loopback address of the dashboard, for `maglor dashboard` and `kubectl port-forward`; see docs/dashboard.md
    /// [default: none].
    #[arg(long, value_name = "ADDR", value_parser = loopback)]
    dashboard: Option<SocketAddr>,
    /// Address of the dashboard for the network: HTTPS with the webhook's certificate, for users whose token may `get`
    /// the URL /maglor/dashboard [default: none].
    #[arg(long, value_name = "ADDR", requires = "webhook")]
    dashboard_https: Option<SocketAddr>,
    /// Host name in URLs of the dashboard, in addition to `localhost` and those of the controller's Service; may be
    /// repeated. Other names are rejected (DNS rebinding).
    #[arg(long = "dashboard-host", value_name = "NAME")]
    dashboard_hosts: Vec<String>,
    /// Admin address of a proxy whose requests the dashboard shows live, without Kubernetes; may be repeated. In a
    /// cluster, viewers reach sidecars with their own permissions.
    #[arg(long = "dashboard-proxy", value_name = "NAME=ADDR", value_parser = proxy)]
    dashboard_proxies: Vec<(String, SocketAddr)>,
}

impl Dashboard {
    pub(super) fn options(&self) -> Options {
        Options {
            address: self.dashboard,
            https: self.dashboard_https,
            host_names: self.dashboard_hosts.clone(),
            proxies: self.dashboard_proxies.clone(),
        }
    }
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let expected = "expected a loopback address, such as 127.0.0.1:15012";
    let address: SocketAddr = text.parse().map_err(|_| expected.to_owned())?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err(format!(
            "{expected}; for the network, use --dashboard-https"
        )),
    }
}

fn proxy(text: &str) -> Result<(String, SocketAddr), String> {
    let parsed = text.split_once('=').and_then(|(name, address)| {
        let address = address.parse().ok()?;
        (!name.is_empty()).then(|| (name.to_owned(), address))
    });
    parsed.ok_or_else(|| "expected NAME=ADDR, such as shop/cart-0=127.0.0.1:15020".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        assert!(loopback("127.0.0.1:0").is_ok() && loopback("[::1]:15012").is_ok());
        for bad in ["0.0.0.0:15012", "10.0.0.1:1", "localhost:1", "15012"] {
            assert!(loopback(bad).is_err(), "{bad}");
        }
        let address = SocketAddr::from(([127, 0, 0, 1], 15020));
        assert_eq!(
            proxy("shop/cart-0=127.0.0.1:15020"),
            Ok(("shop/cart-0".to_owned(), address))
        );
        for bad in ["cart", "=127.0.0.1:1", "cart=x"] {
            assert!(proxy(bad).is_err(), "{bad}");
        }
    }
}
