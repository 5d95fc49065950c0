//! Runs the real program without eBPF programs: kills from the log, and from counters.
//!
//! Runs as root. The steps are in
//! `nodepulse_tests::logged`.

use nodepulse_tests::SOON;
use nodepulse_tests::logged;
use nodepulse_tests::process::Process;
use nodepulse_tests::skip;

use super::provoke;

#[tokio::test]
async fn the_log_reports_a_kill_and_none_from_before_the_start() {
    println!("{}", logged::by_the_log(&provoke()).await.unwrap());
}

#[tokio::test]
async fn without_programs_and_log_the_counters_give_the_number() {
    println!("{}", logged::by_counters(&provoke()).await.unwrap());
}

#[tokio::test]
async fn a_log_that_may_not_be_read_is_a_warning_with_the_cure() {
    let restricted = std::fs::read_to_string("/proc/sys/kernel/dmesg_restrict").unwrap();
    if restricted.trim() == "0" {
        return skip(
            "the kernel log is not restricted",
            "kernel.dmesg_restrict is 0",
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().display().to_string();
    let agent = Process::start_with_only(
        &["chown"],
        &[
            "run",
            "--mode",
            "node",
            "--kernel-tier",
            "kmsg",
            "--state-directory",
            &state,
        ],
    );
    let line = agent
        .wait_for_line("cannot read the kernel log", SOON)
        .await;
    assert!(
        line.contains("CAP_SYSLOG") && line.contains("dmesg_restrict"),
        "{line}"
    );
    agent
        .wait_for_line("tier=\"files\" source=Counters", SOON)
        .await;
}
