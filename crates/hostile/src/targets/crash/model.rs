//! Files as a run made them, and what a power cut may leave of them.
//!
//! The journal orders all changes of names: what is there after a cut are the names after some
//! number of changes, at least those that were made durable, at most those that had begun. The
//! bytes of a file are each of some version since the last sync of the file, and its length lies
//! between those of two of them.

use std::sync::Arc;

/// Names that files may have.
pub(super) const SLOTS: usize = 6;

/// The file that a name leads to, by its number; none if there is no such name.
pub(super) type Names = [Option<usize>; SLOTS];

/// A file: its contents since the last sync of it, the newest last.
#[derive(Clone, Debug, Default)]
struct Versions {
    all: Vec<Arc<Vec<u8>>>,
    /// The change of names that touched the file last, and the one that made it.
    touched: usize,
    made: usize,
    /// A call failed in the middle: nothing is known of the bytes.
    is_doubtful: bool,
    /// The size may have moved past data that has not arrived, which reads as zeros.
    has_outrun: bool,
    /// Bytes were moved to other offsets, where writes in place may show early.
    is_shifted: bool,
}

/// A change of the bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A write: sizes move after its data.
    Written,
    /// The size or the map is changed by itself.
    Mapped,
    /// Bytes move to other offsets.
    Shifted,
}

/// States that may be found from an event on.
#[derive(Clone, Debug)]
struct Phase {
    from: usize,
    /// Changes of names that are durable, and those that have begun.
    durable: usize,
    begun: usize,
    files: Vec<Versions>,
}

/// See the module's header.
pub(super) struct Model {
    /// The names after each number of changes.
    names: Vec<Names>,
    files: Vec<Versions>,
    durable: usize,
    phases: Vec<Phase>,
    /// Zeros may stand for bytes that were not written: sizes may move before data.
    early_sizes: bool,
}

impl Model {
    /// No files; that is durable at event `now`.
    pub(super) fn new(now: usize, early_sizes: bool) -> Model {
        let mut model = Model {
            names: vec![Names::default()],
            files: Vec::new(),
            durable: 0,
            phases: Vec::new(),
            early_sizes,
        };
        model.note(now);
        model
    }

    /// The event before which nothing is known of the files.
    pub(super) fn begun(&self) -> usize {
        self.phases.first().map_or(0, |phase| phase.from)
    }

    pub(super) fn names(&self) -> Names {
        self.names.last().copied().unwrap_or_default()
    }

    /// The number of a file that is about to be made.
    pub(super) fn next_file(&self) -> usize {
        self.files.len()
    }

    /// The newest bytes of a file.
    pub(super) fn bytes(&self, file: usize) -> Vec<u8> {
        let newest = self.files.get(file).and_then(|file| file.all.last());
        newest.map_or_else(Vec::new, |bytes| bytes.to_vec())
    }

    /// Names are about to change, at event `now`. `touched` are the files that the change stores.
    pub(super) fn rename(&mut self, now: usize, names: Names, touched: &[usize]) {
        self.names.push(names);
        let begun = self.names.len() - 1;
        for &number in touched {
            if number == self.files.len() {
                self.files.push(Versions {
                    all: vec![Arc::default()],
                    made: begun,
                    ..Versions::default()
                });
            }
            if let Some(file) = self.files.get_mut(number) {
                file.touched = begun;
            }
        }
        self.note(now);
    }

    /// The last change of names was refused: it never was.
    pub(super) fn take_back(&mut self, now: usize) {
        if self.names.len() > 1 {
            self.names.pop();
        }
        let begun = self.names.len() - 1;
        for file in &mut self.files {
            file.touched = file.touched.min(begun);
            file.made = file.made.min(begun);
        }
        self.phases.retain(|phase| phase.begun <= begun);
        self.note(now);
    }

