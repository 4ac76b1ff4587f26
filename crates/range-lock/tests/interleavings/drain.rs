//! The file's lock against each form of lock on a part, and against all of them.

use extant_range_lock::Step;
use extant_testkit::schedules::check_fails;

use crate::check;
use crate::pairs::model;
use crate::users::{Part, run, sectors};

model! {
    j36_the_files_lock_and_a_record: &[
        |world| {
            world.by_direct_record(sectors(0, 2));
            world.by_record(sectors(1, 3));
        },
        |world| world.by_drain(),
    ],
    a_drain_that_does_not_wait_for_records without DrainSeesRecords,
}

model! {
    j36_the_files_lock_and_a_slot: &[
        |world| {
            world.by_slot(sectors(0, 2));
            world.by_slot(sectors(4, 1));
        },
        |world| world.by_drain(),
    ],
    a_drain_that_does_not_wait_for_slots without DrainSeesSlots,
    a_slot_that_does_not_look_at_the_files_lock without SlotSeesFile,
    a_slot_that_looks_at_the_files_lock_too_early without SlotIsPublishedFirst,
}

model! {
    j36_the_files_lock_and_the_eof_lock: &[
        |world| {
            world.by_eof_alone(2);
            world.by_eof(3);
        },
        |world| world.by_drain(),
    ],
    a_drain_that_does_not_wait_for_the_eof_lock without DrainSeesEof,
    an_eof_lock_that_does_not_look_at_the_files_lock without EofSeesFile,
    an_eof_lock_that_looks_at_the_files_lock_too_early without EofIsPublishedFirst,
}

model! {
    j36_the_files_lock_and_all: &[
        |world| world.by_drain(),
        |world| world.by_slot(sectors(0, 2)),
        |world| world.by_eof_alone(3),
        |world| world.by_direct_record(sectors(2, 1)),
        |world| world.by_eof(4),
    ],
    a_drain_of_all_without_records without DrainSeesRecords,
    a_drain_of_all_without_slots without DrainSeesSlots,
    a_drain_of_all_without_the_eof_lock without DrainSeesEof,
}
