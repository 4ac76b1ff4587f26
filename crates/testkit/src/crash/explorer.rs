//! From a log of events to the states that a cut may leave.

use std::sync::Arc;

use extant_blockdev::CowDevice;
use extant_units::DevOff;

use super::fingerprint::Fingerprint;
use super::frozen::Frozen;
use super::states::{Budget, CrashState, Cut, Totals, sample_tears};
use crate::{Event, Rng};

/// Bytes that a drive writes as a whole.
const SECTOR: usize = 512;

/// Visits the states of one recorded run.
pub struct Explorer {
    base: Frozen,
    events: Vec<Event>,
    seed: u64,
    budget: Budget,
    only: Option<Cut>,
    /// Chooses what failed flushes lost.
    loss: u64,
    /// States before this event are not visited.
    first: usize,
    /// Difference between the bytes at first and those in `base` now.
    difference: Fingerprint,
    /// First bytes of the devices behind the first one.
    borders: Vec<DevOff>,
}

/// A state that the checker rejected.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which state.
    pub cut: Cut,
    /// Report of the checker.
    pub why: String,
    /// States visited by then, this one included.
    pub visited: u64,
}

/// A write in flight: its event's index, and the bytes.
type Pending = (usize, DevOff, Arc<[u8]>);

impl Explorer {
    /// An explorer over the device as it was (`base`) and what happened since (`events`).
    pub fn new(base: Vec<u8>, events: Vec<Event>, seed: u64, budget: Budget) -> Self {
        let starts = events
            .iter()
            .filter_map(|event| Some(event.flush()?.0.start));
        let mut borders: Vec<DevOff> = starts.filter(|start| *start > DevOff::ZERO).collect();
        borders.sort_unstable();
        borders.dedup();
        Self {
            base: Frozen::new(base),
            events,
            seed,
            budget,
            only: None,
            loss: 0,
            first: 0,
            difference: Fingerprint::default(),
            borders,
        }
    }

    /// Lets failed flushes lose other writes, and visits only what comes after the first of them:
    /// the host failed a flush, reported it to one caller, and went on.
    #[must_use]
    pub fn losing(mut self, loss: u64) -> Self {
        let failed = self.events.iter().position(Event::is_failed_flush);
        self.first = failed.unwrap_or(0);
        self.loss = loss;
        self
    }

    /// Visits only states with at least `first` events: those before are known from elsewhere.
    #[must_use]
    pub fn from_event(mut self, first: usize) -> Self {
        self.first = self.first.max(first);
        self
    }

    /// Visits one state only.
    #[must_use]
    pub fn only(mut self, cut: Cut) -> Self {
        self.only = Some(cut);
        self
    }

    /// Calls `check` for each state, stopping at its first error.
    ///
    /// # Errors
    /// The first state that `check` rejects.
    pub fn run(
        mut self,
        mut check: impl FnMut(CrashState) -> Result<(), String>,
    ) -> Result<Totals, Failure> {
        let mut totals = Totals::default();
        let mut visit = |state: CrashState| {
            let cut = state.cut;
            totals.count(cut);
            let visited = totals.all();
            check(state).map_err(|why| Failure { cut, why, visited })
        };
        let mut pending: Vec<Pending> = Vec::new();
        let mut writes = 0usize;
        let events = std::mem::take(&mut self.events);
        for (index, event) in events.iter().enumerate() {
            match event {
                Event::Mark(_) => {}
                Event::Write { offset, data } => {
                    if data.len() > SECTOR {
                        for cut in self.wanted(self.tears(index), CutKind::Torn, index) {
                            visit(self.torn(cut, &pending, *offset, data))?;
                        }
                    }
                    pending.push((index, *offset, data.clone()));
                    writes += 1;
                    let due = writes.is_multiple_of(self.budget.cut_stride.max(1));
                    let after = due.then_some(Cut::After { event: index + 1 });
                    for cut in self.wanted(after.into_iter().collect(), CutKind::After, index + 1) {
                        visit(self.state(cut, pending.iter()))?;
                    }
                }
                Event::Flush { .. } | Event::FailedFlush | Event::FlushOf { .. } => {
                    for cut in self.wanted(self.choices(index, &pending), CutKind::Chosen, index) {
                        visit(self.chosen(cut, &pending))?;
                    }
                    self.flush(index, event, &mut pending);
                }
            }
        }
        let event = events.len();
        for cut in self.wanted(self.choices(event, &pending), CutKind::Chosen, event) {
            visit(self.chosen(cut, &pending))?;
        }
        for cut in self.wanted(vec![Cut::After { event }], CutKind::After, event) {
            visit(self.state(cut, pending.iter()))?;
        }
        Ok(totals)
    }

