//! A recorded run as a file: what a failing state is rebuilt from, exactly.
//!
//! Threads make two runs of one seed differ, so a name alone may not lead back to a state. The file
//! holds the device before the run (or two of them, one behind the other), the events, and the
//! oracle's notes as text. It is read by the build that wrote it, and by no other.

use std::path::Path;
use std::sync::Arc;

use extant_units::DevOff;

use crate::{Context, Error, Event, Result};

const MAGIC: &[u8; 8] = b"exrecrd1";

/// A recorded run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The device before the run.
    pub base: Vec<u8>,
    /// Writes and flushes, in order.
    pub events: Vec<Event>,
    /// Notes for the oracle.
    pub notes: String,
}

impl Recording {
    /// Writes the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut out = MAGIC.to_vec();
        put(&mut out, self.notes.as_bytes());
        put(&mut out, &self.base);
        for event in &self.events {
            match event {
                Event::Write { offset, data } => {
                    number(&mut out, 0);
                    number(&mut out, offset.get());
                    put(&mut out, data);
                }
                Event::Flush { covers } => {
                    number(&mut out, 1);
                    number(&mut out, *covers as u64);
                }
                Event::Mark(value) => {
                    number(&mut out, 2);
                    number(&mut out, *value);
                }
                Event::FailedFlush => number(&mut out, 3),
                Event::FlushOf { part, covers } => {
                    number(&mut out, 4);
                    number(&mut out, part.start.get());
                    number(&mut out, part.end.get());
                    number(&mut out, covers.map_or(u64::MAX, |covers| covers as u64));
                }
            }
        }
        std::fs::write(path, out).context(|| path.display())
    }

    /// Reads it again.
    ///
    /// # Errors
    /// It cannot be read, or is no recording.
    pub fn load(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).context(|| path.display())?;
        Self::parse(&bytes).ok_or_else(|| Error::new(format!("{}: no recording", path.display())))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(MAGIC)?;
        let notes = String::from_utf8(take(&mut rest)?.to_vec()).ok()?;
        let base = take(&mut rest)?.to_vec();
        let mut events = Vec::new();
        while !rest.is_empty() {
            events.push(match take_number(&mut rest)? {
                0 => Event::Write {
                    offset: DevOff::new(take_number(&mut rest)?),
                    data: Arc::from(take(&mut rest)?),
                },
                1 => Event::Flush {
                    covers: usize::try_from(take_number(&mut rest)?).ok()?,
                },
                2 => Event::Mark(take_number(&mut rest)?),
                3 => Event::FailedFlush,
                4 => Event::FlushOf {
                    part: DevOff::new(take_number(&mut rest)?)
                        ..DevOff::new(take_number(&mut rest)?),
                    covers: match take_number(&mut rest)? {
                        u64::MAX => None,
                        covers => Some(usize::try_from(covers).ok()?),
                    },
                },
                _ => return None,
            });
        }
        Some(Self {
            base,
            events,
            notes,
        })
    }
}

fn number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let (number, behind) = rest.split_first_chunk::<8>()?;
    *rest = behind;
    Some(u64::from_le_bytes(*number))
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take_number(rest)?).ok()?;
    let (bytes, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TempDir;

    #[test]
    fn what_is_saved_comes_back() {
        let dir = TempDir::new("recording").unwrap();
        let part = |covers| Event::FlushOf {
            part: DevOff::new(4096)..DevOff::new(5000),
            covers,
        };
        let recording = Recording {
            base: vec![7; 5000],
            events: vec![
                Event::Write {
                    offset: DevOff::new(512),
                    data: Arc::from(&[1u8, 2, 3][..]),
                },
                Event::Mark(9),
                Event::FailedFlush,
                Event::Flush { covers: 1 },
                part(Some(2)),
                part(None),
            ],
            notes: "a note\nand one more".into(),
        };
        let path = dir.join("run.rec");
        recording.save(&path).unwrap();
        assert_eq!(Recording::load(&path).unwrap(), recording);
        let bytes = std::fs::read(&path).unwrap();
        for cut in [0, 7, 20, bytes.len() - 1] {
            assert_eq!(Recording::parse(&bytes[..cut]), None, "{cut}");
        }
    }
}
