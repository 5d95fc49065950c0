//! Which module may name which. A room is a module under `agent/src`. What decides is the crate
//! `nodepulse-core`, and what every part needs to perform I/O is `nodepulse-io`: they can name none of them.

use super::Source;
use super::code::{NamedPath, code_only, paths, product_code};

enum Rooms {
    /// May name these rooms, and no other.
    Only(&'static [&'static str]),
    /// May name any room but these and [`UPPER`].
    Not(&'static [&'static str]),
}

struct Room {
    name: &'static str,
    rooms: Rooms,
    /// Paths of other crates that it must not name.
    not: &'static [&'static str],
}

const fn room(name: &'static str, rooms: Rooms, not: &'static [&'static str]) -> Room {
    Room { name, rooms, not }
}

/// What no room may name unless it is listed: the loop, and what stands between it and the host.
const UPPER: &[&str] = &["app", "cli", "os", "queries", "subjects", "telemetry"];

/// The rooms in the order of the line. `lib`, `main`, `app` and `cli` may name every room.
const ROOMS: &[Room] = &[
    // Edges.
    room(
        "kernel",
        Rooms::Not(&["api", "host"]),
        &[
            "kube",
            "nodepulse_core::node_status",
            "nodepulse_core::pressure",
        ],
    ),
    room("os", Rooms::Only(&[]), &["aya", "kube"]),
    room(
        "host",
        Rooms::Only(&[]),
        &["aya", "kube", "nodepulse_core::pressure"],
    ),
    room("state", Rooms::Only(&[]), &["aya", "kube"]),
    room(
        "certificate_store",
        Rooms::Only(&[]),
        &["aya", "kube", "tokio", "tracing"],
    ),
    room("logind", Rooms::Only(&[]), &["aya", "kube"]),
    room("cri", Rooms::Only(&[]), &["aya", "kube", "tracing"]),
    room(
        "api",
        Rooms::Not(&["host", "kernel"]),
        &["aya", "nodepulse_core::pressure"],
    ),
    room(
        "reporting",
        Rooms::Not(&["kernel"]),
        &["aya", "nodepulse_core::pressure"],
    ),
    room(
        "queries",
        Rooms::Only(&["api", "config", "cri", "host", "kernel", "os", "state"]),
        &["aya", "kube"],
    ),
    room(
        "telemetry",
        Rooms::Only(&[
            "api",
            "config",
            "host",
            "kernel",
            "metrics",
            "reporting",
            "serve",
        ]),
        &["aya", "kube"],
    ),
    // Around the line. `config` fills the policy types of other rooms.
    room(
        "config",
        Rooms::Not(&["api", "host", "kernel"]),
        &["aya", "kube"],
    ),
    room(
        "sandbox",
        Rooms::Only(&["config", "os"]),
        &["aya", "kube", "tokio"],
    ),
    room("metrics", Rooms::Only(&[]), &["aya", "kube"]),
    room("serve", Rooms::Only(&["metrics"]), &["aya", "kube"]),
    room("notify", Rooms::Only(&[]), &["aya", "kube", "tokio"]),
];

/// What whole crates must not name. The prefix that is most to the point comes first.
const CRATES: &[(&str, &[&str])] = &[
    ("agent-common/src/", &["alloc", "std", "anyhow"]),
    ("agent-ebpf/src/", &["alloc", "std", "anyhow"]),
    ("agent/src/main.rs", &[]),
    ("agent/src/bin/", &[]),
    // Untrusted files are read through `file`, which has limits.
    (
        "agent/src/",
        &[
            "anyhow",
            "fs::read",
            "fs::read_to_string",
            "std::fs::read",
            "std::fs::read_to_string",
        ],
    ),
];

/// Files that may contain unsafe code, or must allow a module below them to do so.
const MAY_BE_UNSAFE: &[&str] = &["kernel", "lib", "main", "os"];

const FORBID_UNSAFE: &str = "#![forbid(unsafe_code)]";

pub fn broken(sources: &[Source]) -> Vec<String> {
    let mut broken = Vec::new();
    for source in sources.iter().filter(|source| source.is_product()) {
        let code = product_code(&source.text);
        let named = paths(&code);
        broken.extend(rooms(&source.path, &named));
        broken.extend(crates(&source.path, &named));
        broken.extend(unsafe_allowed(source));
    }
    broken
}

/// The room that a file belongs to, and how many `super::` lead out of it.
fn room_of(path: &str) -> Option<(&str, usize)> {
    let module = path.strip_prefix("agent/src/")?.strip_suffix(".rs")?;
    Some((module.split('/').next()?, module.split('/').count()))
}

fn rooms(path: &str, named: &[NamedPath]) -> Vec<String> {
    let Some((name, depth)) = room_of(path) else {
        return Vec::new();
    };
    let Some(room) = ROOMS.iter().find(|room| room.name == name) else {
        return Vec::new();
    };
    let parents = "super::".repeat(depth);
    let refused = |named: &&NamedPath| {
        let below = named.path.strip_prefix("crate::");
        match below.or_else(|| named.path.strip_prefix(&parents)) {
            Some(below) => !room.may_name(below.split("::").next().unwrap_or_default()),
            // What the build was for is no I/O.
            None if begins_with_any(&named.path, &["std::env::consts"]) => false,
            None => begins_with_any(&named.path, room.not),
        }
    };
    named
        .iter()
        .filter(refused)
        .map(|named| {
            format!(
                "{path}:{}: `{name}` must not name `{}`",
                named.line, named.path
            )
        })
        .collect()
}

impl Room {
    fn may_name(&self, other: &str) -> bool {
        // Lower case, since `crate::CONSTANT` is no room; but a room may always name itself.
        let is_room = other == "app" || other == "cli" || ROOMS.iter().any(|r| r.name == other);
        other == self.name
            || !is_room
            || match self.rooms {
                Rooms::Only(rooms) => rooms.contains(&other),
                Rooms::Not(rooms) => !rooms.contains(&other) && !UPPER.contains(&other),
            }
    }
}

fn crates(path: &str, named: &[NamedPath]) -> Vec<String> {
    let Some((_, not)) = CRATES.iter().find(|(prefix, _)| path.starts_with(prefix)) else {
        return Vec::new();
    };
    named
        .iter()
        .filter(|named| begins_with_any(&named.path, not))
        .map(|named| format!("{path}:{}: must not name `{}` here", named.line, named.path))
        .collect()
}

fn begins_with_any(path: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| {
        let rest = path.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    })
}

