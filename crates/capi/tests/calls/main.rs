//! Sequences of C calls drawn from bytes: the fuzz target `c_interface`, a short round of it here.
#![allow(clippy::unwrap_used, reason = "tests")]

mod driver;

use driver::Image;
use extant_testkit::{Rng, content, report};

#[test]
fn calls_with_any_arguments_leave_a_sound_image() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let (runs, seed) = (
        number("EXTANT_RUNS").unwrap_or(100),
        number("EXTANT_SEED").unwrap_or(1),
    );
    let image = Image::new();
    let mut rng = Rng::new(seed);
    let mut done = driver::Tally::default();
    for _ in 0..runs {
        let bytes = content::fill(rng.next_u64(), 0, 600);
        done += image.run(&bytes);
    }
    // Both are common: refusals alone, or no refusals, would be a driver that tests little.
    report(&format!(
        "C calls: {} worked, {} were refused",
        done.worked, done.refused
    ));
    assert!(done.worked > 10 * runs, "{done:?}");
    assert!(done.refused > 10 * runs, "{done:?}");
}
