//! See `extant_hostile::Target::Extents`.
#![no_main]

use extant_hostile::{Target, meter::Meter, run};
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static METER: Meter = Meter;

fuzz_target!(|data: &[u8]| run(Target::Extents, data));
