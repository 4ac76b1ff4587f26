//! Atomics and fences.

#[cfg(extant_shuttle)]
pub use shuttle::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, fence,
};
pub use std::sync::atomic::Ordering;
#[cfg(not(extant_shuttle))]
pub use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, fence,
};

/// `fence(SeqCst)` for a thread that has published its word by an exchange in `SeqCst` order.
///
/// On x86-64 that exchange is a locked instruction: no later load passes it, so only the compiler
/// needs to keep the order. Other processors may let a plain load pass the store half of an
/// exchange.
#[inline]
pub fn fence_after_exchange() {
    if cfg!(all(target_arch = "x86_64", not(miri), not(extant_shuttle))) {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}
