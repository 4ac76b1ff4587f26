//! The promises that must hold after a power cut at any step.
//!
//! All that a sync covered that had returned by then is there: the content of a file, with its
//! size, if no later call changes it; otherwise each cell has what was covered, or what a later
//! call gave it. No cell has anything else. Names and attributes likewise. The volume is mounted,
//! which replays its log, and is clean afterwards.

use crate::cells::MOST_VALUE;
use crate::history::{Call, outcomes};
use crate::model::{Part, State, Value};
use crate::program::Op;

/// A file as the mount after the cut shows it.
pub(crate) struct Found {
    pub(crate) values: Vec<Value>,
    pub(crate) attr: Value,
}

/// Everything that the mount after the cut shows: a file without a name is not there.
pub(crate) struct Survivors {
    pub(crate) files: Vec<Option<Found>>,
    pub(crate) names: Vec<Option<usize>>,
}

/// The promise of one thing: the states that the last sync may have covered, and the calls
/// that may have changed it since.
struct Promise<'a> {
    covered: Vec<State>,
    later: Vec<&'a Call>,
    /// Of those that ended before, some may have moved what a later one had given.
    moves_later: bool,
}

/// The file that a part changes the content of.
fn content(part: &Part) -> Option<usize> {
    match *part {
        Part::Write(file, ..)
        | Part::Store(file, ..)
        | Part::Append(file, ..)
        | Part::Fade(file, ..)
        | Part::Zero(file, ..)
        | Part::Change(file, ..)
        | Part::Extend(file, ..)
        | Part::Resize(file, ..)
        | Part::Collapse(file, ..)
        | Part::Clear(_, file, ..)
        | Part::Save(_, file, ..)
        | Part::Insert(file, ..) => Some(file),
        _ => None,
    }
}

fn moves(part: &Part) -> bool {
    matches!(part, Part::Collapse(..) | Part::Insert(..))
}

fn changes_names(part: &Part) -> bool {
    matches!(
        part,
        Part::Rename(..) | Part::Exchange(..) | Part::Link(..) | Part::Unlink(..)
    )
}

/// A power cut: what came before.
pub(crate) struct Cut<'a> {
    /// The state when the calls began.
    pub(crate) first: &'a State,
    /// It was durable.
    pub(crate) synced: bool,
    /// The size on disk may move before the data: what the end has not got yet reads as zeros.
    pub(crate) size_first: bool,
    pub(crate) calls: &'a [Call],
    /// Writes and flushes of the device until then.
    pub(crate) events: usize,
    /// Those until which a sync counts: what a failed write loses is told, and not there.
    pub(crate) counted: usize,
}

/// The promise about what `concerns` says; `syncs` says which calls cover it. Without one the first
/// state is covered if it was synced.
fn promise<'a>(
    cut: &Cut<'a>,
    concerns: impl Fn(&Part) -> bool,
    syncs: impl Fn(Op) -> bool,
) -> Option<Promise<'a>> {
    let Cut {
        first,
        synced,
        calls,
        events,
        counted,
        ..
    } = *cut;
    let covers =
        |call: &&Call| call.events.1 <= counted && !call.failed && call.op.is_some_and(&syncs);
    let last = calls.iter().filter(covers).map(|call| call.begin).max();
    let last = last.or(synced.then_some(0))?;
    let changing = calls.iter().filter(|call| call.parts.iter().any(&concerns));
    let begun = changing.filter(|call| call.events.0 <= events);
    let (before, later): (Vec<_>, Vec<_>) = begun.partition(|call| call.end < last);
    // None if the calls before were possible only with later ones.
    let covered = outcomes(first, &before).filter(|states| !states.is_empty())?;
    let moved_at = before.iter().filter(|call| call.parts.iter().any(moves));
    let moved_at = moved_at.map(|call| call.end).max();
    Some(Promise {
        covered,
        moves_later: later.iter().any(|call| Some(call.begin) < moved_at),
        later,
    })
}

