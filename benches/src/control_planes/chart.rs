//! A control plane's own chart: its objects in the cluster, and the programs of its Deployments.
//!
//! Everything of the chart is applied as it is, except that Deployments have no replicas, and Services no selector: the
//! containers run as processes in the network of the API server, and Services lead there. So all control planes run in
//! the same way, with the arguments that their authors chose, and no image is needed.

use std::path::Path;
use std::process::Command;

use maglor_testkit::cluster::Kubectl;
use serde_json::{Deserializer, Value, json};

use super::network::HOST;
use crate::error::{Doing, Error, Result};

/// The version for which charts are rendered: that of the cluster or later than the charts require.
const KUBERNETES: &str = "1.34.4";
/// Objects that would start pods, or restrict the network of pods that do not exist.
const LEFT_OUT: [&str; 4] = ["CronJob", "Job", "NetworkPolicy", "PodDisruptionBudget"];

/// The objects of a rendered chart.
#[derive(Debug)]
pub(super) struct Chart {
    objects: Vec<Value>,
}

/// A container of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(String, String)>,
}

impl Container {
    /// Reads a container of a pod. Variables that name fields of the pod have their values; those that name limits of resources
    /// are left out, since no limits apply.
    pub(super) fn read(container: &Value, pod: &Value) -> Self {
        let listed = |key: &str| container[key].as_array().into_iter().flatten();
        let variable = |entry: &Value| {
            let field = &entry["valueFrom"]["fieldRef"]["fieldPath"];
            let field = field.as_str().map(|path| path.replace('.', "/"));
            let field = field.and_then(|path| pod.pointer(&format!("/{path}")));
            let value = entry.get("value").or(field)?.as_str()?;
            Some((entry["name"].as_str()?.to_owned(), value.to_owned()))
        };
        let environment: Vec<_> = listed("env").filter_map(variable).collect();
        let arguments = listed("args").filter_map(Value::as_str).map(|argument| {
            let variables = environment.iter();
            variables.fold(argument.to_owned(), |text, (name, value)| {
                text.replace(&format!("$({name})"), value)
            })
        });
        Self {
            name: container["name"].as_str().unwrap_or_default().to_owned(),
            arguments: arguments.collect(),
            environment,
        }
    }
}

/// Renders a chart as YAML.
pub(super) fn render(
    folder: &Path,
    release: &str,
    namespace: &str,
    values: &[String],
) -> Result<String> {
    let helm = maglor_testkit::cluster::helm(true)?;
    let output = Command::new(helm)
        .args(["template", release, "--namespace", namespace, "--no-hooks"])
        .args(["--kube-version", KUBERNETES])
        .args(values)
        .arg(folder)
        .output()
        .doing("start helm")?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(Error::Command {
            command: format!("helm template {release} {}", folder.display()),
            detail: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        }),
    }
}

impl Chart {
    /// Parses rendered YAML; the definitions of its resources are in the cluster.
    pub(super) fn read(kubectl: &Kubectl, yaml: &str) -> Result<Self> {
        let convert = [
            "create",
            "--dry-run=client",
            "--validate=false",
            "--output=json",
            "--filename=-",
        ];
        let text = kubectl.with_input(&convert, yaml)?;
        Self::parse(&text)
    }

    fn parse(json: &str) -> Result<Self> {
        let objects = Deserializer::from_str(json).into_iter::<Value>();
        let objects: std::result::Result<Vec<_>, _> = objects.collect();
        let objects = objects.map_err(|error| Error::parse("a chart", error.to_string()))?;
        Ok(Self { objects })
    }