    /// Takes what the flush `event` makes durable, or loses, out of `pending`.
    fn flush(&mut self, index: usize, event: &Event, pending: &mut Vec<Pending>) {
        let Some((part, covers)) = event.flush() else {
            return;
        };
        let all = std::mem::take(pending);
        let (concerned, mut still): (Vec<_>, Vec<_>) = all.into_iter().partition(|write| {
            part.contains(&write.1) && covers.is_none_or(|covers| write.0 < covers)
        });
        if covers.is_none() {
            // What is lost is clean in the host's cache: it never arrives.
            let mut rng = self.rng(0x1057, index, self.loss);
            still.extend(self.pick(&mut rng, &concerned).into_iter().cloned());
            still.sort_by_key(|write| write.0);
        } else {
            let base = Arc::make_mut(&mut self.base.0);
            for (_, offset, data) in concerned {
                self.difference.replace(base, offset, &data);
                put(base, offset, &data);
            }
        }
        *pending = still;
    }

    /// Of the cuts of one kind that the budget has at `event`, those to visit.
    fn wanted(&self, cuts: Vec<Cut>, kind: CutKind, event: usize) -> Vec<Cut> {
        match self.only {
            _ if event < self.first => Vec::new(),
            None => cuts,
            Some(only) if only.event() == event && CutKind::of(only) == kind => vec![only],
            Some(_) => Vec::new(),
        }
    }

    /// The torn states of the write at `event`.
    fn tears(&self, event: usize) -> Vec<Cut> {
        let choices = 0..u64::from(self.budget.torn);
        choices.map(|choice| Cut::Torn { event, choice }).collect()
    }

    /// The subsets of the writes in flight at `event`.
    fn choices(&self, event: usize, pending: &[Pending]) -> Vec<Cut> {
        let count = u32::try_from(pending.len()).unwrap_or(u32::MAX);
        if count <= self.budget.exhaustive_below.min(20) {
            let masks = 0..1u64 << count;
            return masks.map(|mask| Cut::Subset { event, mask }).collect();
        }
        let samples = 0..u64::from(self.budget.samples);
        samples
            .map(|choice| Cut::Sample { event, choice })
            .collect()
    }

    /// The stream that decides about a sample.
    fn rng(&self, salt: u64, event: usize, choice: u64) -> Rng {
        Rng::new(Rng::new(self.seed ^ salt ^ (event as u64) << 20 ^ choice).next_u64())
    }

    fn chosen(&self, cut: Cut, pending: &[Pending]) -> CrashState {
        match cut {
            Cut::Subset { mask, .. } => {
                let arrived = (0..).zip(pending).filter(|(nth, _)| mask >> nth & 1 == 1);
                self.state(cut, arrived.map(|(_, write)| write))
            }
            Cut::Sample { event, choice } => {
                let mut rng = self.rng(0, event, choice);
                let arrived = self.pick(&mut rng, pending);
                let (torn, whole): (Vec<_>, Vec<_>) = arrived
                    .into_iter()
                    .partition(|_| sample_tears(choice) && rng.chance(25));
                let mut state = self.state(cut, whole.into_iter());
                for (_, offset, data) in torn {
                    tear(&mut state, &mut rng, *offset, data);
                }
                state
            }
            Cut::After { .. } | Cut::Torn { .. } => self.state(cut, pending.iter()),
        }
    }

    fn torn(&self, cut: Cut, pending: &[Pending], offset: DevOff, data: &[u8]) -> CrashState {
        let choice = match cut {
            Cut::Torn { choice, .. } => choice,
            _ => 0,
        };
        let mut rng = self.rng(0x7042, cut.event(), choice);
        let mut state = if choice % 2 == 1 {
            self.state(cut, self.pick(&mut rng, pending).into_iter())
        } else {
            self.state(cut, pending.iter())
        };
        tear(&mut state, &mut rng, offset, data);
        state
    }

