//! A clock that only the program moves: a look takes a microsecond, a timed wait its whole time.

use std::cell::Cell;
use std::ops::{Add, Sub};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time at the begin of an execution, since the epoch.
const BEGIN: Duration = Duration::from_secs(1_700_000_000);
/// The time that a look at the clock takes.
const LOOK: Duration = Duration::from_micros(1);

std::thread_local! {
    static NOW: Cell<Duration> = const { Cell::new(BEGIN) };
}

/// Sets the clock back, for another execution.
pub(crate) fn restart() {
    NOW.set(BEGIN);
}

/// Moves the clock.
pub fn pass(time: Duration) {
    NOW.set(NOW.get() + time);
}

fn look() -> Duration {
    pass(LOOK);
    NOW.get()
}

/// As `std::time::SystemTime::now`.
pub fn system_now() -> SystemTime {
    UNIX_EPOCH + look()
}

/// As `std::time::Instant`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Instant(Duration);

impl Instant {
    /// The time.
    #[must_use]
    pub fn now() -> Self {
        Self(look())
    }

    /// The time from then to now.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        look().saturating_sub(self.0)
    }

    /// The time from `earlier` to this.
    #[must_use]
    pub fn duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The time from `earlier` to this, or none.
    #[must_use]
    pub fn saturating_duration_since(&self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }

    /// A time before this one.
    #[must_use]
    pub fn checked_sub(&self, time: Duration) -> Option<Self> {
        self.0.checked_sub(time).map(Self)
    }

    /// A time after this one.
    #[must_use]
    pub fn checked_add(&self, time: Duration) -> Option<Self> {
        self.0.checked_add(time).map(Self)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, time: Duration) -> Self {
        Self(self.0 + time)
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, time: Duration) -> Self {
        Self(self.0 - time)
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}
