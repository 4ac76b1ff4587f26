//! The rules by which the result of each step of a workload is judged, given the request that
//! failed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use extant::{Error, Result};
use extant_testkit::RequestKind;

use crate::stage::{Cargo, Mode, Order, Origin, Seen, Stage};
use crate::world::Known;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EUCLEAN: i32 = 117;

/// The kind of a step, for the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Mount,
    Unmount,
    Sync,
    /// Of this opener of this file.
    Fsync(&'static str, usize),
    /// By this opener, to this file.
    Write(&'static str, usize),
    /// Changes something; writes or cuts this file's data, if one is named.
    Change(Option<usize>),
    Read,
}

impl Role {
    pub(crate) fn change() -> Self {
        Self::Change(None)
    }

    /// Returns whether its changes are durable when it returns.
    fn waits(&self) -> bool {
        matches!(self, Self::Fsync(..) | Self::Sync | Self::Unmount)
    }
}

/// The rules, and the state that they need.
pub(crate) struct Referee {
    /// Writes are durable when they return.
    sync: bool,
    stage: Arc<Stage>,
    order: Option<Order>,
    step: usize,
    /// Openers and their files.
    handles: BTreeMap<&'static str, usize>,
    /// Openers that are still to get the error of lost data.
    owed: BTreeSet<&'static str>,
    /// The loss is known, and some caller got the error.
    reported: bool,
    /// The file whose data was lost.
    lost: Option<usize>,
    /// No call that writes everything has reported it.
    owed_to_all: bool,
    /// The file system refuses changes.
    latched: bool,
    /// The result of an operation that met the fault, for the totals.
    pub(crate) outcome: Option<String>,
    pub(crate) complaints: Vec<String>,
}

impl Referee {
    pub(crate) fn new(stage: Arc<Stage>, sync: bool) -> Self {
        Self {
            sync,
            order: stage.order(),
            stage,
            step: 0,
            handles: BTreeMap::new(),
            owed: BTreeSet::new(),
            reported: false,
            lost: None,
            owed_to_all: false,
            latched: false,
            outcome: None,
            complaints: Vec::new(),
        }
    }

    /// Returns whether a fault may be on record.
    pub(crate) fn stopped(&self) -> bool {
        let of_data = |seen: Seen| matches!(seen.cargo, Cargo::Data(_));
        self.stage.fired().is_some_and(|seen| !of_data(seen))
            || self.order.is_some_and(|order| order.mode.lasts())
    }

    pub(crate) fn begin(&mut self) {
        self.step += 1;
        self.stage.begin(self.step);
    }

    pub(crate) fn complain(&mut self, what: String) {
        self.complaints.push(what);
    }

    pub(crate) fn opened(&mut self, handle: &'static str, object: usize) {
        self.handles.insert(handle, object);
        if !self.reported && self.lost == Some(object) {
            // A failure that no caller has seen yet is new to a new opener.
            self.owed.insert(handle);
        }
    }

    pub(crate) fn closed(&mut self, handle: &'static str) {
        self.handles.remove(handle);
        self.owed.remove(handle);
    }

    /// Judges the result of a step. `faults` is the file system's own count.
    pub(crate) fn judge(
        &mut self,
        what: &str,
        role: &Role,
        result: &Result<()>,
        faults: u64,
        known: &mut Known,
    ) {
        let errno = result.as_ref().err().map_or(0, Error::errno);
        let fired = self.stage.fired();
        let verdict = match (fired, self.order) {
            (Some(_), Some(order)) if order.mode.lasts() => self.lasting(errno),
            (Some(seen), Some(order)) => {
                if seen.step == self.step {
                    self.outcome
                        .get_or_insert_with(|| format!("{}: {errno}", name(role)));
                }
                self.single(seen, order.mode, role, errno, faults, known)
            }
            _ if errno == 0 => Ok(()),
            _ => Err("nothing went wrong yet".to_owned()),
        };
        if let Err(why) = verdict {
            let reported = result.as_ref().err().map(ToString::to_string);
            self.complain(format!(
                "step {} ({what}) returned {errno} ({}): {why}",
                self.step,
                reported.unwrap_or_default()
            ));
        }
    }

    /// The device goes on failing: any error that says so will do. Steps that succeed nevertheless
    /// must be true.
    fn lasting(&mut self, errno: i32) -> Result<(), String> {
        if errno != 0 {
            self.outcome.get_or_insert_with(|| format!("{errno}"));
        }
        match errno {
            0 | EIO | EROFS => Ok(()),
            _ => Err("EIO or EROFS were expected".into()),
        }
    }

    fn single(
        &mut self,
        seen: Seen,
        mode: Mode,
        role: &Role,
        errno: i32,
        faults: u64,
        known: &mut Known,
    ) -> Result<(), String> {
        let now = seen.step == self.step;
        match (seen.cargo, seen.kind) {
            (Cargo::Data(id), RequestKind::Write) => {
                let object = known.writes[&id];
                self.lost_data(object, mode, now, role, errno, known)?;
                if faults > 0 {
                    return Err("lost data is no fault of the file system's".into());
                }
                Ok(())
            }
            (Cargo::Data(_), _) => match (now, errno) {
                (_, 0) => Ok(()),
                (true, EIO)
                    if matches!(role, Role::Read | Role::Change(Some(_)) | Role::Write(..)) =>
                {
                    Ok(())
                }
                _ => Err("only a caller that needs the data gets the error".into()),
            },
            (_, kind) => {
                if now {
                    self.latched |= faults > 0;
                    let behind = match kind {
                        // A step may have to wait for a write of the commit.
                        RequestKind::Write | RequestKind::Flush => !role.waits(),
                        RequestKind::Read => true,
                    };
                    if seen.by != Origin::Step && behind {
                        return self.met_by_another(kind, errno);
                    }
                    return self.met(kind, role, errno);
                }
                self.afterwards(role, errno, faults)
            }
        }
    }

    /// Data of `object` was lost: the next fsync of each opener says so, once, besides the call
    /// that wrote it back; no other call does.
    fn lost_data(
        &mut self,
        object: usize,
        mode: Mode,
        now: bool,
        role: &Role,
        errno: i32,
        known: &mut Known,
    ) -> Result<(), String> {
        let why = if mode == Mode::Full { ENOSPC } else { EIO };
        if self.lost.is_none() {
            self.lost = Some(object);
            known.objects[object].lost = true;
            let openers = self.handles.iter().filter(|(_, of)| **of == object);
            self.owed = openers.map(|(handle, _)| *handle).collect();
            self.owed_to_all = true;
        }
        let expected: &[i32] = match *role {
            Role::Fsync(handle, of) if of == object && self.owed.remove(handle) => {
                self.reported = true;
                &[why]
            }
            Role::Write(handle, of) if of == object && self.sync && self.owed.remove(handle) => {
                self.reported = true;
                &[why]
            }
            // Whatever an fsync returned.
            Role::Sync | Role::Unmount if std::mem::take(&mut self.owed_to_all) => &[why],
            // Truncation writes the zeros of the last block. A rename writes data that may be lost,
            // and goes on.
            Role::Change(Some(of)) if now && of == object => &[0, why],
            _ => &[0],
        };
        match expected.contains(&errno) {
            true => Ok(()),
            false => Err(format!("{expected:?} was expected")),
        }
    }

    /// The step whose metadata another thread failed to read or write: it ended before that, or met
    /// the consequences.
    fn met_by_another(&self, kind: RequestKind, errno: i32) -> Result<(), String> {
        match errno {
            0 => Ok(()),
            EIO | EROFS if self.latched => Ok(()),
            // A commit stopped the journal in the middle of the step: the error belongs to the next
            // step.
            EIO if kind != RequestKind::Read => Ok(()),
            _ => Err("EIO or EROFS were expected".into()),
        }
    }

    /// The step in which metadata could not be read or written, or the device not be flushed.
    fn met(&self, kind: RequestKind, role: &Role, errno: i32) -> Result<(), String> {
        match errno {
            0 if role.waits() && kind != RequestKind::Read => {
                Err("it promised what it could not".into())
            }
            0 => Ok(()),
            EUCLEAN if *role == Role::Mount => Ok(()),
            EIO => {
                let latches = !matches!(role, Role::Mount | Role::Unmount);
                if latches && !self.latched {
                    let what = "a failure of metadata, or of a flush, stops the file system";
                    return Err(what.into());
                }
                Ok(())
            }
            _ => Err("EIO was expected".into()),
        }
    }

    /// The steps after it: no change, or changes are refused.
    fn afterwards(&mut self, role: &Role, errno: i32, faults: u64) -> Result<(), String> {
        if !self.latched && faults > 0 && !matches!(role, Role::Mount) {
            // The first step that meets the fault gets its error.
            self.latched = true;
            if errno == EIO {
                return Ok(());
            }
        }
        let expected: &[i32] = match (self.latched, role) {
            (false, _) | (true, Role::Read | Role::Mount) => &[0],
            (true, Role::Unmount) => &[EIO, EROFS],
            (true, Role::Change(_) | Role::Write(..) | Role::Sync) => &[EROFS],
            // Of a file whose data could not be written any more, that error first.
            (true, Role::Fsync(..)) => &[EROFS, EIO],
        };
        match expected.contains(&errno) {
            true => Ok(()),
            false => Err(format!("{expected:?} was expected")),
        }
    }
}

fn name(role: &Role) -> &'static str {
    match role {
        Role::Mount => "mount",
        Role::Unmount => "unmount",
        Role::Sync => "sync",
        Role::Fsync(..) => "fsync",
        Role::Change(_) => "change",
        Role::Write(..) => "write",
        Role::Read => "read",
    }
}