/// Judges what a cut left.
pub(crate) fn judge(cut: &Cut<'_>, found: &Survivors) -> Result<(), String> {
    for (file, found) in found.files.iter().enumerate() {
        let Some(found) = found else { continue };
        let concerns = |part: &Part| content(part) == Some(file);
        let syncs =
            |op| op == Op::Sync || matches!(op, Op::Fsync(of, _) | Op::Evict(of) if of == file);
        if let Some(promise) = promise(cut, concerns, syncs) {
            judge_content((file, cut.size_first), &promise, &found.values)?;
        }
        let concerns = |part: &Part| matches!(*part, Part::SetAttr(of, _) if of == file);
        let syncs = |op| op == Op::Sync || op == Op::Fsync(file, false);
        if let Some(Promise { covered, later, .. }) = promise(cut, concerns, syncs) {
            let set = |call: &&Call| call.parts.contains(&Part::SetAttr(file, found.attr));
            let is_covered = covered.iter().any(|state| state.attr(file) == found.attr);
            if !is_covered && !later.iter().any(set) {
                return Err(format!("file {file} has the attribute {}", found.attr));
            }
        }
    }
    let promise = promise(cut, changes_names, |op| op == Op::Sync);
    if let Some(Promise { covered, later, .. }) = promise
        && later.is_empty()
        && !covered.iter().any(|state| state.names() == found.names)
    {
        return Err(format!("the names lead to {:?}", found.names));
    }
    Ok(())
}

/// Judges the cells of a file, whose size may have moved first.
fn judge_content(
    (file, size_first): (usize, bool),
    promise: &Promise<'_>,
    found: &[Value],
) -> Result<(), String> {
    let Promise { covered, later, .. } = promise;
    let shows = |state: &State, cell: usize| state.may_show(file, cell, found[cell]);
    if later.is_empty() {
        let is_found = |state: &&State| {
            state.size(file) == found.len() && (0..found.len()).all(|cell| shows(state, cell))
        };
        return match covered.iter().any(|state| is_found(&state)) {
            true => Ok(()),
            false => Err(told(file, covered, found, String::new())),
        };
    }
    let parts: Vec<_> = later.iter().flat_map(|call| &call.parts).collect();
    if promise.moves_later || parts.iter().any(|part| moves(part)) {
        return Ok(());
    }
    let cuts = parts.iter().any(|part| matches!(part, Part::Resize(..)));
    if !cuts && covered.iter().all(|state| found.len() < state.size(file)) {
        return Err(told(file, covered, found, "it is cut; ".to_owned()));
    }
    for (cell, value) in found.iter().enumerate() {
        let was = covered.iter().any(|state| shows(state, cell));
        let is_cut = covered.iter().any(|state| state.size(file) <= cell);
        let leaves_gap = |call: &&Call| leaves_gap(call, cell, is_cut);
        let is_gap = *value == 0 && (size_first && is_cut || later.iter().any(leaves_gap));
        if !was && !is_gap && !parts.iter().any(|part| gives(part, cell, *value)) {
            return Err(told(
                file,
                covered,
                found,
                format!("cell {cell}: {value}; "),
            ));
        }
    }
    Ok(())
}

/// The words for a file that has not what it should have.
fn told(file: usize, covered: &[State], found: &[Value], what: String) -> String {
    let covered: Vec<_> = covered.iter().map(|state| state.values(file)).collect();
    format!("{what}file {file} has {found:?}, and {covered:?} was covered")
}

/// Returns whether a part may give a cell that value.
fn gives(part: &Part, cell: usize, value: Value) -> bool {
    match *part {
        Part::Write(_, at, ref values)
        | Part::Store(_, at, ref values)
        | Part::Append(_, at, ref values)
        | Part::Change(_, at, ref values) => {
            cell.checked_sub(at).and_then(|number| values.get(number)) == Some(&value)
        }
        Part::Fade(_, at, len) | Part::Zero(_, at, len) => {
            value == 0 && (at..at + len).contains(&cell)
        }
        Part::Resize(_, to) => value == 0 && cell >= to,
        // Of what some call wrote any: old bytes of blocks are no such value.
        Part::Save(_, _, at) => cell >= at && value < MOST_VALUE,
        _ => false,
    }
}

/// Returns whether a call may make a file longer and leave a cell before what it writes untouched.
/// If the file may have been cut before the cell (`is_cut`), the last part of a write that waited
/// for space may come after that, and its first one before.
fn leaves_gap(call: &Call, cell: usize, is_cut: bool) -> bool {
    let mut written = call.parts.iter().filter_map(|part| match *part {
        Part::Write(_, at, _)
        | Part::Append(_, at, _)
        | Part::Change(_, at, _)
        | Part::Save(_, _, at) => Some(at),
        _ => None,
    });
    let extends = call.parts.iter().any(|part| match *part {
        Part::Extend(_, to) | Part::Resize(_, to) => cell < to,
        // The size on disk moves up to the end of what becomes zeros.
        Part::Zero(_, at, len) => cell < at + len,
        _ => false,
    });
    let leaves = |at: usize| cell < at;
    extends
        || if is_cut {
            written.any(leaves)
        } else {
            written.min().is_some_and(leaves)
        }
}
