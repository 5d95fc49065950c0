//! nodepulse's conditions and their taints.

use super::*;

#[test]
fn some_conditions_are_on_by_default_and_none_has_a_taint() {
    let config = Given::default().load().unwrap();
    let types = config.conditions.iter().map(|condition| condition.type_());
    let expected = [
        "MemoryLow",
        "PIDsLow",
        "DiskSpaceLow",
        "DiskIOPressure",
        "DiskFailing",
        "MemoryStallPressure",
    ];
    assert_eq!(types.collect::<Vec<_>>(), expected);
    assert!(config.nodepulse_taints.is_empty());

    let config = file(
        "conditions: {MemoryLow: true, PIDsLow: false, FrequentOOMKills: true, DiskStallPressure: true}\n\
         taints:\n  \
           MemoryLow: NoExecute\n  \
           DiskIOPressure: {effect: PreferNoSchedule, key: example.com/slow, value: disk}\n  \
           DiskSpaceLow: {key: example.com/full}\n  \
           FrequentOOMKills: {value: oom}\n  \
           DiskStallPressure: {}\n",
    );
    assert_eq!(config.conditions.len(), expected.len() + 1);
    assert!(!config.conditions.contains(&NodepulseCondition::PidsLow));
    let taints: Vec<_> = config
        .nodepulse_taints
        .iter()
        .map(|(condition, t)| format!("{} {}={}:{}", condition.type_(), t.key, t.value, t.effect))
        .collect();
    let expected = [
        "MemoryLow nodepulse.dev/memory-low=:NoExecute",
        "DiskSpaceLow example.com/full=:NoSchedule",
        "DiskIOPressure example.com/slow=disk:PreferNoSchedule",
        "FrequentOOMKills nodepulse.dev/frequent-oom-kills=oom:NoSchedule",
        "DiskStallPressure nodepulse.dev/disk-stall-pressure=:NoSchedule",
    ];
    assert_eq!(taints, expected);
}

#[test]
fn the_environment_configures_conditions_and_taints() {
    let taints = "PIDsLow=NoSchedule,MemoryLow=a.b/c=d:NoExecute";
    let conditions = "DiskStallPressure=true";
    let env: Env<'_> = &[
        ("NODEPULSE_CONDITIONS", conditions),
        ("NODEPULSE_TAINTS", taints),
    ];
    let config = load_env(env).unwrap();
    assert_eq!(config.conditions.len(), 7);
    let memory = &config.nodepulse_taints[&NodepulseCondition::MemoryLow];
    let parts = [&memory.key, &memory.value, &memory.effect].map(String::as_str);
    assert_eq!(parts, ["a.b/c", "d", "NoExecute"]);
    assert_eq!(config.nodepulse_taints.len(), 2);
}

#[test]
fn only_conditions_that_end_if_pods_leave_may_evict_them() {
    for condition in NodepulseCondition::ALL {
        let taint = format!("{}=NoExecute", condition.type_());
        let on = format!("{}=true", condition.type_());
        let env: Env<'_> = &[("NODEPULSE_CONDITIONS", &on), ("NODEPULSE_TAINTS", &taint)];
        let loaded = load_env(env);
        let is_permitted = matches!(
            condition,
            NodepulseCondition::MemoryLow | NodepulseCondition::DiskFailing
        );
        assert_eq!(loaded.is_ok(), is_permitted, "{taint}: {loaded:?}");
        let Err(err) = loaded else { continue };
        let err = err.to_string();
        let parts = [
            condition.type_(),
            "evicts pods",
            "only MemoryLow and DiskFailing",
            "use NoSchedule",
            "example: taints: {MemoryLow: NoExecute, ",
        ];
        for part in parts {
            assert!(err.contains(part), "{part:?} is not in: {err}");
        }
    }
}
