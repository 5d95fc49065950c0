//! Errors: one line with the key, the value and an example.

use super::*;

#[test]
fn bad_input_is_an_error_with_key_value_and_example() {
    for (text, expected) in table::BAD {
        check_refused(text, load_file(text), expected);
    }
}

#[test]
fn a_file_with_another_head_is_refused() {
    #[rustfmt::skip]
    let rows: &[(&str, &[&str])] = &[
        ("", &["apiVersion", "nodepulse.dev/v1alpha1"]),
        ("kind: NodepulseConfiguration", &["apiVersion", r#""""#]),
        ("apiVersion: nodepulse.dev/v2\nkind: NodepulseConfiguration", &["apiVersion", r#""nodepulse.dev/v2""#]),
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
    type Row = (fn(&mut Overrides), &'static [&'static str]);

    #[rustfmt::skip]
    let rows: [Row; 4] = [
        (|flags| flags.eviction_hard = text("memory.available>1Gi"), &["--eviction-hard", "memory.available>1Gi"]),
        (|flags| flags.node_labels = text("a=1,a=2"), &["--node-labels", "twice"]),
        (|flags| flags.serve_address = text("on"), &["--serve-address", r#""on""#, "127.0.0.1:20260"]),
        (|flags| flags.system_reserved = text("cpu=much"), &["--system-reserved (cpu)", r#""much""#, "cpu: 500m"]),
    ];
    for (set, expected) in rows {
        check_refused(expected[0], load_flags(overrides(set)), expected);
    }
    #[rustfmt::skip]
    let rows: [(Env<'_>, &[&str]); 2] = [
        (&[("NODEPULSE_MAX_PODS", "many\nlines")], &["NODEPULSE_MAX_PODS", r"many\nlines", "maxPods: 110"]),
        (&[("NODEPULSE_OOM_EARLY_WARNING", "false")], &["NODEPULSE_OOM_EARLY_WARNING was removed"]),
    ];
    for (env, expected) in rows {
        check_refused(expected[0], load_env(env), expected);
    }
    let given = Given {
        hostname: "  ",
        ..Given::default()
    };
    check_refused("no host name", given.load(), &["host name", "nodeName"]);
}