/// `unsafe` lives in `kernel`, `os` and `io::fd`, and nowhere else in the agent.
fn unsafe_allowed(source: &Source) -> Option<String> {
    let (name, depth) = room_of(&source.path)?;
    if depth > 1 || MAY_BE_UNSAFE.contains(&name) {
        return None;
    }
    let forbids = code_only(&source.text)
        .lines()
        .any(|line| line == FORBID_UNSAFE);
    (!forbids).then(|| format!("{}:1: lacks `{FORBID_UNSAFE}`", source.path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source;

    #[test]
    fn a_room_names_only_what_it_may() {
        let table = [
            (
                "kernel/ring",
                "use nodepulse_core::record::decode;",
                true,
                "it hands bytes to decode",
            ),
            (
                "kernel/ring",
                "use crate::api::Client;",
                false,
                "an edge names no other edge",
            ),
            ("host/psi", "use std::fs;", true, "an edge does I/O"),
            (
                "host/psi",
                "use nodepulse_core::pressure::Pressure;",
                false,
                "an edge contains no policy",
            ),
            (
                "api/patch",
                "use crate::host::HostRoot;",
                false,
                "api knows no files",
            ),
            ("api/patch", "use kube::Client;", true, "that is its work"),
            (
                "app",
                "use crate::{api, host, kernel};",
                true,
                "app connects them",
            ),
            ("host", "use crate::VERSION;", true, "a constant is no room"),
            (
                "host",
                "use crate::app::App;",
                false,
                "no room knows the app",
            ),
        ];
        for (room, text, allowed, why) in table {
            let text = format!("{FORBID_UNSAFE}\n{text}");
            let found = broken(&[source(&format!("agent/src/{room}.rs"), &text)]);
            assert_eq!(
                found.is_empty(),
                allowed,
                "{room}: {text}: {why}: {found:?}"
            );
        }
    }

    #[test]
    fn a_crate_names_only_what_it_may() {
        let table = [
            ("agent/src/bin/top.rs", "use anyhow::Result;", true),
            ("agent/src/main.rs", "use anyhow::Result;", true),
            ("agent/src/lib.rs", "use anyhow::Result;", false),
            ("xtask/src/main.rs", "use anyhow::Result;", true),
            ("agent-common/src/event.rs", "use std::fmt;", false),
            ("agent-common/src/event.rs", "use core::fmt;", true),
            (
                "agent-ebpf/src/oom.rs",
                "extern crate alloc;\nuse alloc::vec::Vec;",
                false,
            ),
        ];
        for (path, text, allowed) in table {
            let found = broken(&[source(path, text)]);
            assert_eq!(found.is_empty(), allowed, "{path}: {text}: {found:?}");
        }
    }

    #[test]
    fn every_room_but_kernel_forbids_unsafe_code() {
        let table = [
            (
                "agent/src/host.rs",
                "//! Docs.\n#![forbid(unsafe_code)]\n",
                true,
            ),
            ("agent/src/host.rs", "//! Docs.\n", false),
            ("agent/src/host.rs", "// #![forbid(unsafe_code)]\n", false),
            ("agent/src/kernel.rs", "", true),
            ("agent/src/host/psi.rs", "", true),
        ];
        for (path, text, allowed) in table {
            let found = broken(&[source(path, text)]);
            assert_eq!(found.is_empty(), allowed, "{path}: {found:?}");
        }
    }
}
