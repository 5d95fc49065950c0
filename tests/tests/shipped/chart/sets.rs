//! Renders value sets that the chart accepts, and value sets that Helm refuses.

use nodepulse_tests::helm::Helm;
use serde_json::Value;

use super::applied::{Applied, stored};
use super::{complete, objects, yaml};

const ACCEPTED: &str = include_str!("../../../fixtures/chart/accepted.yaml");
const REFUSED: &str = include_str!("../../../fixtures/chart/refused.yaml");

#[tokio::test(start_paused = true)]
async fn an_api_server_accepts_each_object_of_each_accepted_set_and_of_its_upgrade() {
    let Some(helm) = Helm::find() else { return };
    let sets = yaml(ACCEPTED);
    let sets = sets.as_object().unwrap();
    assert!(sets.len() >= 30, "{}", sets.len());
    // All on one server: each set is an upgrade of the one before.
    let mut cluster = Applied::to_new_server().await;
    for (name, values) in sets {
        let values = complete(values);
        helm.lint(&values)
            .unwrap_or_else(|why| panic!("{name}: {why}"));
        let text = helm.template("nodepulse", &values);
        let all = objects(&text.unwrap_or_else(|why| panic!("{name}: {why}")));
        assert!(all.len() > 5, "{name}: {all:?}");
        for object in all {
            let applied = cluster.apply(&object).await;
            applied.unwrap_or_else(|why| panic!("{name}: {why}"));
            assert_eq!(stored(&cluster.server, &object), Some(object), "{name}");
        }
    }
}

#[test]
fn helm_refuses_each_wrong_value_with_its_key() {
    let Some(helm) = Helm::find() else { return };
    let sets = yaml(REFUSED);
    let sets = sets.as_array().unwrap();
    assert!(sets.len() >= 25, "{}", sets.len());
    for set in sets {
        let values = &set["values"];
        // An empty repository is a value too.
        let values = match values.pointer("/image/repository") {
            Some(Value::String(_)) => values.clone(),
            _ => complete(values),
        };
        let words = set["words"].as_str().unwrap();
        match helm.template("nodepulse", &values) {
            Ok(_) => panic!("{values}: accepted"),
            Err(why) => assert!(why.contains(words), "{values}: {why}"),
        }
    }
}
