//! EDGE: name resolution by `/etc/hosts` and the servers of `/etc/resolv.conf`.
//!
//! The C library's resolver blocks a thread for each lookup as long as configured: `options
//! timeout:30` is a minute. Here a lookup is a socket, which is closed at its deadline.
//! hickory-resolver 0.26 would add 41 crates, 790 KiB to the binary and 650 KiB to the resident
//! set.

#![forbid(unsafe_code)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use domain::base::iana::{Class, Rcode};
use domain::base::{Message, MessageBuilder, Name, Rtype};
use domain::rdata::{A, Aaaa};
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::debug;

use crate::file::{self, FileError};
use crate::lane::{Lane, NoAnswer, Purpose};

mod conf;

use conf::Conf;

/// Timeout of the queries of one lookup, in all search domains. With [`FILES_LIMIT`] it is a second
/// less than the timeout of a connection, so that the error is that of the lookup.
pub const LIMIT: Duration = Duration::from_millis(3500);
/// Timeout of reading the two files. Their last content is used while their disk hangs.
pub const FILES_LIMIT: Duration = Duration::from_millis(500);
/// Maximum size of an answer by UDP, which the query announces.
const DATAGRAM: usize = 512;

#[derive(Debug, thiserror::Error)]
pub enum NameError {
    /// No name server knows the name.
    #[error("no such name, or no address of it; check the name, or add it to /etc/hosts")]
    Unknown,
    #[error("not a host name")]
    Malformed,
    #[error(
        "no answer from {servers} within {}s; check /etc/resolv.conf",
        LIMIT.as_secs_f64()
    )]
    Silent { servers: String },
    /// Every server reported an error.
    #[error("{servers} refused or failed; check /etc/resolv.conf and its servers")]
    Failed { servers: String },
    #[error("cannot query a name server")]
    Io(#[from] io::Error),
    /// The files cannot be read, and never could.
    #[error("cannot read /etc/resolv.conf and /etc/hosts in time")]
    Files(#[from] NoAnswer),
}

/// A resolver, which its clones share.
#[derive(Debug, Clone)]
pub struct Names {
    directory: PathBuf,
    port: u16,
    lane: Lane,
    last: Arc<Mutex<Option<Arc<ResolverFiles>>>>,
}

#[derive(Debug)]
struct ResolverFiles {
    hosts: String,
    conf: Conf,
}

impl Names {
    /// Returns the resolver of this process, configured as for the C library.
    pub fn system() -> Self {
        static NAMES: OnceLock<Names> = OnceLock::new();
        NAMES.get_or_init(|| Self::with("/etc", 53)).clone()
    }

    /// Uses the files in `directory` and servers at `port`.
    pub fn with(directory: impl Into<PathBuf>, port: u16) -> Self {
        Self {
            directory: directory.into(),
            port,
            lane: Lane::new(Purpose::Names),
            last: Arc::default(),
        }
    }

    /// Returns the lane in which the files are read.
    pub fn lane(&self) -> Lane {
        self.lane.clone()
    }

    /// Returns all addresses of `name`, each once: those in `/etc/hosts`, else those of the first
    /// server that knows it, IPv4 first. Takes at most [`FILES_LIMIT`] and [`LIMIT`].
    pub async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, NameError> {
        if let Ok(ip) = name.parse() {
            return Ok(vec![ip]);
        }
        let files = self.files().await?;
        let listed = conf::hosts(&files.hosts, name);
        if !listed.is_empty() {
            return Ok(listed);
        }
        let lookup = query_all(&files.conf, name);
        let no_answer = |_| no_answer(&files.conf);
        timeout(LIMIT, lookup).await.map_err(no_answer)?
    }

    async fn files(&self) -> Result<Arc<ResolverFiles>, NameError> {
        let (directory, port) = (self.directory.clone(), self.port);
        let read = move || {
            let text = |name: &str| match file::text(&directory.join(name)) {
                Err(FileError::Io(err)) if err.kind() == io::ErrorKind::NotFound => String::new(),
                read => read.unwrap_or_else(|err| {
                    debug!(name, err = &err as &dyn std::error::Error, "not read");
                    String::new()
                }),
            };
            ResolverFiles {
                conf: Conf::parse(&text("resolv.conf"), port),
                hosts: text("hosts"),
            }
        };
        let read = self.lane.run(FILES_LIMIT, read).await;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(files) => {
                let files = Arc::new(files);
                *last = Some(Arc::clone(&files));
                Ok(files)
            }
            Err(err) => last.clone().ok_or(err.into()),
        }
    }
}

