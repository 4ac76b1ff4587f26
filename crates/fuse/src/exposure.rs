//! Bytes that may be dirty in the kernel, by the drains since they were granted.

/// Bytes that writers may have dirtied, and no drain has shown to be written back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Exposure {
    /// Granted since the last drain began.
    pub(crate) current: u64,
    /// Granted between the last drain but one and the last. A writer may not have used a grant yet
    /// when a drain begins, so a grant counts until the end of the second drain after it.
    previous: u64,
    /// Granted before that: the drain that is under way is the second one.
    draining: u64,
}

impl Exposure {
    pub(crate) fn total(self) -> u64 {
        self.current + self.previous + self.draining
    }

    /// The exposure of a file that is no longer counted.
    pub(crate) fn subtract(&mut self, other: Exposure) {
        self.current -= other.current;
        self.previous -= other.previous;
        self.draining -= other.draining;
    }

    pub(crate) fn begin_drain(&mut self) {
        self.draining = self.previous;
        self.previous = std::mem::take(&mut self.current);
    }

    pub(crate) fn end_drain(&mut self, done: bool) {
        let draining = std::mem::take(&mut self.draining);
        if !done {
            self.current += std::mem::replace(&mut self.previous, draining);
        }
    }
}
