//! One agent on a day on which everything around it misbehaves at random, for ten hours of
//! simulated time. `hostile_machine` does the same for minutes of real time, with real files and
//! kills.
//!
//! What must be true in the end: every kill that the kernel counted was reported, the Lease was
//! never late while the server answered, requests stayed under a ceiling, and nothing grew.

use std::time::Duration;

use nodepulse_tests::hostile::busiest;
use nodepulse_tests::hostile::day::HostileDay;
use nodepulse_tests::node::pass;

const DAY: Duration = Duration::from_hours(10);
/// Long enough for the end of transition periods, suppressed Events, and their retries.
const AFTERWARDS: Duration = Duration::from_mins(40);
/// The most requests in any second, and on average in any minute.
const CEILING: [(Duration, usize); 2] = [
    (Duration::from_secs(1), 40),
    (Duration::from_mins(1), 60 * 6),
];

/// `NODEPULSE_HOSTILE_SEED`: another seed is another day.
fn seed() -> u64 {
    let seed = std::env::var_os("NODEPULSE_HOSTILE_SEED").and_then(|seed| seed.into_string().ok());
    let seed = seed.map_or(20, |seed| seed.parse().expect("a number"));
    println!("NODEPULSE_HOSTILE_SEED={seed}");
    seed
}

#[tokio::test(start_paused = true)]
async fn after_ten_hours_of_faults_every_kill_was_reported_and_all_is_as_before() {
    let mut day = HostileDay::new(seed(), |node| node);
    day.stage.view().settled(Duration::from_mins(1)).await;
    day.play(DAY).await;
    pass(AFTERWARDS).await;

    let HostileDay {
        stage,
        pods,
        spells,
        ..
    } = day;
    let view = stage.view();
    assert_eq!(pods.reported(&stage), pods.killed);
    assert_eq!(spells.late(&view.renewals(), stage.api.now()), [""; 0]);
    let requests = stage.api.requests();
    for (window, ceiling) in CEILING {
        let most = busiest(&requests, window);
        assert!(most <= ceiling, "{most} requests within {window:?}");
    }
    for (type_, status) in [
        ("Ready", "True"),
        ("MemoryPressure", "False"),
        ("PIDPressure", "False"),
        ("DiskPressure", "False"),
        ("DiskIOPressure", "False"),
        ("DiskFailing", "False"),
    ] {
        assert_eq!(view.status(type_), status, "{type_}");
    }
    println!("{} requests, {:?}", requests.len(), pods.killed);
    stage.node.stop().await.expect("it ends well");
}
