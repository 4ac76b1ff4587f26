//! See `extant_hostile::Target::Wire`.
#![no_main]

use extant_hostile::{Target, meter::Meter, run, seeds};
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static METER: Meter = Meter;

fuzz_target!(
    init: {
        seeds::all();
    },
    |data: &[u8]| run(Target::Wire, data)
);
