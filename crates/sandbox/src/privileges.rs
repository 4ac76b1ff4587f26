//! Capabilities: given up for good, but for what a server's socket may need.
//!
//! The user stays the same. A confined process opens, signals and traces nothing, so its user
//! decides nothing more; and the mount belongs to that user, as programs that look at the process
//! or unmount it expect.

use rustix::io::{Errno, Result};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use crate::profile::{Profile, Server};

/// Capabilities have numbers below this one.
const NUMBERS: u32 = 64;

/// Sets `no_new_privs`, and gives up every capability that `profile` does not keep.
pub(crate) fn give_up(profile: &Profile) -> Result<()> {
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
    let kept = held.permitted & kept(profile);
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )
}

/// The Unix socket of a server may belong to another user, whose permissions root does not go by
/// when it connects first, nor may it when it connects again.
fn kept(profile: &Profile) -> CapabilitySet {
    match profile.server {
        Some(Server::Unix) => CapabilitySet::DAC_OVERRIDE,
        _ => CapabilitySet::empty(),
    }
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

    fn left(profile: Profile) -> CapabilitySet {
        let thread = thread::spawn(move || {
            give_up(&profile).unwrap();
            assert!(no_new_privs().unwrap());
            let sets = capabilities(None).unwrap();
            assert_eq!(sets.effective, sets.permitted);
            assert!(sets.inheritable.is_empty());
            sets.permitted
        });
        thread.join().unwrap()
    }

    #[test]
    fn nothing_is_kept_but_what_a_servers_socket_needs() {
        assert!(left(Profile::default()).is_empty());
        let server = |server| Profile {
            server: Some(server),
            ..Profile::default()
        };
        assert!(left(server(Server::Tcp(1))).is_empty());
        let held = capabilities(None).unwrap().permitted;
        let wanted = CapabilitySet::DAC_OVERRIDE & held;
        assert_eq!(left(server(Server::Unix)), wanted);
    }
}
