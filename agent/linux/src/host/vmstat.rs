//! Counters of memory management: `/proc/vmstat`.

use nodepulse_core::reading::reclaim::ReclaimCounts;

use super::{HostError, HostFile, HostRoot, field, parse_u64};

pub fn file(root: &HostRoot) -> HostFile {
    root.file("proc/vmstat")
}

/// Reads the counters of reclaim by the whole node. Not `pgscan_direct`, `pgsteal_*` and
/// `workingset_*`: from Linux 7.1 on they include reclaim within limits of cgroups.
pub fn reclaim(file: &HostFile, buf: &mut Vec<u8>) -> Result<ReclaimCounts, HostError> {
    file.read(buf)?;
    parse(buf).ok_or_else(|| file.malformed("`allocstall_…` and `pgscan_kswapd` lines"))
}

/// Returns `None` without one of the counters. The kernel has one `allocstall_*` for each zone.
fn parse(text: &[u8]) -> Option<ReclaimCounts> {
    let lines = text.split(|&b| b == b'\n');
    let zones = lines.filter(|line| line.starts_with(b"allocstall_"));
    let counts = zones.filter_map(|line| parse_u64(line.rsplit(|&b| b == b' ').next()?));
    Some(ReclaimCounts {
        direct: counts.reduce(u64::saturating_add)?,
        kswapd: field(text, b"pgscan_kswapd")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scratch::Scratch;

    #[test]
    fn reclaim_of_the_node_is_counted_and_nothing_else() {
        let all = "nr_free_pages 5\nallocstall_dma 0\nallocstall_dma32 1\nallocstall_normal 20\n\
                   allocstall_movable 300\npgscan_kswapd 4000\npgscan_direct 50000\n\
                   pgscan_kswapd_throttle 7\n";
        let counts = |direct, kswapd| Some(ReclaimCounts { direct, kswapd });
        let rows = [
            (all, counts(321, 4000), "all zones"),
            ("allocstall_normal 2\n", None, "without kswapd"),
            ("pgscan_kswapd 2\n", None, "without a zone"),
            (
                "allocstall_normal x\npgscan_kswapd 1\n",
                None,
                "not a number",
            ),
            ("", None, "empty"),
        ];
        for (text, expected, name) in rows {
            let dir = Scratch::new();
            dir.write("proc/vmstat", text);
            let read = reclaim(&file(&dir.root()), &mut Vec::new());
            assert_eq!(read.ok(), expected, "{name}");
        }
        let missing = reclaim(&file(&Scratch::new().root()), &mut Vec::new());
        assert!(missing.unwrap_err().is_absent());
    }
}
