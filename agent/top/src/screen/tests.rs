use std::collections::VecDeque;

use nodepulse_core::explanation::Explanation;
use nodepulse_core::units::latency::Buckets;
use proptest::prelude::*;
use ratatui::style::Color;
use serde_json::{Value, json};

use super::*;
use crate::metrics::Histograms;
use crate::view::{self, Usage};

fn signal(name: &str, available: i64, capacity: u64, threshold: u64, below: bool) -> Value {
    json!({ "signal": name, "strength": "hard", "available": available, "capacity": capacity,
        "threshold": threshold, "below": below, "secondsAgo": 1, "readable": true })
}

fn condition(type_: &str, status: &str, since: &str, message: &str, signals: &[Value]) -> Value {
    json!({ "type": type_, "status": status, "reason": "Reason", "message": message,
        "since": since, "signals": signals, "because": [], "changes": [] })
}

fn explanation() -> Value {
    let mut pids = signal("pid.available", 31_000, 32_768, 1_000, false);
    pids["before"] = json!([{ "available": 31_200, "secondsAgo": 11 },
        { "available": 31_700, "secondsAgo": 21 }]);
    let memory = signal("memory.available", 90 << 20, 8 << 30, 100 << 20, true);
    let space = signal("nodefs.available", 15 << 30, 100 << 30, 10 << 30, false);
    json!({ "node": "worker-1", "at": "2026-11-28T07:25:34Z", "transitionPeriodSeconds": 300,
        "blockedCalls": [], "missingCredentials": "", "conditions": [
            condition("PIDsLow", "False", "2026-11-27T01:25:34Z", "enough", &[pids]),
            condition("MemoryLow", "True", "2026-11-28T07:20:00Z", "m\u{1b}[2J\u{202e}", &[memory]),
            condition("DiskSpaceLow", "Unknown", "never", "\u{5bb6}\u{5bb6}", &[space]),
        ] })
}

fn incident(number: u64, message: &str) -> Value {
    json!({ "apiVersion": "nodepulse.dev/incident/v1", "id": format!("b-{number}"), "revision": 1,
        "settled": true, "time": format!("2026-11-28T07:25:{:02}.000001Z", number % 60),
        "object": { "unit": "hog.service" }, "reason": "OOMKilling", "message": message })
}

fn view() -> View {
    let explanation: Explanation = serde_json::from_value(explanation()).unwrap();
    let mut tasks = VecDeque::new();
    view::add_tasks(&mut tasks, &explanation);
    let mut buckets = Buckets::default();
    (buckets[0], buckets[3], buckets[9]) = (70, 10, 1);
    let of = |operation: &str| ("nvme0n1".to_owned(), operation.to_owned());
    let latency = Histograms::from([(of("read"), buckets), (of("write"), Buckets::default())]);
    let usage = |name: &str, memory, cpu| Usage {
        name: name.to_owned(),
        memory,
        cpu,
    };
    let incidents = (0..9)
        .rev()
        .map(|n| serde_json::from_value(incident(n, "killed")).unwrap());
    View {
        explanation: Ok(explanation),
        latency: Ok(latency),
        tasks,
        incidents: Ok(incidents.collect()),
        usage: Ok(vec![
            usage("ssh.service", 5 << 20, Some(1)),
            usage("shop/cart-0", 900 << 20, Some(1500)),
            usage("pod 0f4fc5c2-7c38-4a8a-9d7b-2f7dbd2d21f9", 1 << 30, None),
        ]),
    }
}

fn missing() -> View {
    let why = || "no agent is listening on /run/nodepulse/nodepulse.sock; start it".to_owned();
    View {
        explanation: Err(why()),
        latency: Err(why()),
        incidents: Err("no history in /x: start the agent".to_owned()),
        usage: Err("no cgroup hierarchy".to_owned()),
        tasks: VecDeque::new(),
    }
}

/// Compares a frame with the file in which it is recorded.
#[track_caller]
fn assert_frame(view: &View, width: u16, height: u16, expected: &str) {
    let text = text(view, width, height);
    assert_eq!(text.trim_end(), expected.trim_end(), "\n{text}");
}

#[test]
fn a_frame_fits_a_small_terminal() {
    assert_frame(&view(), 80, 24, include_str!("80x24.txt"));
}

#[test]
fn a_large_terminal_has_more() {
    assert_frame(&view(), 120, 40, include_str!("120x40.txt"));
}

#[test]
fn a_missing_source_has_a_reason_and_a_cure() {
    assert_frame(&missing(), 80, 24, include_str!("missing.txt"));
}

#[test]
fn colors_are_of_the_foreground() {
    let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
    draw(&view(), 0, &mut buffer);
    let colors = [Color::Reset, Color::Red, Color::Magenta];
    assert!(
        buffer
            .content
            .iter()
            .all(|cell| cell.bg == Color::Reset && colors.contains(&cell.fg))
    );
    assert_eq!(buffer[(0, 2)].symbol(), "!");
    assert_eq!(buffer[(0, 2)].fg, Color::Red);
}

#[test]
fn no_size_and_no_position_is_too_small() {
    for view in [view(), missing()] {
        for (width, height) in [
            (0, 0),
            (1, 1),
            (20, 5),
            (75, 3),
            (76, 24),
            (300, 2),
            (3, 300),
        ] {
            let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
            for first in [0, 8, 9, usize::MAX] {
                draw(&view, first, &mut buffer);
            }
            assert_eq!(
                text(&view, width, height).lines().count(),
                usize::from(height)
            );
        }
    }
}

proptest! {
    #[test]
    fn no_document_panics(
        noise in "\\PC{0,40}", n in any::<i64>(), m in any::<u64>(), t in any::<u64>(), width in 0..200_u16,
    ) {
        let mut document = explanation();
        let signals = [signal(&noise, n, m, t, false), signal("pid.available", n, t, m, false)];
        document["conditions"][0] = condition(&noise, &noise, &noise, &noise, &signals);
        document["at"] = json!(noise);
        let explanation: Explanation = serde_json::from_value(document).unwrap();
        let mut view = view();
        view::add_tasks(&mut view.tasks, &explanation);
        let mut odd = incident(1, &noise);
        odd["time"] = json!(noise);
        odd["object"] = json!({ "pod": { "uid": noise } });
        view.incidents = Ok(vec![serde_json::from_value(odd).unwrap()]);
        let buckets = [m; 16];
        view.latency = Ok([((noise.clone(), noise.clone()), buckets)].into());
        view.usage = Ok(vec![Usage { name: noise, memory: m, cpu: Some(t) }]);
        view.explanation = Ok(explanation);
        let text = text(&view, width, 24);
        prop_assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
    }
}
