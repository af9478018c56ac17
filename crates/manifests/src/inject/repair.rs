//! Adapts an injected pod to later changes by other webhooks.
//!
//! If webhooks after ours have changed a pod, the API server calls ours again (`reinvocationPolicy: IfNeeded`). Their
//! additions are not adapted to the sidecar: probes that would be rejected where mutual TLS is strict, containers that
//! start before connections are redirected, applications without proxy variables. All this is corrected here. The
//! sidecar itself is not changed: another registry or other limits were set intentionally.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::inject::annotations::{self, Namespace};
use crate::inject::container::{self, CACHE_VOLUME, IDENTITY_VOLUME};
use crate::inject::outcome::{Injected, Refusal};
use crate::inject::pod_spec::{add_variables, check, list, object};
use crate::inject::probe;
use crate::inject::settings::{Form, NAMESPACE, Redirect, Settings, TRUST_DOMAIN};
use crate::inject::{INIT, INJECTED, PROXY};

/// The fields of a spec that contain lists of containers.
const LISTS: [&str; 2] = ["initContainers", "containers"];

/// Returns the form in which the sidecar was injected, and how connections are redirected; `None` if it was not
/// injected by us.
fn injected(pod: &Value) -> Option<(Form, Redirect)> {
    let has = |list: &str, name: &str| {
        let list = pod["spec"][list].as_array();
        list.into_iter().flatten().any(|one| one["name"] == name)
    };
    let form = match (has("initContainers", PROXY), has("containers", PROXY)) {
        (true, false) => Form::Native,
        (false, true) => Form::Container,
        _ => return None,
    };
    match pod["metadata"]["annotations"][INJECTED].as_str() {
        Some("true") if has("initContainers", INIT) => Some((form, Redirect::Nftables)),
        Some("outbound") => Some((form, Redirect::None)),
        _ => None,
    }
}

/// Adapts later changes by other webhooks; returns `None` if there is nothing to change.
pub(crate) fn repair(
    pod: &Value,
    namespace: &Namespace,
    settings: &Settings,
    said: &BTreeMap<String, String>,
) -> Result<Option<Injected>, Refusal> {
    let Some((form, redirect)) = injected(pod) else {
        return Ok(None);
    };
    let spec = &pod["spec"];
    check(spec, |list, name| {
        let place = match form {
            Form::Container => "containers",
            Form::Auto | Form::Native => "initContainers",
        };
        (name == PROXY && list == place) || (name == INIT && list == "initContainers")
    })?;
    let mut settings = annotations::apply(settings, &namespace.annotations, said)?;
    settings.complete(NAMESPACE, TRUST_DOMAIN);
    (settings.form, settings.redirect) = (form, redirect);
    let mut notes = Vec::new();
    let mut repaired = pod.clone();
    let whole = object(Some(&mut repaired), "")?;
    let spec = object(whole.get_mut("spec"), "spec")?;
    let probes = rewrite(spec, &settings, &mut notes)?;
    order(spec, form)?;
    ask(spec, form, &probes)?;
    complete(spec)?;
    Ok((repaired != *pod).then_some(Injected {
        pod: repaired,
        notes,
    }))
}

/// Sets the environment of the containers and redirects their probes, as in an injection; returns the new probes.
fn rewrite(
    spec: &mut Map<String, Value>,
    settings: &Settings,
    notes: &mut Vec<String>,
) -> Result<Vec<String>, Refusal> {
    let mut probes = Vec::new();
    for field in LISTS
        .into_iter()
        .filter(|field| spec.contains_key(*field))
        .collect::<Vec<_>>()
    {
        for (at, one) in list(spec, field)?.iter_mut().enumerate() {
            if [PROXY, INIT].iter().any(|own| one["name"] == *own) {
                continue;
            }
            let path = format!("spec.{field}[{at}]");
            let one = object(Some(one), &path)?;
            match container::environment(settings) {
                None => probes.extend(probe::rewrite(one, settings, notes)),
                Some(variables) => add_variables(one, variables, &path)?,
            }
        }
    }
    Ok(probes)
}

/// Orders the containers: ours come before all that make or receive calls. If the sidecar is a plain container, the
/// init container for the redirection comes after all other init containers.
fn order(spec: &mut Map<String, Value>, form: Form) -> Result<(), Refusal> {
    let is = |name: &'static str| move |one: &Value| one["name"] == name;
    match form {
        Form::Container => {
            to_front(list(spec, "containers")?, is(PROXY));
            if spec.contains_key("initContainers") {
                let init = list(spec, "initContainers")?;
                let own = init.iter().position(is(INIT)).map(|at| init.remove(at));
                init.extend(own);
            }
        }
        Form::Auto | Form::Native => {
            let init = list(spec, "initContainers")?;
            to_front(init, is(PROXY));
            to_front(init, is(INIT));
        }
    }
    Ok(())
}

fn to_front(list: &mut Vec<Value>, is_it: impl Fn(&Value) -> bool) {
    if let Some(at) = list.iter().position(is_it) {
        let one = list.remove(at);
        list.insert(0, one);
    }
}

/// Updates the probes that the sidecar forwards: adds new ones, and removes those that the pod no longer has.
fn ask(spec: &mut Map<String, Value>, form: Form, new: &[String]) -> Result<(), Refusal> {
    let asked = asked(spec);
    let field = match form {
        Form::Container => "containers",
        Form::Auto | Form::Native => "initContainers",
    };
    let own = list(spec, field)?
        .iter_mut()
        .find(|one| one["name"] == PROXY);
    let arguments = own
        .and_then(|own| own.get_mut("args"))
        .and_then(Value::as_array_mut);
    let Some(arguments) = arguments else {
        return Ok(());
    };
    let replaced = |question: &str| new.iter().any(|one| question_of(one) == Some(question));
    arguments.retain(|argument| {
        let probe = argument
            .as_str()
            .and_then(|text| text.strip_prefix("--probe="));
        let question = probe.and_then(question_of);
        question
            .is_none_or(|question| !replaced(question) && asked.iter().any(|one| one == question))
    });
    arguments.extend(new.iter().map(|probe| json!(format!("--probe={probe}"))));
    Ok(())
}

/// Returns the part `CONTAINER/KIND` of `CONTAINER/KIND=TARGET`.
fn question_of(probe: &str) -> Option<&str> {
    probe.split_once('=').map(|(question, _)| question)
}

/// Returns the probes that the sidecar forwards, each as `CONTAINER/KIND`.
fn asked(spec: &Map<String, Value>) -> Vec<String> {
    let lists = LISTS
        .into_iter()
        .filter_map(|list| spec.get(list)?.as_array());
    lists.flatten().flat_map(probe::rewritten).collect()
}

/// Adds the volumes of the sidecar that are missing.
fn complete(spec: &mut Map<String, Value>) -> Result<(), Refusal> {
    let volumes = list(spec, "volumes")?;
    for (name, volume) in [IDENTITY_VOLUME, CACHE_VOLUME]
        .into_iter()
        .zip(container::volumes())
    {
        if !volumes.iter().any(|one| one["name"] == name) {
            volumes.push(volume);
        }
    }
    Ok(())
}