    /// A random choice. Its density is random too, so that "nearly all" and "nearly none" are as
    /// likely as "half". Each device has one of its own: one may be far behind the other.
    fn pick<'a>(&self, rng: &mut Rng, pending: &'a [Pending]) -> Vec<&'a Pending> {
        let devices = 0..=self.borders.len();
        let arrive_of_8: Vec<u64> = devices.map(|_| rng.below(9)).collect();
        let device = |at: DevOff| self.borders.partition_point(|border| *border <= at);
        let mut arrives = |write: &&Pending| rng.below(8) < arrive_of_8[device(write.1)];
        pending.iter().filter(|write| arrives(write)).collect()
    }

    fn state<'a>(&self, cut: Cut, writes: impl Iterator<Item = &'a Pending>) -> CrashState {
        let mut state = CrashState {
            cut,
            completed: cut.event(),
            device: Arc::new(CowDevice::new(self.base.clone())),
            base: self.base.clone(),
            difference: self.difference,
            written: Vec::new(),
        };
        for (_, offset, data) in writes {
            state.write(*offset, data);
        }
        state
    }
}

/// The kinds of cuts that are made at the same place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CutKind {
    After,
    Chosen,
    Torn,
}

impl CutKind {
    fn of(cut: Cut) -> Self {
        match cut {
            Cut::After { .. } => Self::After,
            Cut::Subset { .. } | Cut::Sample { .. } => Self::Chosen,
            Cut::Torn { .. } => Self::Torn,
        }
    }
}

