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
    let given = Given {
        env: &[
            ("NODEPULSE_CONDITIONS", "DiskStallPressure=true"),
            (
                "NODEPULSE_TAINTS",
                "MemoryLow=NoSchedule,PIDsLow=a.b/c=d:NoExecute",
            ),
        ],
        ..Given::default()
    };
    let config = given.load().unwrap();
    assert_eq!(config.conditions.len(), 7);
    let pids = &config.nodepulse_taints[&NodepulseCondition::PidsLow];
    let parts = (pids.key.as_str(), pids.value.as_str(), pids.effect.as_str());
    assert_eq!(parts, ("a.b/c", "d", "NoExecute"));
    assert_eq!(config.nodepulse_taints.len(), 2);
}
