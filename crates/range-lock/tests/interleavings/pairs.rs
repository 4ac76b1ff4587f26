//! Each two users of the range lock, and each step that keeps them apart left out.

use extant_range_lock::{ByteRange, Step};
use extant_testkit::schedules::check_fails;

use crate::check;
use crate::users::{Part, run, sectors};

/// A model of the parts, and a twin for each step that has to be missed when it is left out.
macro_rules! model {
    ($name:ident: $parts:expr $(, $twin:ident without $step:ident)* $(,)?) => {
        #[test]
        fn $name() {
            const PARTS: &[Part] = $parts;
            check(|| run(None, PARTS));
        }
        $(
            #[test]
            fn $twin() {
                const PARTS: &[Part] = $parts;
                check_fails(|| run(Some(Step::$step), PARTS));
            }
        )*
    };
}
pub(crate) use model;

model! {
    j36_a_record_and_a_slot: &[
        |world| {
            world.by_slot(sectors(0, 2));
            world.by_slot(sectors(2, 2));
        },
        |world| world.by_slot(sectors(1, 2)),
        |world| world.by_record(sectors(1, 4)),
    ],
    a_record_that_does_not_look_at_slots without RecordSeesSlots,
    a_record_that_looks_too_early without RecordIsPublishedFirst,
    a_slot_that_does_not_look_at_records without SlotSeesRecords,
    a_slot_that_is_published_too_late without SlotIsPublishedFirst,
}

model! {
    j36_a_record_and_the_eof_lock: &[
        |world| {
            world.by_eof_alone(3);
            world.by_eof_alone(2);
        },
        |world| world.by_record(sectors(1, 2)),
        |world| world.by_tried_record(sectors(3, 1)),
        |world| world.by_eof(4),
    ],
    a_record_that_does_not_look_at_the_eof_word without RecordSeesEof,
    a_record_that_looks_at_the_eof_word_too_early without RecordIsPublishedFirst,
    an_eof_lock_that_does_not_look_at_records without EofSeesRecords,
    an_eof_word_that_is_published_too_late without EofIsPublishedFirst,
}

model! {
    j36_a_slot_and_the_eof_lock: &[
        |world| {
            world.by_slot(sectors(3, 1));
            world.by_slot(sectors(1, 1));
        },
        |world| world.by_eof_alone(2),
        |world| world.by_eof(1),
    ],
    a_slot_that_does_not_look_at_the_eof_word without SlotSeesEof,
    an_eof_lock_that_does_not_look_at_slots without EofSeesSlots,
}

model! {
    j36_a_slot_and_a_slot: &[
        |world| world.by_slot(sectors(0, 2)),
        |world| {
            world.by_slot(sectors(1, 1));
            world.by_slot(sectors(2, 1));
        },
        |world| world.by_slot(sectors(1, 4)),
    ],
    a_slot_that_does_not_look_at_slots without SlotSeesSlots,
}

model! {
    j36_an_eof_lock_and_an_eof_lock: &[
        |world| world.by_eof_alone(3),
        |world| world.by_eof(2),
        |world| world.by_eof_alone(5),
    ],
    an_eof_word_that_two_threads_take without EofIsExchanged,
}

model! {
    j36_a_record_and_a_record: &[
        |world| world.by_record(sectors(0, 3)),
        |world| world.by_record(ByteRange::to_infinity(1024)),
        |world| world.by_tried_record(sectors(2, 2)),
    ],
}

// Fills keep out direct I/O, and nothing else.
model! {
    a_fill_and_direct_io: &[
        |world| world.by_fill(sectors(0, 3)),
        |world| world.by_direct_record(sectors(1, 2)),
        |world| world.by_slot(sectors(2, 1)),
    ],
    a_fill_that_does_not_look_at_slots without RecordSeesSlots,
    a_slot_that_does_not_look_at_fills without SlotSeesRecords,
}

model! {
    a_fill_within_a_locked_range: &[
    |world| {
        let shared = world.inode.read();
        let held = world.locks.lock(sectors(0, 4), &shared);
        world.by_fill(sectors(1, 2));
        drop(held);
        let held = world.locks.lock_eof(512, &shared);
        world.by_fill(sectors(1, 2));
        drop(held);
    },
    |world| world.by_slot(sectors(1, 1)),
    ],
}

model! {
    j39_a_waiter_for_a_slot_is_woken: &[
        |world| {
            world.by_slot(sectors(0, 2));
            world.by_slot(sectors(0, 2));
        },
        |world| world.by_record(ByteRange::to_infinity(512)),
        |world| world.locks.wait_unlocked(),
        |world| world.by_tried_record(sectors(0, 1)),
    ],
    a_waiter_for_a_slot_that_is_not_woken without ReleaseWakes,
    a_waiter_for_a_slot_that_is_counted_too_late without WaiterIsCountedFirst,
}

model! {
    j39_a_waiter_for_the_eof_lock_is_woken: &[
        |world| world.by_eof_alone(2),
        |world| world.by_record(sectors(1, 2)),
        |world| world.locks.wait_unlocked(),
    ],
    a_waiter_for_the_eof_lock_that_is_not_woken without ReleaseWakes,
    a_waiter_for_the_eof_lock_that_is_counted_too_late without WaiterIsCountedFirst,
}
