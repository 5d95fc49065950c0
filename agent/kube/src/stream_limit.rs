//! The number of requests that a server answers at once on one HTTP/2 connection.
//!
//! A watch takes one of them for minutes. The number is in the first frame that a server sends,
//! which must be SETTINGS (RFC 9113, 3.4); hyper obeys it and does not return it.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of requests at once below which streams are scarce: the agent sends at most six, and
/// two watches.
const ENOUGH: u32 = 8;
/// Length of the header of a frame: its length (24 bits), type (8), flags (8) and stream (32).
const HEADER: usize = 9;
const SETTINGS: u8 = 4;
/// Length of a setting: an identifier (16 bits) and a value (32).
const SETTING: usize = 6;
const MAX_CONCURRENT_STREAMS: [u8; 2] = [0, 3];
/// Maximum length that is read. Servers send less than ten settings; those after this length are
/// ignored.
const LIMIT: usize = HEADER + 64 * SETTING;

/// `SETTINGS_MAX_CONCURRENT_STREAMS` of the newest connection. Clones share it. The connection
/// writes it, and it is read before a watch is opened.
#[derive(Debug, Clone)]
pub(super) struct StreamLimit(Arc<AtomicU32>);

impl Default for StreamLimit {
    fn default() -> Self {
        Self(Arc::new(AtomicU32::new(u32::MAX)))
    }
}

impl StreamLimit {
    /// Returns true if watches could leave no room for other requests.
    pub(super) fn is_scarce(&self) -> bool {
        self.0.load(Ordering::Relaxed) < ENOUGH
    }
}

/// The part of its first frame that a server has sent.
#[derive(Debug)]
pub(super) struct FirstFrame {
    limit: StreamLimit,
    bytes: Vec<u8>,
}

impl FirstFrame {
    pub(super) const fn new(limit: StreamLimit) -> Self {
        Self {
            limit,
            bytes: Vec::new(),
        }
    }

    /// Adds the next bytes that the server sent. Returns true if the frame continues.
    pub(super) fn continues(&mut self, bytes: &[u8]) -> bool {
        let room = LIMIT.saturating_sub(self.bytes.len());
        self.bytes.extend(bytes.iter().take(room));
        let [a, b, c, kind, rest @ ..] = self.bytes.as_slice() else {
            return true;
        };
        if *kind != SETTINGS {
            return false;
        }
        let length = u32::from_be_bytes([0, *a, *b, *c]);
        let length = usize::try_from(length).unwrap_or(LIMIT);
        let wanted = length.saturating_add(HEADER).min(LIMIT);
        if self.bytes.len() < wanted {
            return true;
        }
        let settings = rest.get(HEADER - 4..wanted - 4).unwrap_or_default();
        let mut limit = u32::MAX;
        for setting in settings.chunks_exact(SETTING) {
            // The last one counts.
            if let [a, b, value @ ..] = setting
                && [*a, *b] == MAX_CONCURRENT_STREAMS
                && let Ok(value) = value.try_into()
            {
                limit = u32::from_be_bytes(value);
            }
        }
        self.limit.0.store(limit, Ordering::Relaxed);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, settings: &[(u16, u32)]) -> Vec<u8> {
        let length = u8::try_from(settings.len() * SETTING).unwrap();
        let mut frame = vec![0, 0, length, kind, 0, 0, 0, 0, 0];
        for (identifier, value) in settings {
            frame.extend(identifier.to_be_bytes());
            frame.extend(value.to_be_bytes());
        }
        frame
    }

    #[test]
    fn the_first_frame_has_the_limit() {
        #[rustfmt::skip]
        let rows = [
            ("none", frame(SETTINGS, &[]), u32::MAX),
            ("others", frame(SETTINGS, &[(1, 2), (4, 5)]), u32::MAX),
            ("among others", frame(SETTINGS, &[(4, 5), (3, 7), (6, 1)]), 7),
            ("zero", frame(SETTINGS, &[(3, 0)]), 0),
            ("twice", frame(SETTINGS, &[(3, 1), (3, 100)]), 100),
            ("another frame", frame(6, &[(3, 1)]), u32::MAX),
            ("HTTP/1.1", b"HTTP/1.1 200 OK\r\n".to_vec(), u32::MAX),
            ("too long", [vec![255, 255, 255, SETTINGS], vec![0; 1000]].concat(), u32::MAX),
        ];
        for (name, bytes, expected) in rows {
            for pieces in [1, 4, bytes.len()] {
                let limit = StreamLimit::default();
                let mut first = FirstFrame::new(limit.clone());
                // The frames after the first one are not read.
                let more = [bytes.clone(), frame(SETTINGS, &[(3, 3)])].concat();
                let ended = more.chunks(pieces).any(|piece| !first.continues(piece));
                assert!(ended, "{name} by {pieces}");
                assert_eq!(
                    limit.0.load(Ordering::Relaxed),
                    expected,
                    "{name} by {pieces}"
                );
                assert!(first.bytes.len() <= LIMIT, "{name}");
            }
        }
    }
}