/// Lets some sectors of a write arrive.
fn tear(state: &mut CrashState, rng: &mut Rng, offset: DevOff, data: &[u8]) {
    for (nth, sector) in data.chunks(SECTOR).enumerate() {
        if rng.below(2) == 0 {
            let at = offset.saturating_add((nth * SECTOR) as u64);
            state.write(at, sector);
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
    use crate::Recorder;
    use extant_blockdev::{BlockDevice, MemoryDevice};

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
        let totals = explorer.run(|state| ordered(&state)).unwrap();
        assert!(
            totals.cuts >= 2 && totals.subsets >= 4 && totals.torn >= 2,
            "{totals:?}"
        );

        let (base, events) = recorded(false);
        let untorn = Budget {
            torn: 0,
            ..Budget::LONG
        };
        let explorer = || Explorer::new(base.clone(), events.clone(), 1, untorn);
        let failure = explorer().run(|state| ordered(&state)).unwrap_err();
        let cut = Cut::Subset { event: 2, mask: 2 };
        assert_eq!(
            (failure.cut, failure.why.as_str()),
            (cut, "second before first")
        );
        assert!(failure.visited > 2);
        // The name alone leads back to it, whatever the budget.
        let again = Explorer::new(base.clone(), events.clone(), 1, Budget::SHORT).only(cut);
        let failure = again.run(|state| ordered(&state)).unwrap_err();
        assert_eq!((failure.cut, failure.visited), (cut, 1));
        // All other states of the run are visited as well when the check accepts each.
        let all = explorer().run(|_| Ok(())).unwrap();
        assert_eq!(all.subsets, 4 + 1);
    }

    #[test]
    fn samples_tear_and_lose_writes() {
        let dev = Recorder::new(MemoryDevice::new(64 << 10));
        let base = dev.inner().to_bytes();
        for slot in 0..12 {
            dev.write_at(DevOff::new(slot * 4096), &[1; 4096]).unwrap();
        }
        dev.flush().unwrap();
        let (mut lost, mut parts) = (0, 0);
        let explorer = Explorer::new(base, dev.events(), 3, Budget::LONG);
        let look = |state: CrashState| {
            let mut all = vec![0; 12 * 4096];
            state.device.read_at(DevOff::ZERO, &mut all).unwrap();
            for slot in all.chunks(4096) {
                let ones = slot.iter().filter(|byte| **byte == 1).count();
                lost += u64::from(ones == 0);
                let part = ones > 0 && ones < 4096;
                assert!(!part || state.cut.tears(), "{}", state.cut);
                parts += u64::from(part);
            }
            Ok(())
        };
        let totals = explorer.run(look).unwrap();
        assert_eq!((totals.subsets, totals.torn), (40 + 1, 48));
        assert!(lost > 100 && parts > 50, "{lost} {parts}");
    }

    /// Two writes; a flush fails, the next one succeeds, and so does one more write.
    #[test]
    fn what_a_failed_flush_lost_never_arrives() {
        let write = |at: u64| Event::Write {
            offset: DevOff::new(at * 1024),
            data: Arc::from(&[1; 1024][..]),
        };
        let events = vec![
            write(0),
            Event::Flush { covers: 1 },
            write(1),
            Event::FailedFlush,
            Event::Flush { covers: 4 },
            write(2),
            Event::Flush { covers: 6 },
        ];
        let mut lost = 0;
        for loss in 0..32 {
            let explorer = Explorer::new(vec![0; 4096], events.clone(), 1, Budget::SHORT);
            let mut at_end = None;
            let look = |state: CrashState| {
                assert!(state.cut.event() >= 3, "{}", state.cut);
                at_end = Some(bytes_of(&state));
                Ok(())
            };
            explorer.losing(loss).run(look).unwrap();
            let bytes = at_end.unwrap();
            assert_eq!((bytes[0], bytes[2048]), (1, 1));
            lost += u64::from(bytes[1024] == 0);
        }
        assert!((4..28).contains(&lost), "{lost}");
    }

    /// Of two devices, each of which is written once, one is flushed, and fails to be or not.
    #[test]
    fn a_flush_of_one_device_says_nothing_of_the_other() {
        let devices = || (MemoryDevice::new(1024), MemoryDevice::new(1024));
        for fails in [false, true] {
            let (one, other) = devices();
            let (one, other) = Recorder::pair(one, other);
            one.write_at(DevOff::ZERO, &[1; 512]).unwrap();
            other.write_at(DevOff::ZERO, &[1; 512]).unwrap();
            other.flush().unwrap();
            one.mark(1);
            let mut events = one.events();
            let Event::FlushOf { covers, .. } = &mut events[2] else {
                panic!("{events:?}");
            };
            if fails {
                *covers = None;
            }
            let mut seen = std::collections::BTreeSet::new();
            for loss in 0..32 {
                let explorer = Explorer::new(vec![0; 2048], events.clone(), 1, Budget::LONG);
                let look = |state: CrashState| {
                    let mut bytes = [0; 2048];
                    state.device.read_at(DevOff::ZERO, &mut bytes).unwrap();
                    if state.completed > 2 {
                        seen.insert((bytes[0], bytes[1024]));
                    }
                    Ok(())
                };
                explorer.losing(loss).run(look).unwrap();
            }
            let seen: Vec<_> = seen.into_iter().collect();
            match fails {
                false => assert_eq!(seen, [(0, 1), (1, 1)]),
                true => assert_eq!(seen, [(0, 0), (0, 1), (1, 0), (1, 1)]),
            }
        }
    }

    #[test]
    fn equal_states_and_no_others_have_one_fingerprint() {
        let (base, mut events) = recorded(true);
        // Back to the bytes before the run, durably.
        let back = |at: u64| Event::Write {
            offset: DevOff::new(at),
            data: Arc::from(&[0; 1024][..]),
        };
        events.extend([back(0), back(1024), Event::Flush { covers: 6 }]);
        let mut known = std::collections::BTreeMap::new();
        let mut visited = 0;
        let look = |state: CrashState| {
            let fingerprint = state.fingerprint();
            visited += 1;
            let before = known.insert(bytes_of(&state), fingerprint);
            assert!(before.is_none_or(|before| before == fingerprint));
            Ok(())
        };
        let explorer = Explorer::new(base.clone(), events.clone(), 1, Budget::LONG);
        explorer.run(look).unwrap();
        let distinct: std::collections::HashSet<_> = known.values().collect();
        assert_eq!(distinct.len(), known.len());
        assert!(known.len() < visited, "{} of {visited}", known.len());
        let explorer = Explorer::new(base, events, 1, Budget::LONG);
        let late = explorer.from_event(4).run(|state| match state.cut.event() {
            0..4 => Err(state.cut.to_string()),
            _ => Ok(()),
        });
        assert!(late.unwrap().all() > 3);
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
        explorer.run(check).unwrap();
    }
}
