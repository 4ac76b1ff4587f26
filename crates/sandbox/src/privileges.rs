//! Capabilities: given up for good.
//!
//! The user stays the same. A confined process opens, signals and traces nothing, so its user
//! decides nothing more; and the mount belongs to that user, as programs that look at the process
//! or unmount it expect.

use rustix::io::{Errno, Result};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Capabilities have numbers below this one.
const NUMBERS: u32 = 64;

/// Sets `no_new_privs`, and gives up every capability.
pub(crate) fn give_up() -> Result<()> {
    set_no_new_privs(true)?;
    let held = rustix::thread::capabilities(None)?;
    if held.permitted.contains(CapabilitySet::SETPCAP) {
        shrink_bounding_set()?;
    }
    match clear_ambient_capability_set() {
        // Kernels before Linux 4.3 have no such set.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(error) => return Err(error),
    }
    set_capabilities(
        None,
        CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        },
    )
}

/// Programs that this process would execute, were it able to, have no capabilities either.
fn shrink_bounding_set() -> Result<()> {
    for number in 0..NUMBERS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Ok(()) => {}
            // The kernel has fewer.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{capabilities, no_new_privs};
    use std::thread;

    #[test]
    fn nothing_is_kept() {
        let thread = thread::spawn(move || {
            give_up().unwrap();
            assert!(no_new_privs().unwrap());
            let sets = capabilities(None).unwrap();
            assert!(sets.effective.is_empty() && sets.permitted.is_empty());
            assert!(sets.inheritable.is_empty());
        });
        thread.join().unwrap();
    }
}
