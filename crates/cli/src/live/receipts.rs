//! `maglor receipts`: lists configuration changes, the clients that have acknowledged them and the delays, and the
//! clients that have not.

use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::access::Where;
use super::served::{Service, short};
use super::table::{self, Column, Format, Row, or_dash};

const EXAMPLES: &str = "\
Examples:
  The last changes, the newest first:
    maglor receipts
  Changes of one service, with all clients:
    maglor receipts reviews -o wide
  Changes that are not acknowledged, or rejected:
    maglor receipts --open
  Without Kubernetes:
    maglor receipts --controller 127.0.0.1:15011";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Only resources of this service, by a unique prefix of its name [default: all].
    #[arg(value_name = "SERVICE")]
    service: Option<Service>,

    /// Only changes that a proxy has rejected or not yet acknowledged.
    #[arg(long)]
    open: bool,

    /// Only this change.
    #[arg(long, value_name = "NUMBER")]
    change: Option<u64>,

    /// All stored changes (1024), instead of the last 100.
    #[arg(long)]
    all: bool,

    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    place: Where,
}

/// A change, as reported by a replica of the controller.
#[derive(Debug, Deserialize, Serialize)]
struct Receipt {
    change: u64,
    kind: String,
    name: String,
    age_seconds: u64,
    took_ms: Option<f64>,
    deliveries: Vec<Delivery>,
    /// The replica that reported the change. Each replica has its own numbers of changes and its own clients.
    #[serde(default)]
    replica: String,
}

#[derive(Debug, Deserialize, Serialize)]
struct Delivery {
    node: String,
    answered: bool,
    answered_ms: Option<f64>,
    refused: Option<String>,
}

impl Receipt {
    fn has(&self) -> usize {
        let taken = |one: &&Delivery| one.answered && one.refused.is_none();
        self.deliveries.iter().filter(taken).count()
    }

    fn is_open(&self) -> bool {
        self.has() < self.deliveries.len()
    }

    /// Returns the clients that have not acknowledged the change, with the reason if they have rejected it.
    fn lacking(&self) -> Vec<String> {
        let lacking = self.deliveries.iter().filter_map(|one| match &one.refused {
            Some(reason) => Some(format!("{} (rejected: {reason})", one.node)),
            None => (!one.answered).then(|| one.node.clone()),
        });
        lacking.collect()
    }
}

impl Row for Receipt {
    const COLUMNS: &'static [Column] = &[
        Column::number("CHANGE").of("change"),
        Column::text("KIND").of("kind"),
        Column::text("NAME").of("name"),
        Column::number("AGE").of("age_seconds"),
        Column::text("HAVE IT"),
        Column::number("TOOK").of("took_ms"),
        Column::text("LACK IT"),
        Column::text("TAKEN BY").wide(),
        Column::text("REPLICA").of("replica").wide(),
    ];

    fn cells(&self) -> Vec<String> {
        let lacking = self.lacking();
        let taken = self.deliveries.iter().filter(|one| one.refused.is_none());
        let taken =
            taken.filter_map(|one| Some(format!("{} {:.0} ms", one.node, one.answered_ms?)));
        let taken: Vec<_> = taken.collect();
        vec![
            self.change.to_string(),
            self.kind.clone(),
            short(&self.name),
            format!("{} s", self.age_seconds),
            format!("{} of {}", self.has(), self.deliveries.len()),
            or_dash(self.took_ms.map(|ms| format!("{ms:.1} ms"))),
            or_dash((!lacking.is_empty()).then(|| lacking.join(", "))),
            or_dash((!taken.is_empty()).then(|| taken.join(", "))),
            self.replica.clone(),
        ]
    }
}

pub(crate) fn run(options: &Options) -> ExitCode {
    super::run(async {
        let mut receipts = Vec::new();
        let path = if options.all || options.change.is_some() {
            "/receipts?all"
        } else {
            "/receipts"
        };
        for controller in options.place.controllers().await? {
            let all: Vec<Receipt> = controller.admin.json(path).await?;
            let of_replica = all.into_iter().map(|receipt| Receipt {
                replica: controller.name.clone(),
                ..receipt
            });
            receipts.extend(of_replica.filter(|one| wanted(options, one)));
        }
        // The newest change comes first, regardless of the replica.
        receipts.sort_by_key(|receipt| receipt.age_seconds);
        table::show(&receipts, options.output, "no such change");
        Ok(())
    })
}

fn wanted(options: &Options, receipt: &Receipt) -> bool {
    let of_service = |service: &Service| service.is(&receipt.name);
    options.service.as_ref().is_none_or(of_service)
        && options.change.is_none_or(|change| receipt.change == change)
        && (!options.open || receipt.is_open())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lacks_a_change_is_named() {
        let text = r#"{"change": 7, "kind": "routes", "name": "web.shop.svc.cluster.local:80",
            "age_seconds": 3, "complete": false, "took_ms": 4.5, "deliveries": [
            {"node": "shop/a", "sent_ms": 1.0, "answered": true, "answered_ms": 4.5, "refused": null},
            {"node": "shop/b", "sent_ms": 1.0, "answered": false, "answered_ms": null, "refused": null},
            {"node": "shop/c", "sent_ms": 1.0, "answered": true, "answered_ms": 2.0, "refused": "no"}]}"#;
        let receipt: Receipt = serde_json::from_str(text).unwrap();
        assert!(receipt.is_open());
        let cells = receipt.cells();
        assert_eq!(cells[2], "web.shop:80");
        assert_eq!(cells[4], "1 of 3");
        assert_eq!(cells[6], "shop/b, shop/c (rejected: no)");
        assert_eq!(cells[7], "shop/a 4 ms");
    }
}
