//! Sequences of C calls: see the driver.
#![no_main]

#[path = "../../crates/capi/tests/calls/driver.rs"]
mod driver;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

static IMAGE: OnceLock<driver::Image> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    IMAGE.get_or_init(driver::Image::new).run(data);
});
