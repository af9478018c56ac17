//! Dashboards in the format of Grafana.

use serde_json::{Value, json};

use crate::description::{Dashboard, Panel, Variable};

/// Width of the grid.
const WIDTH: usize = 24;

/// Returns a dashboard as Grafana imports it.
pub(crate) fn dashboard(of: &Dashboard) -> Value {
    let source = json!({
        "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
    });
    let variables = of.variables.iter().map(variable);
    let variables: Vec<_> = [source].into_iter().chain(variables).collect();
    json!({
        "uid": format!("maglor-{}", of.name),
        "title": of.title,
        "description": of.about,
        "tags": ["maglor"],
        "schemaVersion": 39,
        "editable": true,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables},
        "links": [{
            "title": "Maglor", "type": "dashboards", "tags": ["maglor"], "asDropdown": true, "includeVars": true,
            "keepTime": true,
        }],
        "panels": panels(&of.panels),
    })
}

fn variable(of: &Variable) -> Value {
    let query = format!("label_values({}, {})", of.metric, of.label);
    json!({
        "name": of.name,
        "type": "query",
        "datasource": source(),
        "query": {"query": query, "refId": of.name},
        "refresh": 2,
        "sort": 1,
        "multi": true,
        "includeAll": true,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    })
}

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

/// Places panels from left to right: four numbers or two charts a row.
fn panels(all: &[Panel]) -> Vec<Value> {
    let (mut x, mut y, mut row) = (0, 0, 0);
    let mut placed = Vec::new();
    for (id, panel) in (1..).zip(all) {
        let (width, height) = if panel.is_number { (6, 4) } else { (12, 8) };
        if x + width > WIDTH {
            (x, y, row) = (0, y + row, 0);
        }
        let mut one = self::panel(panel);
        one["id"] = json!(id);
        one["gridPos"] = json!({"x": x, "y": y, "w": width, "h": height});
        placed.push(one);
        x += width;
        row = row.max(height);
    }
    placed
}

fn panel(of: &Panel) -> Value {
    let kind = if of.is_number { "stat" } else { "timeseries" };
    json!({
        "type": kind,
        "title": of.title,
        "description": of.about,
        "datasource": source(),
        "fieldConfig": {"defaults": {"unit": of.unit, "min": 0}, "overrides": []},
        "targets": [{
            "refId": "A",
            "datasource": source(),
            "expr": of.query,
            "legendFormat": "__auto",
            "instant": of.is_number,
            // Charts can show the traces of slow requests, if Prometheus stores exemplars.
            "exemplar": of.query.contains("_bucket"),
        }],
    })
}
