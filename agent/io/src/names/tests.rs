use std::fs;

use domain::base::name::ToName as _;
use domain::base::{Ttl, record::Record};
use domain::rdata::{AllRecordData, Cname};
use tempfile::{TempDir, tempdir};
use tokio::net::TcpListener;

use super::*;

/// The records of a simulated server, the same by UDP and TCP.
type Records = fn(&str, Rtype, bool) -> (Rcode, Vec<&'static str>);

fn reply(query: &[u8], records_of: Records, tcp: bool) -> Vec<u8> {
    let query = Message::from_octets(query).unwrap();
    let question = query.sole_question().unwrap();
    let name = question.qname().to_name::<Vec<u8>>();
    let (rcode, records) = records_of(&name.to_string(), question.qtype(), tcp);
    let mut answer = MessageBuilder::new_vec();
    if records == ["cut"] {
        answer.header_mut().set_tc(true);
    }
    let mut answer = answer.start_answer(&query, rcode).unwrap();
    let tc = records == ["cut"];
    answer.header_mut().set_tc(tc);
    let ttl = Ttl::from_secs(1);
    let alias: Name<Vec<u8>> = "alias.test".parse().unwrap();
    let mut owner = name;
    for record in records.into_iter().filter(|record| *record != "cut") {
        let data: AllRecordData<Vec<u8>, Name<Vec<u8>>> = match record.parse() {
            Ok(IpAddr::V4(ip)) => A::new(ip).into(),
            Ok(IpAddr::V6(ip)) => Aaaa::new(ip).into(),
            Err(_) => Cname::new(alias.clone()).into(),
        };
        let is_alias = matches!(data, AllRecordData::Cname(_));
        answer
            .push(Record::new(owner.clone(), Class::IN, ttl, data))
            .unwrap();
        if is_alias {
            owner = alias.clone();
        }
    }
    answer.finish()
}

struct Server {
    names: Names,
    dir: TempDir,
}

impl Server {
    async fn start(resolv_conf: &str, records_of: Records) -> Self {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let at = tcp.local_addr().unwrap();
        let udp = UdpSocket::bind(at).await.unwrap();
        tokio::spawn(async move {
            let mut query = [0; DATAGRAM];
            while let Ok((len, from)) = udp.recv_from(&mut query).await {
                let answer = reply(&query[..len], records_of, false);
                udp.send_to(&answer, from).await.unwrap();
            }
        });
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = tcp.accept().await {
                let len = stream.read_u16().await.unwrap();
                let mut query = vec![0; len.into()];
                stream.read_exact(&mut query).await.unwrap();
                let answer = reply(&query, records_of, true);
                let len = u16::try_from(answer.len()).unwrap();
                stream.write_u16(len).await.unwrap();
                stream.write_all(&answer).await.unwrap();
            }
        });
        Self::with(resolv_conf, at.port())
    }

    fn with(resolv_conf: &str, port: u16) -> Self {
        let dir = tempdir().unwrap();
        fs::write(dir.path().join("hosts"), "192.0.2.99 listed\n").unwrap();
        let conf = format!("nameserver 127.0.0.1\n{resolv_conf}");
        fs::write(dir.path().join("resolv.conf"), conf).unwrap();
        Self {
            names: Names::with(dir.path(), port),
            dir,
        }
    }

    async fn found(&self, name: &str) -> Vec<String> {
        let found = self.names.resolve(name).await;
        let found = found.unwrap_or_else(|err| panic!("{name}: {err}"));
        found.iter().map(ToString::to_string).collect()
    }
}