    /// A file is about to have other bytes, at event `now`.
    pub(super) fn change(&mut self, now: usize, file: usize, how: Change, bytes: Vec<u8>) {
        if let Some(file) = self.files.get_mut(file) {
            file.all.push(Arc::new(bytes));
            file.has_outrun |= how != Change::Written;
            file.is_shifted |= how == Change::Shifted;
        }
        self.note(now);
    }

    /// A call that changes a file has failed: any part of it may be done.
    pub(super) fn doubt(&mut self, now: usize, file: usize) {
        if let Some(file) = self.files.get_mut(file) {
            file.is_doubtful = true;
        }
        self.note(now);
    }

    /// A sync of a file has returned; of its data alone, where `names` is false.
    pub(super) fn synced(&mut self, now: usize, file: usize, names: bool) {
        if let Some(file) = self.files.get_mut(file) {
            let newest = file.all.len().saturating_sub(1);
            file.all.drain(..newest);
            (file.has_outrun, file.is_shifted) = (false, false);
            let least = if names { file.touched } else { file.made };
            self.durable = self.durable.max(least);
        }
        self.note(now);
    }

    /// A sync of everything has returned.
    pub(super) fn all_synced(&mut self, now: usize) {
        for file in 0..self.files.len() {
            self.synced(now, file, true);
        }
        self.durable = self.names.len() - 1;
        self.note(now);
    }

    fn note(&mut self, from: usize) {
        self.phases.push(Phase {
            from,
            durable: self.durable,
            begun: self.names.len() - 1,
            files: self.files.clone(),
        });
    }

    /// Looks at what names lead to after a cut, when `completed` events had: the bytes of each file
    /// that is there.
    ///
    /// # Errors
    /// In words, why this is no state that may be found.
    pub(super) fn judge(
        &self,
        completed: usize,
        found: &[Option<Vec<u8>>; SLOTS],
    ) -> Result<(), String> {
        let due = self.phases.iter().rev().find(|p| p.from <= completed);
        let Some(phase) = due else {
            return Err("no phase".to_owned());
        };
        let mut why = Vec::new();
        for changes in phase.durable..=phase.begun {
            let Some(names) = self.names.get(changes) else {
                continue;
            };
            let all = names.iter().zip(found).enumerate();
            let wrong = all.filter_map(|(slot, (name, found))| {
                let problem = self.compare(phase, *name, found.as_deref())?;
                Some(format!("after {changes} changes, m{slot}: {problem}"))
            });
            match wrong.into_iter().next() {
                None => return Ok(()),
                Some(problem) => why.push(problem),
            }
        }
        Err(why.join("; or "))
    }

    fn compare(&self, phase: &Phase, name: Option<usize>, found: Option<&[u8]>) -> Option<String> {
        let (number, found) = match (name, found) {
            (None, None) => return None,
            (None, Some(_)) => return Some("there is a file".to_owned()),
            (Some(number), None) => return Some(format!("file {number} is gone")),
            (Some(number), Some(found)) => (number, found),
        };
        let file = phase.files.get(number)?;
        if file.is_doubtful {
            return None;
        }
        let lens = || file.all.iter().map(|bytes| bytes.len());
        let (least, most) = (lens().min()?, lens().max()?);
        if found.len() < least || found.len() > most {
            let len = found.len();
            return Some(format!(
                "file {number} has {len} bytes, not {least}..={most}"
            ));
        }
        let zeros = self.early_sizes || file.has_outrun;
        let is_known = |at: usize, byte: u8| {
            let of_version = |version: &Arc<Vec<u8>>| match version.get(at) {
                Some(there) if *there == byte => true,
                Some(_) => file.is_shifted && (byte == 0 || version.contains(&byte)),
                None => zeros && byte == 0,
            };
            file.all.iter().any(of_version)
        };
        let wrong = found
            .iter()
            .enumerate()
            .find(|(at, byte)| !is_known(*at, **byte));
        wrong.map(|(at, byte)| {
            let len = found.len();
            format!("file {number} has {byte:#x} at {at} of {len}, which no version has")
        })
    }
}
