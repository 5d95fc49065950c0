//! What a check in a virtual machine can ask of the program that started it.
//!
//! The machine's disks carry these serial numbers: `fast`; `slow`, 20 requests a second; `ext4`,
//! with that file system; `hang`, to be asked; `error`, whose block at [`BAD_BLOCK`] cannot be
//! read; `later`, which does not exist before it is requested; `swap`, 512 MiB; and `node`, which
//! is larger and also has ext4, and whose block at [`BAD_BLOCK_OF_NODE`] cannot be read.
//!
//! | verb | effect on the disk with that serial number |
//! |---|---|
//! | `hang` | the first request passes, and those after it wait |
//! | `slow` | 20 requests a second |
//! | `delay` | 10 requests a second: 200 ms for each, if two are in flight |
//! | `release` | what waits is done, and nothing waits any more |
//! | `plug` | it is there |
//! | `unplug` | it is removed, once this kernel has released it |

/// Offset in bytes of the 512 bytes of the disk `error` that cannot be read.
pub const BAD_BLOCK: u64 = 4 << 20;

/// Offset in bytes of the 512 bytes of the disk `node` that cannot be read.
pub const BAD_BLOCK_OF_NODE: u64 = 4_192_256 << 9;

/// Sends a request, and does not wait: the effect is the only response. If it fails, the host
/// prints the error.
pub fn ask(verb: &str, serial: &str) {
    println!("vm-ask: {verb} {serial}");
}
