//! Translates the `tracing` of a `Telemetry` (`telemetry.istio.io`): how many traces pods record, and with which
//! attributes.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::istio::block::Block;
use crate::istio::finding::{Effect, Read, Report};
use crate::istio::peer_authentication::selector;

/// A translated `Telemetry`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Telemetry {
    /// The labels of the selected pods; `None` = all pods of the resource's namespace, or of the mesh.
    pub selector: Option<BTreeMap<String, String>>,
    /// Percentage of recorded traces, 0-100; `None` = inherited from a wider level.
    pub percent: Option<f64>,
    /// Whether the pods export no spans; `None` = inherited from a wider level.
    pub disabled: Option<bool>,
    /// Attributes of the pods' spans, in addition to inherited ones.
    pub attributes: BTreeMap<String, String>,
}

impl Telemetry {
    /// Translates a `spec`.
    #[must_use]
    pub fn read(spec: &Value) -> Read<Self> {
        let report = Report::default();
        let block = Block::new(spec, "spec".to_owned(), &report);
        let mut telemetry = Self {
            selector: selector(&block),
            ..Self::default()
        };
        for field in ["targetRef", "targetRefs"] {
            let why =
                "select pods by `selector`; otherwise this would apply to the whole namespace";
            block.without(field, Effect::Refused, why);
        }
        block.without(
            "metrics",
            Effect::Ignored,
            "each proxy serves its metrics at /metrics without configuration",
        );
        block.without(
            "accessLogging",
            Effect::Ignored,
            "the access log of proxies is not set by resources",
        );
        let mut is_read = false;
        for tracing in block.blocks("tracing") {
            let both_sides = telemetry.is_for_both_sides(&tracing);
            match (both_sides, is_read) {
                (true, false) => {
                    telemetry.tracing(&tracing);
                    is_read = true;
                }
                (true, true) => report.add(
                    Effect::Ignored,
                    tracing.path.clone(),
                    "only the first entry has an effect; merge them",
                ),
                (false, _) => {}
            }
        }
        if telemetry.sets_nothing() {
            block.refuse(
                "tracing",
                "sets nothing that has an effect; write `randomSamplingPercentage`, `disableSpanReporting` or `customTags` with `literal`",
            );
        }
        block.end(Effect::Ignored);
        drop(block);
        report.read(Some(telemetry))
    }

    fn sets_nothing(&self) -> bool {
        self.percent.is_none() && self.disabled.is_none() && self.attributes.is_empty()
    }

    /// Returns whether an entry applies to requests in both directions, and reports it otherwise.
    fn is_for_both_sides(&self, tracing: &Block<'_>) -> bool {
        let Some(side) = tracing.block("match") else {
            return true;
        };
        let mode = side.text("mode");
        side.end(Effect::Refused);
        match mode {
            None | Some("CLIENT_AND_SERVER") => true,
            Some(mode @ ("CLIENT" | "SERVER")) => {
                let what = format!(
                    "`{mode}`: the entry has no effect; write `CLIENT_AND_SERVER`, since spans of both sides are exported together"
                );
                side.ignore("mode", what);
                false
            }
            Some(other) => {
                side.refuse(
                    "mode",
                    format!("`{other}` is not known; write `CLIENT_AND_SERVER`"),
                );
                false
            }
        }
    }

    fn tracing(&mut self, block: &Block<'_>) {
        self.percent = block.float("randomSamplingPercentage");
        if self
            .percent
            .is_some_and(|percent| !(0.0..=100.0).contains(&percent))
        {
            block.refuse("randomSamplingPercentage", "must be from 0 to 100");
        }
        self.disabled = block.flag("disableSpanReporting");
        for provider in block.blocks("providers") {
            let name = provider.text("name").unwrap_or_default();
            let what = format!("`{name}`: spans are sent to `tracing.collector` of the MeshConfig");
            provider.ignore("name", what);
            provider.end(Effect::Ignored);
        }
        for (name, tag) in block.named_blocks("customTags") {
            self.tag(name, &tag);
        }
        block.without(
            "useRequestIdForTraceSampling",
            Effect::Ignored,
            "traces are sampled by their identifier",
        );
        block.end(Effect::Ignored);
    }

    fn tag(&mut self, name: &str, tag: &Block<'_>) {
        if let Some(literal) = tag.block("literal") {
            let value = literal.text("value").unwrap_or_default();
            self.attributes.insert(name.to_owned(), value.to_owned());
            literal.end(Effect::Ignored);
        }
        for source in ["environment", "formatter", "header"] {
            let why = "only `literal` is supported; what the proxy records of a request is in docs/tracing.md";
            tag.without(source, Effect::Ignored, why);
        }
        tag.end(Effect::Ignored);
    }
}