fn servers(conf: &Conf) -> String {
    let servers = conf.servers.iter().map(|server| server.ip().to_string());
    servers.collect::<Vec<_>>().join(", ")
}

fn no_answer(conf: &Conf) -> NameError {
    NameError::Silent {
        servers: servers(conf),
    }
}

async fn query_all(conf: &Conf, name: &str) -> Result<Vec<IpAddr>, NameError> {
    for candidate in conf.candidates(name) {
        let found = query_servers(conf, &candidate).await?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Err(NameError::Unknown)
}

/// One query to all servers.
struct DnsQuery {
    message: Message<Vec<u8>>,
    failed: Vec<SocketAddr>,
    found: Option<Vec<IpAddr>>,
}

impl DnsQuery {
    fn new(name: &Name<Vec<u8>>, kind: Rtype) -> Result<Self, NameError> {
        let mut id = [0; 2];
        let random = SystemRandom::new().fill(&mut id);
        random.map_err(|_| io::Error::other("no random number"))?;
        let mut message = MessageBuilder::new_vec();
        message.header_mut().set_rd(true);
        message.header_mut().set_id(u16::from_be_bytes(id));
        let mut message = message.question();
        let pushed = message.push((name, kind, Class::IN));
        pushed.map_err(|_| NameError::Malformed)?;
        Ok(Self {
            message: message.into_message(),
            failed: Vec::new(),
            found: None,
        })
    }

    fn is_open(&self, conf: &Conf) -> bool {
        self.found.is_none() && self.failed.len() < conf.servers.len()
    }

    /// Applies an answer from `server`; returns false if it must be requested by TCP.
    fn apply(&mut self, answer: &Message<[u8]>, server: SocketAddr) -> bool {
        if answer.header().tc() {
            return false;
        }
        match answer.header().rcode() {
            Rcode::NOERROR => self.found = Some(addresses(answer)),
            Rcode::NXDOMAIN => self.found = Some(Vec::new()),
            _ if !self.failed.contains(&server) => self.failed.push(server),
            _ => {}
        }
        true
    }
}

/// Returns the combined answer of all servers for one name; empty if the name does not exist.
async fn query_servers(conf: &Conf, name: &str) -> Result<Vec<IpAddr>, NameError> {
    // Text with escapes would be a different name.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name: Option<Name<Vec<u8>>> = name.parse().ok().filter(|_| name.chars().all(plain));
    let name = name.ok_or(NameError::Malformed)?;
    let mut queries = [
        DnsQuery::new(&name, Rtype::A)?,
        DnsQuery::new(&name, Rtype::AAAA)?,
    ];
    let sockets = Sockets::open(conf).await?;
    let interval = conf.timeout / conf.attempts;
    for _ in 0..conf.attempts {
        let until = Instant::now() + interval;
        for query in &mut queries {
            query.failed.clear();
            if query.found.is_none() {
                sockets.send(conf, query.message.as_slice()).await;
            }
        }
        while queries.iter().any(|query| query.is_open(conf)) {
            let Ok(received) = timeout_at(until, sockets.receive()).await else {
                break;
            };
            apply_datagram(conf, &mut queries, received, until).await;
        }
        if queries.iter().all(|query| query.found.is_some()) {
            break;
        }
    }
    if queries.iter().any(|query| query.found.is_none()) {
        let failed = queries.iter().any(|query| !query.failed.is_empty());
        let servers = servers(conf);
        // One family is better than none.
        let [v4, v6] = queries.map(|query| query.found.unwrap_or_default());
        return match [v4, v6].concat() {
            found if !found.is_empty() => Ok(found),
            _ if failed => Err(NameError::Failed { servers }),
            _ => Err(NameError::Silent { servers }),
        };
    }
    Ok(queries
        .map(|query| query.found.unwrap_or_default())
        .concat())
}

type Datagram = (Vec<u8>, SocketAddr);

async fn apply_datagram(
    conf: &Conf,
    queries: &mut [DnsQuery],
    (datagram, from): Datagram,
    until: Instant,
) {
    let Some(server) = conf.servers.iter().find(|server| is_of(**server, from)) else {
        return;
    };
    let Ok(answer) = Message::from_slice(&datagram) else {
        return;
    };
    for query in queries {
        if query.is_open(conf) && answer.is_answer(&query.message) && !query.apply(answer, *server)
        {
            let lookup = timeout_at(until, by_tcp(*server, query.message.as_slice())).await;
            let whole = lookup.ok().and_then(Result::ok);
            let whole = whole
                .as_deref()
                .and_then(|whole| Message::from_slice(whole).ok());
            let whole = whole.filter(|whole| whole.is_answer(&query.message));
            // An answer that is truncated by TCP too counts as none.
            if !whole.is_some_and(|whole| query.apply(whole, *server))
                && !query.failed.contains(server)
            {
                query.failed.push(*server);
            }
        }
    }
}

/// Ignores the scope: the kernel adds the link of an answer, even if the query had none.
fn is_of(server: SocketAddr, from: SocketAddr) -> bool {
    server.port() == from.port() && server.ip() == from.ip()
}

async fn by_tcp(server: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let len = u16::try_from(query.len()).map_err(io::Error::other)?;
    stream
        .write_all(&[&len.to_be_bytes(), query].concat())
        .await?;
    let len = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(len)];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

/// Returns the addresses of the canonical name.
fn addresses(answer: &Message<[u8]>) -> Vec<IpAddr> {
    let (Some(name), Ok(section)) = (answer.canonical_name(), answer.answer()) else {
        return Vec::new();
    };
    let v4 = section.limit_to_in::<A>().flatten();
    let v4 = v4.filter(|record| *record.owner() == name);
    let v4 = v4.map(|record| IpAddr::V4(record.data().addr()));
    let v6 = section.limit_to_in::<Aaaa>().flatten();
    let v6 = v6.filter(|record| *record.owner() == name);
    let v6 = v6.map(|record| IpAddr::V6(record.data().addr()));
    let mut found = Vec::new();
    for ip in v4.chain(v6) {
        if !found.contains(&ip) {
            found.push(ip);
        }
    }
    found
}

/// One socket per family of the servers.
struct Sockets {
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
}

impl Sockets {
    async fn open(conf: &Conf) -> io::Result<Self> {
        let any = |v6: bool| conf.servers.iter().any(|server| server.is_ipv6() == v6);
        let (mut v4, mut v6) = (None, None);
        if any(false) {
            v4 = Some(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?);
        }
        if any(true) {
            // A machine without IPv6 may have IPv4 servers.
            v6 = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).await.ok();
        }
        if v4.is_none() && v6.is_none() {
            return Err(io::Error::from(io::ErrorKind::AddrNotAvailable));
        }
        Ok(Self { v4, v6 })
    }

    /// Sends a query to all servers. A server that cannot be reached counts as not answering.
    async fn send(&self, conf: &Conf, query: &[u8]) {
        for server in &conf.servers {
            let socket = if server.is_ipv6() { &self.v6 } else { &self.v4 };
            if let Some(socket) = socket
                && let Err(err) = socket.send_to(query, server).await
            {
                debug!(%server, err = &err as &dyn std::error::Error, "not sent");
            }
        }
    }

    async fn receive(&self) -> Datagram {
        tokio::select! {
            received = receive(self.v4.as_ref()) => received,
            received = receive(self.v6.as_ref()) => received,
        }
    }
}

async fn receive(socket: Option<&UdpSocket>) -> Datagram {
    let Some(socket) = socket else {
        return std::future::pending().await;
    };
    let mut datagram = vec![0; DATAGRAM];
    loop {
        // An error belongs to an earlier query, such as a closed port.
        if let Ok((len, from)) = socket.recv_from(&mut datagram).await {
            datagram.truncate(len);
            return (datagram, from);
        }
    }
}

#[cfg(test)]
mod tests;
