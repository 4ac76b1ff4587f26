//! A power cut in a recorded run, chosen by bytes, and the device that it leaves.

use extant_testkit::Event;
use extant_testkit::crash::{Budget, Cut, Explorer};

use crate::feed::Feed;

/// Bytes that a drive writes as a whole.
const SECTOR: usize = 512;
/// Subsets are chosen by a bit for each write where so few are unflushed; else at random.
const MASKED: usize = 16;

/// The request at which the power goes, and what of the unflushed writes arrives: three numbers
/// that mean something for any run.
#[derive(Clone, Copy, Debug)]
pub(super) struct PowerCut {
    kind: u8,
    at: u16,
    choice: u16,
}

/// The device after a power cut.
pub(super) struct AfterCut {
    pub(super) cut: Cut,
    /// Events that had completed.
    pub(super) completed: usize,
    pub(super) bytes: Vec<u8>,
}

impl PowerCut {
    pub(super) fn read(feed: &mut Feed<'_>) -> PowerCut {
        PowerCut {
            kind: feed.u8(),
            at: feed.u16(),
            choice: feed.u16(),
        }
    }

    /// The state that this cut leaves of a run that began with the bytes `base`. `None` if the run
    /// has written nothing.
    pub(super) fn of(self, base: Vec<u8>, events: &[Event]) -> Option<AfterCut> {
        let cut = self.resolve(events)?;
        let every = Budget::LONG;
        let explorer = Explorer::new(base, events.to_vec(), 1, every).only(cut);
        let mut after = None;
        let visited = explorer.run(|state| {
            let bytes = state.bytes().map_err(|error| error.to_string())?;
            after = Some(AfterCut {
                cut: state.cut,
                completed: state.completed,
                bytes,
            });
            Ok(())
        });
        assert!(
            visited.is_ok() && after.is_some(),
            "{cut}: {:?}",
            visited.err()
        );
        after
    }

    /// The cut of these events.
    fn resolve(self, events: &[Event]) -> Option<Cut> {
        let at = usize::from(self.at);
        let nth = |from: &[usize]| from.get(at.checked_rem(from.len())?).copied();
        let writes = |least: usize| -> Vec<usize> {
            let long =
                |event: &Event| matches!(event, Event::Write { data, .. } if data.len() > least);
            (0..events.len())
                .filter(|number| events.get(*number).is_some_and(long))
                .collect()
        };
        let all = writes(0);
        let after = Cut::After {
            event: nth(&all)? + 1,
        };
        Some(match self.kind % 4 {
            0 => after,
            1 => nth(&writes(SECTOR)).map_or(after, |event| Cut::Torn {
                event,
                choice: self.choice.into(),
            }),
            _ => {
                let event = nth(&borders(events))?;
                match unflushed(events, event) <= MASKED && self.kind & 4 == 0 {
                    true => Cut::Subset {
                        event,
                        mask: self.choice.into(),
                    },
                    false => Cut::Sample {
                        event,
                        choice: self.choice.into(),
                    },
                }
            }
        })
    }
}

/// Events at which any of the unflushed writes may be lost: the flushes, and the end.
fn borders(events: &[Event]) -> Vec<usize> {
    let is_flush = |number: &usize| {
        matches!(events.get(*number), Some(Event::Flush { .. })) || *number == events.len()
    };
    (0..=events.len()).filter(is_flush).collect()
}

/// Writes before `end` that no flush before it covers.
fn unflushed(events: &[Event], end: usize) -> usize {
    let before = events.get(..end).unwrap_or(events);
    let covered = before.iter().rev().find_map(|event| match event {
        Event::Flush { covers } => Some(*covers),
        _ => None,
    });
    let open = before.iter().skip(covered.unwrap_or(0));
    open.filter(|event| matches!(event, Event::Write { .. }))
        .count()
}
