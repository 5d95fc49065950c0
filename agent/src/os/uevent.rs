//! Hears which disks come and go: the kernel's announcements of devices, by netlink.
//!
//! Needs no capability. Every device is announced, so that starting a pod with a network of its own
//! wakes this task about ten times; only what is about disks goes any further.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recvfrom, socket,
};
use tokio::io::Interest;
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::fd;
use crate::record::uevent::parse;
use crate::record::{Received, Record};

/// Longer than any announcement: `UEVENT_BUFFER_SIZE` is 2048, and the path stands before it.
const LONGEST: usize = 8192;

/// Group of the kernel's own announcements. Those of udev are in group 2.
const KERNEL_GROUP: u32 = 1;

/// Announcements taken before other tasks get their turn.
const BATCH: usize = 256;

/// A socket on which the kernel announces devices.
#[derive(Debug)]
pub struct UeventSocket(OwnedFd);

/// Begins to listen.
///
/// # Errors
///
/// When netlink sockets are not allowed to this process, or the kernel has no such protocol.
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

/// Passes on what is about disks until the receiver is gone.
///
/// # Errors
///
/// When the socket cannot be waited for or read.
pub async fn read(
    announcements: UeventSocket,
    clock: Clock,
    records: mpsc::Sender<Received>,
) -> io::Result<()> {
    let socket = fd::watch(announcements.0, Interest::READABLE)?;
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

/// The next datagram; `None` for one that is not from the kernel, or not about a disk.
fn next(socket: &OwnedFd, buf: &mut [u8]) -> nix::Result<Option<Record>> {
    let (len, sender) = match recvfrom::<NetlinkAddr>(socket.as_raw_fd(), buf) {
        // Some did not fit into the socket.
        Err(Errno::ENOBUFS) => return Ok(Some(Record::DisksMissed)),
        received => received?,
    };
    let by_kernel = sender.is_some_and(|sender| sender.pid() == 0);
    let datagram = buf.get(..len).filter(|_| by_kernel);
    Ok(datagram.and_then(parse).map(Record::Disk))
}
