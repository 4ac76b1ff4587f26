//! From a log of events to the states that a cut may leave.

use std::fmt;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice, Event};
use extant_units::DevOff;

use super::frozen::Frozen;
use crate::rng::Rng;

/// What a drive writes whole.
const SECTOR: usize = 512;

/// How many states to visit.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Unflushed writes up to this many are tried in all subsets (2^n states).
    pub exhaustive_below: u32,
    /// Random subsets per epoch where there are more.
    pub subsets: u32,
    /// Torn states per write.
    pub torn: u32,
    /// Visit only each n-th cut after a write; epochs are always visited. At least 1.
    pub cut_stride: usize,
}

impl Budget {
    /// A round of minutes.
    pub const SHORT: Self = Self {
        exhaustive_below: 4,
        subsets: 6,
        torn: 1,
        cut_stride: 3,
    };
    /// A round of hours.
    pub const LONG: Self = Self {
        exhaustive_below: 8,
        subsets: 40,
        torn: 4,
        cut_stride: 1,
    };
}

/// What kind of state this is; printed, it reproduces the state together with workload and seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// All events before `event` arrived.
    After {
        /// Number of leading events.
        event: usize,
    },
    /// Of the unflushed writes before `event`, those whose bit or sample says so.
    Subset {
        /// Number of leading events.
        event: usize,
        /// Which subset: a bit mask if exhaustive, else the sample's number.
        choice: u64,
    },
    /// The write at `event` arrived in part, everything before it whole.
    Torn {
        /// The write.
        event: usize,
        /// Which sample.
        choice: u64,
    },
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::After { event } => write!(f, "after:{event}"),
            Self::Subset { event, choice } => write!(f, "subset:{event}:{choice}"),
            Self::Torn { event, choice } => write!(f, "torn:{event}:{choice}"),
        }
    }
}

/// One state of the device after a cut.
pub struct CrashState {
    /// Which one.
    pub cut: Cut,
    /// Events that had completed when the power went: promises marked before this position must hold.
    pub completed: usize,
    /// The device; changes to it (a replay) are private to this state.
    pub device: Arc<CowDevice<Frozen>>,
}

/// How many states were visited, by kind.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Cuts after a write.
    pub cuts: u64,
    /// Subsets of unflushed writes.
    pub subsets: u64,
    /// Torn writes.
    pub torn: u64,
}

impl Totals {
    /// All states.
    pub fn all(&self) -> u64 {
        self.cuts + self.subsets + self.torn
    }
}

/// Visits the states of one recorded run.
pub struct Explorer {
    base: Frozen,
    events: Vec<Event>,
    seed: u64,
    budget: Budget,
}

/// A write in flight: its event's index, and the bytes.
type Pending = (usize, DevOff, Arc<[u8]>);

impl Explorer {
    /// An explorer over the device as it was (`base`) and what happened since (`events`).
    pub fn new(base: Vec<u8>, events: Vec<Event>, seed: u64, budget: Budget) -> Self {
        Self {
            base: Frozen::new(base),
            events,
            seed,
            budget,
        }
    }

    /// Calls `check` for each state, stopping at its first error.
    ///
    /// # Errors
    /// The checker's message behind the one line that reproduces the state.
    pub fn run(
        mut self,
        workload: &str,
        mut check: impl FnMut(CrashState) -> Result<(), String>,
    ) -> Result<Totals, String> {
        let mut totals = Totals::default();
        let seed = self.seed;
        let mut visit = |state: CrashState| {
            let cut = state.cut;
            check(state).map_err(|why| {
                format!("crash state failed: workload={workload} seed={seed} cut={cut}: {why}")
            })
        };
        let mut pending: Vec<Pending> = Vec::new();
        let mut writes = 0usize;
        let events = std::mem::take(&mut self.events);
        for (index, event) in events.iter().enumerate() {
            match event {
                Event::Mark(_) => {}
                Event::Write { offset, data } => {
                    self.torn(index, &pending, *offset, data, &mut totals, &mut visit)?;
                    pending.push((index, *offset, data.clone()));
                    writes += 1;
                    if writes.is_multiple_of(self.budget.cut_stride.max(1)) {
                        totals.cuts += 1;
                        let cut = Cut::After { event: index + 1 };
                        visit(self.state(cut, index + 1, pending.iter()))?;
                    }
                }
                Event::Flush { covers } => {
                    self.subsets(index, &pending, &mut totals, &mut visit)?;
                    let still = pending.iter().position(|write| write.0 >= *covers);
                    let settled = pending.drain(..still.unwrap_or(pending.len()));
                    let base = Arc::make_mut(&mut self.base.0);
                    settled.for_each(|(_, offset, data)| put(base, offset, &data));
                }
            }
        }
        self.subsets(events.len(), &pending, &mut totals, &mut visit)?;
        totals.cuts += 1;
        let cut = Cut::After {
            event: events.len(),
        };
        visit(self.state(cut, events.len(), pending.iter()))?;
        Ok(totals)
    }

