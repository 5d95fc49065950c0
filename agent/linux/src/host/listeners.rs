//! Listening TCP ports, from `/proc/net/tcp` and `/proc/net/tcp6`.

use super::{HostError, HostRoot};

/// The state `TCP_LISTEN` (`include/net/tcp_states.h`).
const LISTEN: &str = "0A";

/// Returns those of `ports` with a listener on any address. Without IPv6 there is no `tcp6`.
pub fn taken(root: &HostRoot, ports: &[u16]) -> Result<Vec<u16>, HostError> {
    let mut table = root.read_string("proc/net/tcp")?;
    match root.read_string("proc/net/tcp6") {
        Ok(more) => table.push_str(&more),
        Err(err) if err.is_absent() => {}
        Err(err) => return Err(err),
    }
    let listening: Vec<u16> = table.lines().filter_map(listener).collect();
    let taken = ports.iter().filter(|port| listening.contains(port));
    Ok(taken.copied().collect())
}

/// Returns the port of a listening socket: `0: 00000000:1F90 00000000:0000 0A …`.
fn listener(line: &str) -> Option<u16> {
    let mut fields = line.split_ascii_whitespace();
    let (_, local, _, state) = (
        fields.next()?,
        fields.next()?,
        fields.next()?,
        fields.next()?,
    );
    let (_, port) = local.rsplit_once(':')?;
    (state == LISTEN).then(|| u16::from_str_radix(port, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::super::scratch::Scratch;
    use super::*;

    const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when\n   \
        0: 0100007F:2808 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n   \
        1: 0100007F:280A 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0\n";
    const TCP6: &str = "  sl  local_address                         remote_address\n   \
        0: 00000000000000000000000000000000:280A 00000000000000000000000000000000:0000 0A\n";

    #[test]
    fn listeners_of_both_families_are_found() {
        #[rustfmt::skip]
        let rows = [
            (Some(TCP), None, vec![10248], "a connection is not a listener"),
            (Some(TCP), Some(TCP6), vec![10248, 10250], "both"),
            (Some("nonsense\n:: 0A\na b:zz c 0A\n"), None, vec![], "nonsense"),
        ];
        for (tcp, tcp6, expected, why) in rows {
            let host = Scratch::new();
            for (name, text) in [("tcp", tcp), ("tcp6", tcp6)] {
                if let Some(text) = text {
                    host.write(&format!("proc/net/{name}"), text);
                }
            }
            let found = taken(&host.root(), &[10248, 10250]).unwrap();
            assert_eq!(found, expected, "{why}");
        }
        assert!(taken(&Scratch::new().root(), &[1]).is_err());
    }
}
