//! A state that a cut may leave: its name, its device, and how many of them to visit.

use std::fmt;
use std::ops::AddAssign;
use std::str::FromStr;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice};
use extant_units::DevOff;

use super::fingerprint::Fingerprint;
use super::frozen::Frozen;
use crate::Image;

/// How many states to visit.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Unflushed writes up to this many are tried in all subsets (2^n states).
    pub exhaustive_below: u32,
    /// Random subsets per epoch where there are more.
    pub samples: u32,
    /// Torn states per write.
    pub torn: u32,
    /// Visit only each n-th cut after a write; epochs are always visited. At least 1.
    pub cut_stride: usize,
}

impl Budget {
    /// A round of minutes.
    pub const SHORT: Self = Self {
        exhaustive_below: 3,
        samples: 2,
        torn: 1,
        cut_stride: 7,
    };
    /// A round of hours.
    pub const LONG: Self = Self {
        exhaustive_below: 8,
        samples: 40,
        torn: 4,
        cut_stride: 1,
    };
}

/// Which state this is. Printed, and read again, it names the state of one recorded run, whatever
/// the budget was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// All events before `event` arrived.
    After {
        /// Number of leading events.
        event: usize,
    },
    /// Of the unflushed writes before `event`, those arrived whose bit is set.
    Subset {
        /// Number of leading events.
        event: usize,
        /// The subset: bit 0 is the oldest unflushed write.
        mask: u64,
    },
    /// Of the unflushed writes before `event`, a random choice arrived; in every third sample some
    /// of them in part.
    Sample {
        /// Number of leading events.
        event: usize,
        /// Which sample.
        choice: u64,
    },
    /// The write at `event` arrived in part; of those before it all, or in every second sample a
    /// random choice.
    Torn {
        /// The write.
        event: usize,
        /// Which sample.
        choice: u64,
    },
}

impl Cut {
    /// The event at which the power went.
    pub fn event(self) -> usize {
        match self {
            Self::After { event }
            | Self::Subset { event, .. }
            | Self::Sample { event, .. }
            | Self::Torn { event, .. } => event,
        }
    }

    /// Returns whether a write may have arrived in part: a superblock, say, whose checksum is wrong
    /// then.
    pub fn tears(self) -> bool {
        match self {
            Self::After { .. } | Self::Subset { .. } => false,
            Self::Sample { choice, .. } => sample_tears(choice),
            Self::Torn { .. } => true,
        }
    }
}

/// Returns whether sample number `choice` has writes that arrived in part.
pub(super) fn sample_tears(choice: u64) -> bool {
    choice % 3 == 2
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::After { event } => write!(f, "after:{event}"),
            Self::Subset { event, mask } => write!(f, "subset:{event}:{mask}"),
            Self::Sample { event, choice } => write!(f, "sample:{event}:{choice}"),
            Self::Torn { event, choice } => write!(f, "torn:{event}:{choice}"),
        }
    }
}

impl FromStr for Cut {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let kind = parts.next().unwrap_or_default();
        let mut number = || {
            let part = parts.next().and_then(|n| n.parse::<u64>().ok());
            part.ok_or_else(|| format!("{text} names no cut: a number is missing"))
        };
        let event = usize::try_from(number()?).map_err(|error| error.to_string())?;
        match kind {
            "after" => Ok(Self::After { event }),
            "subset" => number().map(|mask| Self::Subset { event, mask }),
            "sample" => number().map(|choice| Self::Sample { event, choice }),
            "torn" => number().map(|choice| Self::Torn { event, choice }),
            _ => Err(format!("{text} names no cut")),
        }
    }
}

/// One state of the device after a cut.
pub struct CrashState {
    /// Which one.
    pub cut: Cut,
    /// Events that had completed when the power went: promises marked before this position must
    /// hold.
    pub completed: usize,
    /// The device; changes to it (a replay) are private to this state.
    pub device: Arc<CowDevice<Frozen>>,
    /// Bytes that were durable, and their difference from the bytes before the run.
    pub(super) base: Frozen,
    pub(super) difference: Fingerprint,
    /// Ranges of the writes that arrived besides.
    pub(super) written: Vec<(DevOff, usize)>,
}

impl CrashState {
    /// A write arrived.
    pub(super) fn write(&mut self, offset: DevOff, data: &[u8]) {
        let written = self.device.write_at(offset, data);
        written.expect("a recorded write lies on the device");
        self.written.push((offset, data.len()));
    }

    /// A hash of the state: two states of runs that began with the same bytes have the same one if
    /// they are equal. To be asked before the device is changed.
    pub fn fingerprint(&self) -> Fingerprint {
        let (base, device) = (&self.base, &*self.device);
        self.difference.of_changed(base, device, &self.written)
    }

    /// The bytes.
    ///
    /// # Errors
    /// They are too many for this machine.
    pub fn bytes(&self) -> crate::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.device.len())?];
        self.device.read_at(DevOff::ZERO, &mut bytes)?;
        Ok(bytes)
    }

    /// The bytes as an image of its own.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn image(&self) -> crate::Result<Image> {
        Image::of_bytes(&self.bytes()?)
    }
}

/// How many states were visited, by kind.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Cuts after a write.
    pub cuts: u64,
    /// Subsets of unflushed writes, samples included.
    pub subsets: u64,
    /// Torn writes.
    pub torn: u64,
}

impl Totals {
    /// All states.
    pub fn all(&self) -> u64 {
        self.cuts + self.subsets + self.torn
    }

    pub(super) fn count(&mut self, cut: Cut) {
        match cut {
            Cut::After { .. } => self.cuts += 1,
            Cut::Subset { .. } | Cut::Sample { .. } => self.subsets += 1,
            Cut::Torn { .. } => self.torn += 1,
        }
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, more: Self) {
        self.cuts += more.cuts;
        self.subsets += more.subsets;
        self.torn += more.torn;
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cuts,
            subsets,
            torn,
        } = self;
        let all = self.all();
        write!(
            f,
            "{all} states ({cuts} cuts, {subsets} subsets, {torn} torn)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_named_by_what_it_prints() {
        let cuts = [
            Cut::After { event: 3 },
            Cut::Subset { event: 4, mask: 5 },
            Cut::Sample {
                event: 6,
                choice: 7,
            },
            Cut::Torn {
                event: 8,
                choice: 9,
            },
        ];
        for cut in cuts {
            assert_eq!(cut.to_string().parse(), Ok(cut));
        }
        for bad in ["", "after", "torn:1", "subset:x:1", "before:1"] {
            assert!(bad.parse::<Cut>().is_err(), "{bad}");
        }
    }
}
