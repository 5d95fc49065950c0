//! Which errors are those of a disk.
//!
//! The tracepoint passes a negative error number up to Linux 5.15, and a `blk_status_t` since 5.16:
//! <https://github.com/gregkh/linux/blob/v5.10.223/include/trace/events/block.h#L117>, <https://github.com/gregkh/linux/blob/v6.12.107/include/trace/events/block.h#L167>. The kernel passes both
//! zero-extended, so they differ by the sign. Each status has one error number, and these have not
//! changed in between: <https://github.com/gregkh/linux/blob/v5.10.223/block/blk-core.c#L169-L195>,
//! <https://github.com/gregkh/linux/blob/v6.12.107/block/blk-core.c#L135-L167>.
//!
//! | status | error number | of the disk |
//! |---|---|---|
//! | `IOERR` | `EIO` | yes: what drivers report for lack of a better one |
//! | `MEDIUM` | `ENODATA` | yes: a block cannot be read or written |
//! | `TRANSPORT` | `ENOLINK` | yes: the path to the disk failed |
//! | `TIMEOUT` | `ETIMEDOUT` | yes: the disk did not answer, after all retries |
//! | `TARGET` | `EREMOTEIO` | yes: the disk gave a command up for good, such as for a hardware error |
//! | `OFFLINE` | `ENODEV` | no: the disk is being removed, perhaps on purpose |
//! | `NOSPC` | `ENOSPC` | no: a thin volume is full |
//! | `RESV_CONFLICT` | `EBADE` | no: another host has reserved the disk |
//! | `NOTSUPP`, `INVAL` | `EOPNOTSUPP`, `EINVAL` | no: the request was wrong |
//! | `PROTECTION` | `EILSEQ` | no: the checksum that came with the data was wrong |
//! | `AGAIN`, `DURATION_LIMIT` | `EAGAIN`, `ETIME` | no: the request was to fail rather than to wait |
//! | `RESOURCE` and others | `ENOMEM`, `EBUSY` and others | no: the kernel tries again |

/// `BLK_STS_TIMEOUT`.
/// <https://github.com/gregkh/linux/blob/v6.12.107/include/linux/blk_types.h#L98-L108>
const STATUS_TIMEOUT: u32 = 2;
const STATUS_TRANSPORT: u32 = 4;
const STATUS_TARGET: u32 = 5;
const STATUS_MEDIUM: u32 = 7;
const STATUS_IOERR: u32 = 10;

/// <https://github.com/gregkh/linux/blob/v6.12.107/include/uapi/asm-generic/errno-base.h#L9>, <https://github.com/gregkh/linux/blob/v6.12.107/include/uapi/asm-generic/errno.h#L44-L104>
const EIO: u32 = 5;
const ENODATA: u32 = 61;
const ENOLINK: u32 = 67;
const ETIMEDOUT: u32 = 110;
const EREMOTEIO: u32 = 121;

/// The positive error number of an error of the medium or the transport.
#[inline(always)]
pub const fn of_disk(status: u32) -> Option<u32> {
    let errno = match status {
        STATUS_TIMEOUT => ETIMEDOUT,
        STATUS_TRANSPORT => ENOLINK,
        STATUS_TARGET => EREMOTEIO,
        STATUS_MEDIUM => ENODATA,
        STATUS_IOERR => EIO,
        _ => status.wrapping_neg(),
    };
    match errno {
        EIO | ENODATA | ENOLINK | ETIMEDOUT | EREMOTEIO => Some(errno),
        _ => None,
    }
}
