//! Bytes that may be dirty in the kernel, by the drains since they were granted.
//!
//! There are two accounts of them. A writer that was let pass has used its grant when it asks again
//! (`by_drains`); operations that take space by name have to leave a grant until its writer is sure
//! to have used it (`by_time`).

/// Grants by the drains since then.
#[derive(Clone, Copy, Debug, Default)]
struct Ages {
    /// Granted since the last drain began.
    current: u64,
    /// Granted between the last drain but one and the last. A writer may not have used a grant yet
    /// when a drain begins, so a grant counts until the end of the second drain after it.
    previous: u64,
    /// Granted before that: the drain that is under way is the second one.
    draining: u64,
}

impl Ages {
    fn total(self) -> u64 {
        self.current + self.previous + self.draining
    }

    fn subtract(&mut self, other: Ages) {
        self.current -= other.current;
        self.previous -= other.previous;
        self.draining -= other.draining;
    }

    fn begin_drain(&mut self) {
        self.draining = self.previous;
        self.previous = std::mem::take(&mut self.current);
    }

    fn end_drain(&mut self, done: bool) {
        let draining = std::mem::take(&mut self.draining);
        if !done {
            self.current += std::mem::replace(&mut self.previous, draining);
        }
    }
}

/// Bytes that writers may have dirtied, and no drain has shown to be written back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Exposure {
    /// Each drain ages them.
    by_drains: Ages,
    /// Only drains age them that began long enough after the last grant.
    by_time: Ages,
}

impl Exposure {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.by_drains.current += bytes;
        self.by_time.current += bytes;
    }

    /// Bytes that count where another writer asks.
    pub(crate) fn total(self) -> u64 {
        self.by_drains.total()
    }

    /// Bytes that operations leave which take space by name.
    pub(crate) fn bound(self) -> u64 {
        self.by_time.total()
    }

    /// Bytes since the last drain began.
    pub(crate) fn current(self) -> u64 {
        self.by_drains.current
    }

    /// Bytes since the last drain began that was late enough.
    pub(crate) fn recent(self) -> u64 {
        self.by_time.current
    }

    /// The exposure of a file that is no longer counted.
    pub(crate) fn subtract(&mut self, other: Exposure) {
        self.by_drains.subtract(other.by_drains);
        self.by_time.subtract(other.by_time);
    }

    /// A drain begins; `late` if all writers had the time to use what they were granted before the
    /// last one that was.
    pub(crate) fn begin_drain(&mut self, late: bool) {
        self.by_drains.begin_drain();
        if late {
            self.by_time.begin_drain();
        }
    }

    /// That drain ends.
    pub(crate) fn end_drain(&mut self, late: bool, done: bool) {
        self.by_drains.end_drain(done);
        if late {
            self.by_time.end_drain(done);
        }
    }
}
