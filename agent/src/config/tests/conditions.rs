//! nodepulse's conditions and their taints.

use super::*;

#[test]
fn conditions_are_enabled_and_without_taints_by_default() {
    let config = Given::default().load().unwrap();
    assert_eq!(config.conditions.len(), NodepulseCondition::ALL.len());
    assert!(config.nodepulse_taints.is_empty());

    let config = file(
        "conditions: {MemoryLow: true, PIDsLow: false}\n\
         taints:\n  \
           MemoryLow: NoExecute\n  \
           DiskIOPressure: {effect: PreferNoSchedule, key: example.com/slow, value: disk}\n  \
           DiskSpaceLow: {key: example.com/full}\n  \
           FrequentOOMKills: {value: oom}\n  \
           DiskStallPressure: {}\n",
    );
    assert_eq!(config.conditions.len(), NodepulseCondition::ALL.len() - 1);
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
            ("NODEPULSE_CONDITIONS", "DiskStallPressure=false"),
            (
                "NODEPULSE_TAINTS",
                "MemoryLow=NoSchedule,PIDsLow=a.b/c=d:NoExecute",
            ),
        ],
        ..Given::default()
    };
    let config = given.load().unwrap();
    assert_eq!(config.conditions.len(), NodepulseCondition::ALL.len() - 1);
    let pids = &config.nodepulse_taints[&NodepulseCondition::PidsLow];
    let parts = (pids.key.as_str(), pids.value.as_str(), pids.effect.as_str());
    assert_eq!(parts, ("a.b/c", "d", "NoExecute"));
    assert_eq!(config.nodepulse_taints.len(), 2);
}
