//! Bounds on the time that hostile sources cost: a few bytes of an archive can ask for a long way.
//!
//! A member's path may lead through 40 links of 2000 names each, and a whiteout of a layer looks at
//! all that is below its directory. Plain names cost what their bytes do and are not counted.

use crate::error::{Error, Result};

/// Names that ways through links and removals of layers may pass in one build: eight for each entry
/// of the largest volume, some seconds of work.
const MOST: u64 = 1 << 27;

/// The rest of the work that sources may ask for.
#[derive(Debug)]
pub(crate) struct Effort {
    left: u64,
}

impl Default for Effort {
    fn default() -> Self {
        Self { left: MOST }
    }
}

impl Effort {
    /// An effort of so many names.
    #[cfg(test)]
    pub(crate) fn of(left: u64) -> Self {
        Self { left }
    }

    /// Spends so many names.
    ///
    /// # Errors
    /// Too many were asked for.
    pub(crate) fn spend(&mut self, names: u64) -> Result<()> {
        match self.left.checked_sub(names) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Error::Options(format!(
                "links and whiteouts of the sources lead over more than {MOST} names"
            ))),
        }
    }
}
