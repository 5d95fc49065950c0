//! The source of a value: flag, environment, file, default.

use std::cell::RefCell;

use super::*;

#[test]
fn flags_override_the_environment_the_file_and_the_default() {
    let flag = || Some("1".to_owned());
    let env: &[(&str, &str)] = &[("NODEPULSE_MAX_PODS", "2")];
    let empty: &[(&str, &str)] = &[("NODEPULSE_MAX_PODS", "")];
    let rows = [
        (flag(), env, Some("maxPods: 3"), 1),
        (None, env, Some("maxPods: 3"), 2),
        (None, empty, Some("maxPods: 3"), 3),
        (None, &[], Some("maxPods: 3"), 3),
        (None, &[], Some("maxPods:"), 110),
        (None, &[], Some("maxPods: 0"), 110),
        (None, &[], None, 110),
    ];
    for (max_pods, env, file, expected) in rows {
        let given = Given {
            flags: overrides(|flags| flags.max_pods.clone_from(&max_pods)),
            env,
            file,
            hostname: "",
        };
        let config = given.load().unwrap();
        assert_eq!(
            config.allocation.max_pods, expected,
            "{max_pods:?} {env:?} {file:?}"
        );
    }
}

#[test]
fn the_node_name_has_the_first_source_that_sets_it() {
    #[rustfmt::skip]
    let rows: [(Option<&str>, Env<'_>, Option<&str>, &str); 6] = [
        (Some(" Flag "), &[("NODEPULSE_NODE_NAME", "variable"), ("NODE_NAME", "downward")],
            Some("nodeName: file"), "flag"),
        (None, &[("NODEPULSE_NODE_NAME", "variable"), ("NODE_NAME", "downward")], Some("nodeName: file"), "variable"),
        (None, &[("NODE_NAME", "downward")], Some("nodeName: file"), "downward"),
        (None, &[("NODE_NAME", "")], Some("nodeName: file"), "file"),
        (None, &[], None, "host.example.com"),
        (None, &[], Some(""), "host.example.com"),
    ];
    for (flag, env, file, expected) in rows {
        let given = Given {
            flags: overrides(|flags| flags.node_name = flag.map(str::to_owned)),
            env,
            file,
            hostname: " Host.Example.COM\n",
        };
        assert_eq!(given.load().unwrap().node_name, expected);
    }
}

#[test]
fn a_configured_file_must_exist() {
    #[rustfmt::skip]
    let rows: [(Option<&str>, Env<'_>, &str, bool); 4] = [
        (None, &[], "/etc/nodepulse/config.yaml", true),
        (None, &[("NODEPULSE_CONFIG", "")], "/etc/nodepulse/config.yaml", true),
        (None, &[("NODEPULSE_CONFIG", "/env.yaml")], "/env.yaml", false),
        (Some("/flag.yaml"), &[("NODEPULSE_CONFIG", "/env.yaml")], "/flag.yaml", false),
    ];
    for (flag, env, expected, may_be_missing) in rows {
        let asked = RefCell::new(PathBuf::new());
        let overrides = overrides(|flags| flags.config = flag.map(PathBuf::from));
        let env = |name: &str| {
            let found = env.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let read = |path: &Path| {
            asked.replace(path.to_owned());
            Err(io::ErrorKind::NotFound.into())
        };
        let loaded = Config::load(&overrides, &env, &read, "a");
        assert_eq!(*asked.borrow(), Path::new(expected));
        assert_eq!(loaded.is_ok(), may_be_missing, "{expected}");
    }
    let denied = |_: &Path| Err(io::ErrorKind::PermissionDenied.into());
    let loaded = Config::load(&Overrides::default(), &|_| None, &denied, "a");
    assert!(matches!(loaded, Err(ConfigError::Read { .. })));
}
