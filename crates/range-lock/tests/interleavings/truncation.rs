//! Truncation and operations on the whole file against overwrites, appends and direct writes, at
//! the level of this crate.

use std::sync::Arc;

use extant_range_lock::Step;
use extant_testkit::schedules::check_fails;
use shuttle::thread;

use crate::check;
use crate::file::{Fault, File};

/// Runs both with the file, and asks `judge` afterwards whether that went well. The file is gone
/// when a fault is reported.
fn both<A: Send + 'static, B: Send + 'static>(
    file: Arc<File>,
    first: impl FnOnce(&File) -> A + Send + 'static,
    second: impl FnOnce(&File) -> B + Send + 'static,
    judge: impl FnOnce(&File, A, B) -> bool,
) {
    let (a, b) = (file.clone(), file.clone());
    let first = thread::spawn(move || first(&a));
    let second = thread::spawn(move || second(&b));
    let (first, second) = (first.join().unwrap(), second.join().unwrap());
    let fine = !file.has_fault() && judge(&file, first, second);
    drop(file);
    assert!(fine, "the operations disturbed each other");
}

/// Bytes behind the end of the file read as zeros when it grows again.
fn truncation_and_overwrite(fault: Fault) {
    let file = File::new(6, 4, fault);
    both(
        file,
        |file| file.truncate(3),
        |file| (file.overwrite(3, 7), file.overwrite(2, 8)),
        |file, (), (_, below)| {
            let kept = file.cached(2) == Some(if below { 8 } else { 1 });
            kept && (file.size(), file.cached(3), file.cached(5)) == (3, Some(0), None)
        },
    );
}

#[test]
fn truncation_and_a_fast_overwrite() {
    check(|| truncation_and_overwrite(Fault::None));
}

#[test]
fn an_overwrite_that_asks_before_it_has_the_folio() {
    check_fails(|| truncation_and_overwrite(Fault::AsksTooEarly));
}

#[test]
fn an_overwrite_that_reads_the_size_before_it_asks() {
    check_fails(|| truncation_and_overwrite(Fault::ReadsSizeFirst));
}

#[test]
fn a_truncation_that_cuts_before_it_locks() {
    check_fails(|| truncation_and_overwrite(Fault::CutsTooEarly));
}

/// An append comes before the cut or after it.
fn truncation_and_append(fault: Fault) {
    let file = File::new(5, 4, fault);
    both(
        file,
        |file| file.truncate(3),
        |file| file.append(7),
        |file, (), appended| {
            let expected = match appended {
                Some(3) => (4, Some(7), None),
                Some(5) | None => (3, Some(0), None),
                Some(_) => return false,
            };
            (file.size(), file.cached(3), file.cached(5)) == expected
        },
    );
}

#[test]
fn truncation_and_an_append() {
    check(|| truncation_and_append(Fault::None));
}

#[test]
fn an_append_and_a_truncation_that_cuts_before_it_locks() {
    check_fails(|| truncation_and_append(Fault::CutsTooEarly));
}

#[test]
fn an_append_and_a_truncation_that_share_the_eof_word() {
    check_fails(|| truncation_and_append(Fault::Lock(Step::EofIsExchanged)));
}

/// A block is not freed under a direct write.
fn truncation_and_direct_write(fault: Fault) {
    let file = File::new(8, 0, fault);
    both(
        file,
        |file| file.truncate(4),
        |file| (file.write_direct(3, 7), file.write_direct(1, 7)),
        |file, (), (_, below)| (file.size(), file.stored(2)) == (4, if below { 7 } else { 1 }),
    );
}

#[test]
fn truncation_and_a_direct_write() {
    check(|| truncation_and_direct_write(Fault::None));
}

#[test]
fn a_truncation_that_does_not_look_at_slots() {
    check_fails(|| truncation_and_direct_write(Fault::Lock(Step::EofSeesSlots)));
}

#[test]
fn a_direct_write_that_does_not_look_at_the_end() {
    check_fails(|| truncation_and_direct_write(Fault::Lock(Step::SlotSeesEof)));
}

/// Data written before the cache was dropped is on the device, whichever path it took.
fn collapse_and_writes(fault: Fault) {
    let file = File::new(5, 3, fault);
    both(
        file,
        File::collapse,
        |file| (file.overwrite(1, 7), file.append(9)),
        |file, (), (over, at)| {
            let now = |cell| file.cached(cell).unwrap_or(file.stored(cell));
            now(1) == if over { 7 } else { 1 } && at.is_none_or(|at| now(at) == 9)
        },
    );
}

#[test]
fn the_whole_file_and_writes() {
    check(|| collapse_and_writes(Fault::None));
}

#[test]
fn an_overwrite_that_ignores_the_files_lock() {
    check_fails(|| collapse_and_writes(Fault::IgnoresFileLock));
}

#[test]
fn an_append_that_ignores_the_files_lock() {
    check_fails(|| collapse_and_writes(Fault::Lock(Step::EofSeesFile)));
}

#[test]
fn a_drain_that_ignores_an_append() {
    check_fails(|| collapse_and_writes(Fault::Lock(Step::DrainSeesEof)));
}

/// Direct writes are over before the file is changed as a whole.
fn collapse_and_direct_write(fault: Fault) {
    let file = File::new(8, 0, fault);
    let whole = |file: &File| {
        file.alone(|| {
            if file.stored(2) != file.stored(3) {
                file.note_fault();
            }
        });
    };
    let write = |file: &File| file.write_direct(1, 7);
    both(file, whole, write, |_, (), _| true);
}

#[test]
fn the_whole_file_and_a_direct_write() {
    check(|| collapse_and_direct_write(Fault::None));
}

#[test]
fn a_drain_that_ignores_a_direct_write() {
    check_fails(|| collapse_and_direct_write(Fault::Lock(Step::DrainSeesSlots)));
}

#[test]
fn a_direct_write_that_ignores_the_files_lock() {
    check_fails(|| collapse_and_direct_write(Fault::Lock(Step::SlotSeesFile)));
}
