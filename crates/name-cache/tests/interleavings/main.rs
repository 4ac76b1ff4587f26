//! The protocol of the name cache under a model checker that chooses every switch between threads
//! (shuttle). Built with `--cfg extant_shuttle` only: `cargo xtask test` does that.
//!
//! `world` is a directory and its inodes, changed and looked up by the rules in the crate's header.
//! Each model has twins that leave out one step of the cache (`Step`) or of its user (`Rule`), in
//! which the checker has to find the fault.
#![cfg(extant_shuttle)]

mod world;

use extant_name_cache::Step;
use extant_testkit::schedules;

use crate::world::{Omitted, Part, Rule, run};

/// Schedules of each kind for a model.
const SCHEDULES: usize = 600;

/// A model of the parts, and a twin for each step that has to be missed when it is left out.
macro_rules! model {
    ($name:ident: $parts:expr $(, $twin:ident without $omitted:expr)* $(,)?) => {
        #[test]
        fn $name() {
            const PARTS: &[Part] = $parts;
            schedules::check(SCHEDULES, || run(Omitted::None, PARTS));
        }
        $(
            #[test]
            fn $twin() {
                const PARTS: &[Part] = $parts;
                schedules::check_fails(|| run($omitted, PARTS));
            }
        )*
    };
}

// The number of the file behind "a" is used again by the file behind "b".
model! {
    a_lookup_and_an_unlink_whose_number_is_used_again: &[
        |world| {
            world.unlink("a");
            world.create("b");
        },
        |world| {
            world.lookup("a");
            world.lookup("b");
        },
    ],
    a_ticket_that_is_not_compared without Omitted::Step(Step::TicketIsCompared),
    an_unlink_that_forgets_no_name without Omitted::Step(Step::NamesAreForgotten),
    an_entry_filled_after_the_lock without Omitted::Rule(Rule::FillUnderLock),
}

// Another thread uses the number again.
model! {
    a_lookup_an_unlink_and_a_create: &[
        |world| world.unlink("a"),
        |world| world.create("b"),
        |world| world.lookup("a"),
    ],
    an_unlink_that_forgets_too_late without Omitted::Rule(Rule::ForgetUnderLock),
}

model! {
    a_lookup_and_a_create: &[
        |world| {
            world.lookup("b");
            world.create("b");
            world.lookup_is("b", true);
            world.unlink("b");
            world.lookup_is("b", false);
        },
        |world| {
            world.lookup("b");
            world.lookup("b");
        },
    ],
    a_create_that_leaves_the_negative_entry without Omitted::Step(Step::NamesAreForgotten),
    a_negative_entry_filled_after_the_lock without Omitted::Rule(Rule::FillUnderLock),
}

model! {
    a_lookup_and_a_rename: &[
        |world| {
            world.rename("a", "b");
            world.lookup_is("a", false);
            world.lookup_is("b", true);
        },
        |world| world.not_both("b", "a"),
        |world| world.lookup("a"),
    ],
    a_rename_that_forgets_one_name_after_the_other
        without Omitted::Rule(Rule::ForgetAllNamesFirst),
}

// Names of one set: writers of different directories meet there.
model! {
    writers_of_one_set: &[
        |world| world.lookup("a"),
        |world| {
            world.other_name(3, "x");
            world.other_name(3, "y");
        },
        |world| {
            world.other_name(4, "x");
            world.lookup("a");
        },
    ],
    two_writers_at_a_time without Omitted::Step(Step::WritersExclude),
    a_writer_that_does_not_mark_the_sequence without Omitted::Step(Step::SequenceIsMarked),
    a_reader_that_looks_once without Omitted::Step(Step::ReaderLooksAgain),
}