fn records_of(name: &str, kind: Rtype, tcp: bool) -> (Rcode, Vec<&'static str>) {
    let ok = |records: &[&'static str]| (Rcode::NOERROR, records.to_vec());
    match (name, kind) {
        ("both", Rtype::A) => ok(&["192.0.2.1", "192.0.2.2", "192.0.2.1"]),
        ("both", _) => ok(&["2001:db8::1"]),
        ("api.svc.test", Rtype::A) => ok(&["192.0.2.3"]),
        ("named", Rtype::A) => ok(&["an alias", "192.0.2.4"]),
        ("long", Rtype::A) if tcp => ok(&["192.0.2.5"]),
        ("long", Rtype::A) => ok(&["cut"]),
        ("v4-only.test", Rtype::A) => ok(&["192.0.2.6"]),
        ("v4-only.test" | "broken.test", _) => (Rcode::SERVFAIL, vec![]),
        ("api.svc.test" | "named" | "long", _) => ok(&[]),
        _ => (Rcode::NXDOMAIN, vec![]),
    }
}

#[tokio::test]
async fn names_are_resolved_as_by_the_c_library() {
    let server = Server::start("search a.test svc.test\noptions ndots:1", records_of).await;
    let rows: [(&str, &[&str], &str); 7] = [
        ("192.0.2.7", &["192.0.2.7"], "an address"),
        ("2001:db8::7", &["2001:db8::7"], "of the other version"),
        ("listed", &["192.0.2.99"], "/etc/hosts"),
        (
            "both.",
            &["192.0.2.1", "192.0.2.2", "2001:db8::1"],
            "both families, each once",
        ),
        ("api", &["192.0.2.3"], "by the second domain"),
        ("named.", &["192.0.2.4"], "an alias"),
        ("long.", &["192.0.2.5"], "by TCP, because UDP truncates it"),
    ];
    for (name, expected, why) in rows {
        assert_eq!(server.found(name).await, expected, "{why}");
    }
}

#[tokio::test]
async fn a_failed_lookup_reports_the_reason() {
    let server = Server::start("options timeout:1 attempts:1", records_of).await;
    let rows = [
        ("unknown.test", "no such name"),
        ("not a name", "not a host name"),
        ("nul\0", "not a host name"),
        ("a..b", "not a host name"),
        ("broken.test", "127.0.0.1 refused or failed"),
    ];
    for (name, expected) in rows {
        let err = server.names.resolve(name).await.unwrap_err().to_string();
        assert!(err.contains(expected), "{name:?}: {err}");
    }
    // The answer for one family suffices.
    assert_eq!(server.found("v4-only.test").await, ["192.0.2.6"]);
}

#[tokio::test]
async fn answers_to_other_queries_and_invalid_datagrams_are_ignored() {
    let records_of: Records = |name, kind, tcp| {
        let (_, _) = (kind, tcp);
        assert_eq!(name, "x.test");
        (Rcode::NOERROR, vec!["192.0.2.1"])
    };
    let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let server = Server::with(
        "options timeout:1 attempts:1",
        udp.local_addr().unwrap().port(),
    );
    tokio::spawn(async move {
        let mut query = [0; DATAGRAM];
        while let Ok((len, from)) = udp.recv_from(&mut query).await {
            let good = reply(&query[..len], records_of, false);
            let mut other_id = good.clone();
            other_id[0] ^= 0xff;
            for wrong in [&b""[..], b"\xff", &[0xff; DATAGRAM], &good[..14], &other_id] {
                udp.send_to(wrong, from).await.unwrap();
            }
        }
    });
    let err = server.names.resolve("x.test").await.unwrap_err();
    assert!(matches!(err, NameError::Silent { .. }), "{err}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_needs_no_thread_and_at_most_the_limit() {
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let server = Server::with("options timeout:30 attempts:5", port);
    let threads = || fs::read_dir("/proc/self/task").unwrap().count();
    let err = server.names.resolve("x.test").await.unwrap_err();
    let before = threads();
    for _ in 0..50 {
        let began = Instant::now();
        let err = server.names.resolve("x.test").await.unwrap_err();
        assert!(matches!(err, NameError::Silent { .. }), "{err}");
        assert!(began.elapsed() <= LIMIT, "{:?}", began.elapsed());
    }
    assert!(
        err.to_string()
            .contains("no answer from 127.0.0.1 within 3.5s"),
        "{err}"
    );
    // Other tests run at the same time, but not dozens.
    assert!(threads() < before + 25, "{} after {before}", threads());
    assert!(!server.names.lane().is_blocked());
}

#[tokio::test]
async fn the_files_are_read_at_each_lookup() {
    let server = Server::start("", records_of).await;
    assert!(server.names.resolve("api").await.is_err());
    let path = server.dir.path().join("resolv.conf");
    let conf = fs::read_to_string(&path).unwrap();
    fs::write(path, format!("{conf}search svc.test\n")).unwrap();
    assert_eq!(server.found("api").await, ["192.0.2.3"]);
}
