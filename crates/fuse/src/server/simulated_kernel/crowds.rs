//! Clients that could get in the way: many that ask at once, and many signals.

use super::client::Client;
use crate::abi::{GETATTR_FH, GetattrIn, op};
use zerocopy::IntoBytes;

/// Tasks of a crowd have numbers from here on.
const CROWD: u32 = 1000;
/// Signals of a storm.
const STORM: u64 = 6;

impl Client<'_> {
    fn question(&self, at: usize) -> (u64, GetattrIn) {
        let file = &self.files[at];
        let getattr = GetattrIn {
            getattr_flags: GETATTR_FH,
            dummy: 0,
            fh: file.handle,
        };
        (file.id, getattr)
    }

    /// Several tasks ask at once, and none writes. Some get a signal.
    pub(super) fn crowd(&mut self, at: usize) {
        let (id, getattr) = self.question(at);
        let first = CROWD + 16 * self.task();
        let tasks = first..first + 2 + u32::try_from(self.rng.below(3)).unwrap();
        let asked: Vec<u64> = tasks
            .map(|task| {
                self.kernel
                    .begin(op::GETATTR, (id, task), getattr.as_bytes())
            })
            .collect();
        for &unique in &asked {
            if self.rng.chance(50) {
                self.kernel.signal(unique);
            }
        }
        for unique in asked {
            self.answered(at, unique);
        }
    }

    /// A task asks again and again, and gets a signal each time.
    pub(super) fn storm(&mut self, at: usize) {
        let (id, getattr) = self.question(at);
        for _ in 0..self.rng.between(1, STORM) {
            let of = (id, self.task());
            let unique = self.kernel.begin(op::GETATTR, of, getattr.as_bytes());
            if self.rng.chance(50) {
                std::thread::yield_now();
            }
            self.kernel.signal(unique);
            self.answered(at, unique);
        }
    }

    /// Waits for the answer to a question, which may tell of a loss.
    fn answered(&mut self, at: usize, unique: u64) {
        let reply = self.kernel.wait(unique, None);
        self.note_told(at, &reply);
        if !self.is_of_size(at, &reply) {
            Self::expected(reply);
        }
    }
}
