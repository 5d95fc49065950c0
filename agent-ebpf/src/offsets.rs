//! Struct offsets that user space resolved from BTF, and safe reads by them.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use agent_common::KernelOffsets;
use aya_ebpf::helpers::generated::bpf_probe_read_kernel;

/// Overridden by the loader. In `.rodata`, which is frozen before the programs are verified.
#[unsafe(no_mangle)]
static OFFSETS: KernelOffsets = KernelOffsets::unresolved();

/// One offset: `offset!(task_pid)`.
macro_rules! offset {
    ($field:ident) => {
        $crate::offsets::load(&raw const (*$crate::offsets::table()).$field)
    };
}
pub(crate) use offset;

/// Address of the offsets. Read field by field, through [`load`] only.
#[inline(always)]
pub const fn table() -> *const KernelOffsets {
    &raw const OFFSETS
}

/// Reads one offset.
///
/// # Safety
///
/// `field` must point into [`table`].
#[inline(always)]
pub unsafe fn load(field: *const u32) -> u32 {
    // SAFETY: the caller's promise. Volatile, so that the compiler does not insert the value that
    // the table has at build time.
    unsafe { field.read_volatile() }
}

/// A kernel address. To follow it can fail, but never faults.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Address(u64);

impl Address {
    /// From an argument or from a value that was read.
    #[inline(always)]
    pub const fn new(address: u64) -> Self {
        Self(address)
    }

    /// The number.
    #[inline(always)]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// `offset` bytes further on.
    #[inline(always)]
    pub const fn at(self, offset: u32) -> Self {
        Self(self.0.wrapping_add(offset as u64))
    }

    /// The value at this address; `None` if the kernel has nothing mapped there.
    ///
    /// `T` is plain data in every call below: integers only.
    #[inline(always)]
    pub fn read<T: Copy>(self) -> Option<T> {
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: the destination is a local variable of the given size; the helper checks the
        // source, and fails if it cannot be read. On success every byte of `value` is written.
        // <https://github.com/gregkh/linux/blob/v6.12.107/kernel/trace/bpf_trace.c#L236-L240>
        unsafe {
            let size = size_of::<T>() as u32;
            let source = self.0 as *const c_void;
            (bpf_probe_read_kernel(value.as_mut_ptr().cast(), size, source) == 0)
                .then(|| value.assume_init())
        }
    }

    /// The address that is stored here; `None` for null, and if nothing can be read.
    #[inline(always)]
    pub fn follow(self) -> Option<Self> {
        let next = self.read::<u64>()?;
        (next != 0).then_some(Self(next))
    }
}

/// An object of a type that the verifier knows: only such addresses can be loaded from.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Typed(u64);

impl Typed {
    /// From an argument.
    ///
    /// # Safety
    ///
    /// It must point to an object that exists while the program runs. The verifier proves only the
    /// type: on some kernels a load from null crashes.
    #[inline(always)]
    pub const unsafe fn new(address: u64) -> Self {
        Self(address)
    }

    /// For reads through further pointers.
    #[inline(always)]
    pub const fn address(self) -> Address {
        Address::new(self.0)
    }

    /// The member at `offset`.
    ///
    /// # Safety
    ///
    /// A member of the size of `T` must be there.
    #[inline(always)]
    pub unsafe fn load<T: Copy>(self, offset: u32) -> T {
        let member = self.0.wrapping_add(offset as u64) as *const T;
        // SAFETY: the caller's promise. Volatile, so that it is one load of that size.
        unsafe { member.read_volatile() }
    }

    /// The object that the member at `offset` points to.
    ///
    /// # Safety
    ///
    /// The member must be a pointer that is never null or stale there.
    #[inline(always)]
    pub unsafe fn follow(self, offset: u32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::new(self.load::<u64>(offset)) }
    }
}
