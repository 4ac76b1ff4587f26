//! Clocks of the host that a call runs on, and numbers that no other call has.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// The id of a boot where there is none.
pub(crate) const NO_BOOT: [u8; 16] = [0; 16];

/// The clocks of a host. A model has its own.
pub(crate) trait Host: Send + Sync {
    /// The time since the boot, which also runs while the machine sleeps, and never jumps.
    fn uptime(&self) -> Duration;

    /// Seconds since 1970, by a clock that may be set.
    fn wall(&self) -> u64;

    /// The boot that `uptime` counts from; [`NO_BOOT`] if that is not known.
    fn boot(&self) -> [u8; 16];

    /// A number that no other call has.
    fn random(&self) -> u64;
}

/// The end of the time that a run may take.
#[derive(Clone)]
pub(crate) struct Deadline {
    host: Arc<dyn Host>,
    end: Duration,
}

impl Deadline {
    /// The moment after so much time from now, by the clock that never jumps.
    pub(crate) fn after(host: &Arc<dyn Host>, time: Duration) -> Self {
        Self {
            host: Arc::clone(host),
            end: host.uptime() + time,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.host.uptime() > self.end
    }
}

/// The host that the process runs on.
#[derive(Debug)]
pub(crate) struct ThisHost;

impl Host for ThisHost {
    fn uptime(&self) -> Duration {
        let now = clock_gettime(ClockId::Boottime);
        Duration::try_from(now).expect("a clock that counts from zero")
    }

    fn wall(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |since| since.as_secs())
    }

    fn boot(&self) -> [u8; 16] {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let id = id.unwrap_or_default().replace('-', "");
        let number = u128::from_str_radix(id.trim(), 16);
        number.map_or(NO_BOOT, u128::to_le_bytes)
    }

    fn random(&self) -> u64 {
        RandomState::new().build_hasher().finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_clocks() {
        let (uptime, wall) = (ThisHost.uptime(), ThisHost.wall());
        assert!(!uptime.is_zero() && ThisHost.uptime() >= uptime);
        assert!(wall > 1_700_000_000);
        assert_ne!(ThisHost.boot(), NO_BOOT);
        assert_eq!(ThisHost.boot(), ThisHost.boot());
        assert_ne!(ThisHost.random(), ThisHost.random());
    }
}
