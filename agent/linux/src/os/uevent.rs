//! Reports disks that are added and removed: kernel uevents over netlink.
//!
//! Needs no capability. All devices are reported, so that starting a pod with its network devices
//! wakes this task about ten times; only changes of disks are passed on.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recvfrom, socket,
};
use nodepulse_core::record::uevent::parse;
use nodepulse_core::record::{Received, Record};
use nodepulse_io::clock::Clock;
use nodepulse_io::fd;
use tokio::io::Interest;
use tokio::sync::mpsc;

/// Buffer size, longer than any uevent: a path, then at most `UEVENT_BUFFER_SIZE` (2048) bytes.
const LONGEST: usize = 8192;

/// Multicast group of the kernel. Group 2 is that of udev.
const KERNEL_GROUP: u32 = 1;

/// Number of uevents that are read before other tasks run.
const BATCH: usize = 256;

#[derive(Debug)]
pub struct UeventSocket(OwnedFd);

pub fn open() -> io::Result<UeventSocket> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Datagram,
        SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkKObjectUEvent,
    )?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, KERNEL_GROUP))?;
    Ok(UeventSocket(socket))
}

/// Sends changes of disks until the receiver is dropped.
pub async fn read(
    socket: UeventSocket,
    clock: Clock,
    records: mpsc::Sender<Received>,
) -> io::Result<()> {
    let socket = fd::watch(socket.0, Interest::READABLE)?;
    let mut buf = vec![0; LONGEST];
    loop {
        let mut ready = socket.readable().await?;
        for _ in 0..BATCH {
            let record = match next(&socket.get_ref().0, &mut buf) {
                Ok(Some(record)) => record,
                Ok(None) | Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => {
                    ready.clear_ready();
                    break;
                }
                Err(err) => return Err(err.into()),
            };
            let received = Received {
                read: clock.now().boot,
                record: Ok(record),
            };
            if records.send(received).await.is_err() {
                return Ok(());
            }
        }
        tokio::task::yield_now().await;
    }
}

/// Reads the next datagram. Returns `None` if it is not from the kernel, or not about a disk.
fn next(socket: &OwnedFd, buf: &mut [u8]) -> nix::Result<Option<Record>> {
    let (len, sender) = match recvfrom::<NetlinkAddr>(socket.as_raw_fd(), buf) {
        // The socket buffer overflowed.
        Err(Errno::ENOBUFS) => return Ok(Some(Record::DisksMissed)),
        received => received?,
    };
    let by_kernel = sender.is_some_and(|sender| sender.pid() == 0);
    let datagram = buf.get(..len).filter(|_| by_kernel);
    Ok(datagram.and_then(parse).map(Record::Disk))
}