    fn subsets(
        &self,
        event: usize,
        pending: &[Pending],
        totals: &mut Totals,
        visit: &mut impl FnMut(CrashState) -> Result<(), String>,
    ) -> Result<(), String> {
        let count = u32::try_from(pending.len()).unwrap_or(u32::MAX);
        let exhaustive = count <= self.budget.exhaustive_below.min(20);
        let choices = if exhaustive {
            1u64 << count
        } else {
            u64::from(self.budget.subsets)
        };
        for choice in 0..choices {
            let mut rng = Rng::new(self.seed ^ (event as u64) << 20 ^ choice);
            // A sample keeps each write with a probability of its own, so that "nearly all" and
            // "nearly none" are as likely as "half".
            let keep_of_8 = rng.below(9);
            let kept = pending.iter().enumerate().filter(|(nth, _)| {
                if exhaustive {
                    choice >> nth & 1 == 1
                } else {
                    rng.below(8) < keep_of_8
                }
            });
            let kept: Vec<&Pending> = kept.map(|(_, write)| write).collect();
            totals.subsets += 1;
            visit(self.state(Cut::Subset { event, choice }, event, kept.into_iter()))?;
        }
        Ok(())
    }

    fn torn(
        &self,
        event: usize,
        pending: &[Pending],
        offset: DevOff,
        data: &Arc<[u8]>,
        totals: &mut Totals,
        visit: &mut impl FnMut(CrashState) -> Result<(), String>,
    ) -> Result<(), String> {
        if data.len() <= SECTOR {
            return Ok(());
        }
        for choice in 0..u64::from(self.budget.torn) {
            let mut rng = Rng::new(self.seed ^ 0x7042 ^ (event as u64) << 20 ^ choice);
            let cut = Cut::Torn { event, choice };
            let state = self.state(cut, event, pending.iter());
            for (nth, sector) in data.chunks(SECTOR).enumerate() {
                if rng.below(2) == 0 {
                    let at = offset.saturating_add((nth * SECTOR) as u64);
                    state
                        .device
                        .write_at(at, sector)
                        .map_err(|error| error.to_string())?;
                }
            }
            totals.torn += 1;
            visit(state)?;
        }
        Ok(())
    }

    fn state<'a>(
        &self,
        cut: Cut,
        completed: usize,
        writes: impl Iterator<Item = &'a Pending>,
    ) -> CrashState {
        let device = CowDevice::new(self.base.clone());
        for (_, offset, data) in writes {
            device
                .write_at(*offset, data)
                .expect("a recorded write lies on the device");
        }
        CrashState {
            cut,
            completed,
            device: Arc::new(device),
        }
    }
}

fn put(base: &mut [u8], offset: DevOff, data: &[u8]) {
    let at = usize::try_from(offset.get()).expect("a recorded write lies on the device");
    base[at..at + data.len()].copy_from_slice(data);
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_blockdev::{MemoryDevice, Recorder};

    /// Two slots are written with a flush between them, then both again without one.
    fn recorded(flush_between: bool) -> (Vec<u8>, Vec<Event>) {
        let dev = Recorder::new(MemoryDevice::new(4096));
        let base = dev.inner().to_bytes();
        dev.write_at(DevOff::new(0), &[1; 1024]).unwrap();
        if flush_between {
            dev.flush().unwrap();
        }
        dev.write_at(DevOff::new(1024), &[1; 1024]).unwrap();
        dev.flush().unwrap();
        (base, dev.events())
    }

    fn bytes_of(state: &CrashState) -> Vec<u8> {
        let mut all = vec![0; 4096];
        state.device.read_at(DevOff::ZERO, &mut all).unwrap();
        all
    }

    /// The second slot must never be there without the first.
    fn ordered(state: &CrashState) -> Result<(), String> {
        let bytes = bytes_of(state);
        if bytes[1024..2048].contains(&1) && bytes[..1024] != [1; 1024] {
            return Err("second before first".into());
        }
        Ok(())
    }

    #[test]
    fn a_missing_flush_is_found_and_named() {
        let (base, events) = recorded(true);
        let explorer = Explorer::new(base, events, 1, Budget::LONG);
        let totals = explorer.run("ordered", |state| ordered(&state)).unwrap();
        assert!(
            totals.cuts >= 2 && totals.subsets >= 4 && totals.torn >= 2,
            "{totals:?}"
        );

        let (base, events) = recorded(false);
        let explorer = Explorer::new(base, events, 1, Budget::LONG);
        let why = explorer
            .run("unordered", |state| ordered(&state))
            .unwrap_err();
        assert!(
            why.contains("workload=unordered seed=1 cut=subset:2:2"),
            "{why}"
        );
    }

    #[test]
    fn what_is_flushed_is_never_missing() {
        let (base, events) = recorded(true);
        let last_flush = events.len();
        let explorer = Explorer::new(base, events, 2, Budget::LONG);
        let check = |state: CrashState| {
            let bytes = bytes_of(&state);
            if state.completed >= last_flush && bytes[..2048] != [1; 2048] {
                return Err("lost".into());
            }
            Ok(())
        };
        explorer.run("durable", check).unwrap();
    }
}
