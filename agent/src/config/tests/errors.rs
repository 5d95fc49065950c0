//! Errors: one line with the key, the value and an example.

use super::*;

#[test]
fn bad_input_is_an_error_with_key_value_and_example() {
    for (text, expected) in table::BAD {
        let given = Given {
            file: Some(text),
            ..Given::default()
        };
        check_refused(text, given.load(), expected);
    }
}

#[test]
fn a_file_with_another_head_is_refused() {
    #[rustfmt::skip]
    let rows: &[(&str, &[&str])] = &[
        ("", &["apiVersion", "nodepulse.dev/v1alpha1"]),
        ("kind: NodepulseConfiguration", &["apiVersion", r#""""#]),
        ("apiVersion: nodepulse.dev/v2\nkind: NodepulseConfiguration",
            &["apiVersion", r#""nodepulse.dev/v2""#]),
        ("apiVersion: nodepulse.dev/v1alpha1\nkind: KubeletConfiguration",
            &["kind", r#""KubeletConfiguration""#, "kind: NodepulseConfiguration"]),
        ("- a", &["line 1"]),
    ];
    for (text, expected) in rows {
        let loaded = Given::default().load_text(Some(text));
        check_refused(text, loaded, expected);
    }
}

#[test]
fn an_error_names_the_flag_or_variable() {
    let text = |text: &str| Some(text.to_owned());
    let flag = Overrides {
        eviction_hard: text("memory.available>1Gi"),
        ..Overrides::default()
    };
    let expected = ["--eviction-hard", "memory.available>1Gi"];
    check_refused("a flag", flags(flag), &expected);

    let twice = Overrides {
        node_labels: text("a=1,a=2"),
        ..Overrides::default()
    };
    check_refused("twice", flags(twice), &["--node-labels", "twice"]);

    let address = Overrides {
        serve_address: text("on"),
        ..Overrides::default()
    };
    let expected = ["--serve-address", r#""on""#, "127.0.0.1:20260"];
    check_refused("an address", flags(address), &expected);

    let part = Overrides {
        system_reserved: text("cpu=much"),
        ..Overrides::default()
    };
    let expected = ["--system-reserved (cpu)", r#""much""#, "cpu: 500m"];
    check_refused("a part of a flag", flags(part), &expected);

    let given = Given {
        env: &[("NODEPULSE_MAX_PODS", "many\nlines")],
        ..Given::default()
    };
    let expected = ["NODEPULSE_MAX_PODS", r"many\nlines", "maxPods: 110"];
    check_refused("a variable", given.load(), &expected);
    let given = Given {
        env: &[("NODEPULSE_OOM_EARLY_WARNING", "false")],
        ..Given::default()
    };
    let expected = ["NODEPULSE_OOM_EARLY_WARNING was removed"];
    check_refused("a removed variable", given.load(), &expected);

    let given = Given {
        hostname: "  ",
        ..Given::default()
    };
    check_refused("no host name", given.load(), &["host name", "nodeName"]);
}