    /// Applies the objects, and directs Services to the programs: `ports` are those of the host, by Service and port.
    pub(super) fn apply(
        &self,
        kubectl: &Kubectl,
        namespace: &str,
        ports: &[(&str, &str, u16)],
    ) -> Result<()> {
        let mut items = vec![json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace},
        })];
        let kept = self.objects.iter().filter(|object| {
            let kind = object["kind"].as_str().unwrap_or_default();
            !LEFT_OUT.contains(&kind)
        });
        items.extend(kept.cloned().map(without_pods));
        items.extend(
            ports
                .iter()
                .map(|(service, port, number)| slice(namespace, service, port, *number)),
        );
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        kubectl.apply(&list.to_string()).map_err(Error::from)
    }

    /// Returns a container of a Deployment, in a pod with the name of the Deployment.
    pub(super) fn container(
        &self,
        namespace: &str,
        deployment: &str,
        container: &str,
    ) -> Result<Container> {
        let named = |object: &&Value, name: &str| object["name"] == name;
        let mut objects = self.objects.iter();
        let found = objects.find(|object| {
            object["kind"] == "Deployment" && named(&&object["metadata"], deployment)
        });
        let spec = found.map(|found| &found["spec"]["template"]["spec"]);
        let mut containers = spec
            .and_then(|spec| spec["containers"].as_array())
            .into_iter()
            .flatten();
        let found = containers.find(|one| named(one, container));
        let Some((spec, found)) = spec.zip(found) else {
            let name = format!("{deployment}: {container}");
            return Err(Error::parse("a chart", format!("no container {name}")));
        };
        let metadata = json!({"name": deployment, "namespace": namespace});
        let pod = json!({"metadata": metadata, "spec": spec});
        Ok(Container::read(found, &pod))
    }

    /// Returns a value of a `ConfigMap`.
    pub(super) fn config(&self, name: &str, key: &str) -> Result<&str> {
        let mut maps = self.objects.iter();
        let map = maps.find(|one| one["kind"] == "ConfigMap" && one["metadata"]["name"] == name);
        let value = map.and_then(|map| map["data"][key].as_str());
        value.ok_or_else(|| Error::parse("a chart", format!("no ConfigMap {name} with {key}")))
    }
}

/// Returns a decoded value of a Secret in the cluster.
pub(super) fn secret(kubectl: &Kubectl, namespace: &str, name: &str, key: &str) -> Result<String> {
    let template = format!(r#"--output=go-template={{{{index .data "{key}" | base64decode}}}}"#);
    let get = ["get", "secret", name, "--namespace", namespace, &template];
    kubectl.run(&get).map_err(Error::from)
}

/// Returns the object without what would start pods or select them.
fn without_pods(mut object: Value) -> Value {
    match object["kind"].as_str() {
        Some("Deployment") => object["spec"]["replicas"] = json!(0),
        Some("Service") => {
            let spec = object["spec"].as_object_mut();
            spec.map(|spec| spec.remove("selector"));
        }
        _ => {}
    }
    object
}

/// Returns the endpoint of a Service's port on the host.
fn slice(namespace: &str, service: &str, port: &str, number: u16) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{service}-{port}"),
            "namespace": namespace,
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [HOST], "conditions": {"ready": true}}],
        "ports": [{"name": port, "port": number, "protocol": "TCP"}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RENDERED: &str = r#"
        {"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 2, "template": {"spec": {"containers": [
            {"name": "sidecar"}, {"name": "c", "args": ["run", "--name=$(POD)"], "env": [
                {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "LIMIT", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                {"name": "MODE", "value": "fast"}]}]}}}}
        {"kind": "Service", "metadata": {"name": "s"}, "spec": {"selector": {"a": "b"}, "ports": []}}
        {"kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"values": "x"}}"#;

    #[test]
    fn a_container_has_the_arguments_of_the_chart() {
        let chart = Chart::parse(RENDERED).unwrap();
        let container = chart.container("n", "d", "c").unwrap();
        assert_eq!(container.arguments, ["run", "--name=d"]);
        let environment = [("POD", "d"), ("MODE", "fast")];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(container.environment, environment);
        let error = chart.container("n", "d", "other").unwrap_err();
        assert!(error.to_string().contains("d: other"), "{error}");
        assert_eq!(chart.config("m", "values").unwrap(), "x");
        assert!(chart.config("m", "none").is_err());
    }

    #[test]
    fn no_pod_is_started_or_selected() {
        let chart = Chart::parse(RENDERED).unwrap();
        let applied: Vec<_> = chart.objects.into_iter().map(without_pods).collect();
        assert_eq!(applied[0]["spec"]["replicas"], 0);
        assert!(applied[1]["spec"].get("selector").is_none());
    }
}
