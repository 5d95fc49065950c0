//! Tests the chart, rendered by Helm.

use nodepulse_tests::helm::Helm;
use serde_json::{Value, json};

mod applied;
mod documented;
mod effects;
mod fields;
mod names;
mod sets;

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// Adds a repository if the values have none.
fn complete(values: &Value) -> Value {
    let mut values = values.clone();
    if values["image"]["repository"].is_null() {
        values["image"]["repository"] = json!("r.example/nodepulse");
    }
    values
}

fn objects(text: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    all.into_iter().filter(|object| !object.is_null()).collect()
}

/// Renders every object of a release in the namespace `agents`.
fn release(helm: &Helm, name: &str, values: &Value) -> Vec<Value> {
    let rendered = helm.template(name, &complete(values));
    objects(&rendered.unwrap_or_else(|why| panic!("{values}: {why}")))
}

fn render(helm: &Helm, values: &Value) -> Vec<Value> {
    release(helm, "nodepulse", values)
}

fn of<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let mut found = objects.iter().filter(|object| object["kind"] == kind);
    found.next().unwrap_or_else(|| panic!("no {kind}"))
}

fn agent_pod(objects: &[Value]) -> &Value {
    &of(objects, "DaemonSet")["spec"]["template"]["spec"]
}
