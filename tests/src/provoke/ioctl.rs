//! Requests to file systems and disk controllers for which no library has a function.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};

/// Discards the free blocks of the first `length` bytes of the file system that contains the open
/// directory, like fstrim(8). Returns the number of discarded bytes.
pub fn trim(dir: &File, length: u64) -> io::Result<u64> {
    /// `struct fstrim_range` of `linux/fs.h`.
    #[repr(C)]
    struct Range {
        start: u64,
        length: u64,
        shortest: u64,
    }
    const FITRIM: Opcode = opcode::read_write::<Range>(b'X', 121);
    let mut range = Range {
        start: 0,
        length,
        shortest: 0,
    };
    // SAFETY: FITRIM reads and writes one `fstrim_range`.
    unsafe { request::<FITRIM, _>(dir, &mut range) }?;
    Ok(range.length)
}

/// `struct nvme_passthru_cmd` of `linux/nvme_ioctl.h`.
#[repr(C)]
#[derive(Debug, Default)]
struct NvmeCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    words_2_and_3: [u32; 2],
    metadata: u64,
    data: u64,
    metadata_length: u32,
    data_length: u32,
    words_10_to_15: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

/// The size of the log page, in bytes.
const PAGE: usize = 512;

/// Reads the SMART log page (`page` 2) or another one of the controller of an NVMe disk, like
/// smartctl(8) and nvme(1). Returns the status of the command: 0 is success.
pub fn nvme_log_page(disk: &File, page: u32) -> io::Result<i32> {
    const GET_LOG_PAGE: u8 = 2;
    const ADMIN: Opcode = opcode::read_write::<NvmeCommand>(b'N', 0x41);
    let mut contents = [0_u8; PAGE];
    let words = u32::try_from(PAGE / 4 - 1).unwrap_or(0);
    let mut command = NvmeCommand {
        opcode: GET_LOG_PAGE,
        namespace: u32::MAX,
        data: contents.as_mut_ptr().expose_provenance() as u64,
        data_length: u32::try_from(PAGE).unwrap_or(0),
        words_10_to_15: [page | words << 16, 0, 0, 0, 0, 0],
        ..NvmeCommand::default()
    };
    // SAFETY: the request reads and writes one `nvme_passthru_cmd`, and writes `data_length` bytes
    // at `data`.
    unsafe { request::<ADMIN, _>(disk, &mut command) }
}

/// Reads 4 KiB from block number `block` on, by a command in the queue of the disk's reads and
/// writes. Returns the status of the command: 0 is success.
pub fn nvme_read(disk: &File, block: u64) -> io::Result<i32> {
    const READ: u8 = 2;
    const BYTES: u32 = 4096;
    const IO: Opcode = opcode::read_write::<NvmeCommand>(b'N', 0x43);
    let mut contents = [0_u8; BYTES as usize];
    let blocks = BYTES / rustix::fs::ioctl_blksszget(disk)?;
    let mut command = NvmeCommand {
        opcode: READ,
        namespace: 1,
        data: contents.as_mut_ptr().expose_provenance() as u64,
        data_length: BYTES,
        words_10_to_15: [block as u32, (block >> 32) as u32, blocks - 1, 0, 0, 0],
        ..NvmeCommand::default()
    };
    // SAFETY: the request reads and writes one `nvme_passthru_cmd`, and writes `data_length` bytes
    // at `data`.
    unsafe { request::<IO, _>(disk, &mut command) }
}

/// Sends an NVMe disk a command that does not exist, in the queue of its reads and writes. Returns
/// the status of the command: 0 is success.
pub fn nvme_unknown_command(disk: &File) -> io::Result<i32> {
    const VENDOR_SPECIFIC: u8 = 0xfe;
    const IO: Opcode = opcode::read_write::<NvmeCommand>(b'N', 0x43);
    let mut command = NvmeCommand {
        opcode: VENDOR_SPECIFIC,
        namespace: 1,
        ..NvmeCommand::default()
    };
    // SAFETY: the request reads and writes one `nvme_passthru_cmd`, without data.
    unsafe { request::<IO, _>(disk, &mut command) }
}

/// # Safety
///
/// The request `OPCODE` reads and writes one `T`.
unsafe fn request<const OPCODE: Opcode, T>(fd: impl AsFd, argument: &mut T) -> io::Result<i32> {
    // SAFETY: as the caller promises.
    Ok(unsafe { ioctl(fd, Request::<OPCODE, T>(argument)) }?)
}

/// A request whose argument is a `T`, and whose result is a number.
struct Request<'a, const OPCODE: Opcode, T>(&'a mut T);

// SAFETY: the argument is a valid `T`, which the caller of `ioctl` has chosen for the request.
unsafe impl<const OPCODE: Opcode, T> Ioctl for Request<'_, OPCODE, T> {
    type Output = i32;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        std::ptr::from_mut(self.0).cast()
    }

    unsafe fn output_from_ptr(
        result: IoctlOutput,
        _argument: *mut std::ffi::c_void,
    ) -> rustix::io::Result<i32> {
        Ok(result)
    }
}
