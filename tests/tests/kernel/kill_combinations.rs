//! Causes real kills on this kernel for every combination of consequence, limit and `QoS` class.
//!
//! Runs as root.

use nodepulse_tests::SOON;
use nodepulse_tests::kill_combinations::{self, LimitOf, Outcome, Site, combinations};
use nodepulse_tests::process::program;

use super::provoke;

#[tokio::test]
async fn the_event_of_every_kind_of_kill_is_right_from_the_first_word_to_the_last() {
    let site = Site {
        program: &program(),
        provoke: &provoke(),
        is_virtual: false,
        patience: SOON,
    };
    let rows = kill_combinations::of(site, &combinations()).await;
    for row in &rows {
        println!("{row}");
    }
    assert_eq!(rows.len(), 36);
    for row in rows {
        let is_elsewhere = row.combination.limit == LimitOf::Node
            || row.combination.outcome == Outcome::WholeContainer;
        assert!(row.found.is_ok() || is_elsewhere, "{row}");
    }
}
