use std::fs;
use std::path::Path;

use serde_json::json;

use super::*;

#[test]
fn every_golden_patch_gives_what_kubectl_gives() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/golden/strategic-merge");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .collect();
    paths.sort();
    assert!(paths.len() >= 30, "{} golden cases", paths.len());
    for path in paths {
        let case: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let kind = case["original"]["kind"].as_str().unwrap();
        let why = format!("{}: {}", path.display(), case["why"]);
        match strategic(kind, &case["original"], &case["patch"]) {
            Ok(merged) => assert_eq!(merged, case["result"], "{why}"),
            Err(message) => {
                let message = format!("error: {}", message.trim_end());
                assert_eq!(message, case["error"].as_str().unwrap_or_default(), "{why}");
            }
        }
    }
}

#[test]
fn a_merge_patch_merges_maps_deletes_nulls_and_replaces_the_rest() {
    // From RFC 7386, appendix A.
    for (original, patch, expected) in [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (
            json!({"a": "b", "b": "c"}),
            json!({"a": null}),
            json!({"b": "c"}),
        ),
        (
            json!({"a": [{"b": "c"}]}),
            json!({"a": [1]}),
            json!({"a": [1]}),
        ),
        (
            json!({"a": {"b": "c"}}),
            json!({"a": {"b": "d", "c": null}}),
            json!({"a": {"b": "d"}}),
        ),
        (
            json!({"e": null}),
            json!({"a": 1}),
            json!({"e": null, "a": 1}),
        ),
        (
            json!([1, 2]),
            json!({"a": "b", "c": null}),
            json!({"a": "b"}),
        ),
        (
            json!({}),
            json!({"a": {"bb": {"ccc": null}}}),
            json!({"a": {"bb": {}}}),
        ),
    ] {
        let mut target = original.clone();
        merge_patch(&mut target, &patch);
        assert_eq!(target, expected, "{original} with {patch}");
    }
}

#[test]
fn decoding_loses_directives_and_nulls() {
    let mut value =
        json!({"status": {"$setElementOrder/conditions": [], "phase": null, "a": [{"b": null}]}});
    typed(&mut value);
    assert_eq!(value, json!({"status": {"a": [{}]}}));
}
