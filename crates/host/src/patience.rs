//! How long other programs are waited for on a machine that runs many suites at once.

use std::time::Duration;

/// The variable with the limit of one test in seconds.
const VARIABLE: &str = "EXTANT_TEST_LIMIT";
/// Its value unless it is set. All other limits are made for this one.
const DEFAULT: u32 = 600;

/// `limit`, longer by as many times as `EXTANT_TEST_LIMIT` exceeds its default. Never shorter.
pub fn patience(limit: Duration) -> Duration {
    scaled(limit, std::env::var(VARIABLE).ok().as_deref())
}

fn scaled(limit: Duration, of_a_test: Option<&str>) -> Duration {
    let seconds = of_a_test.and_then(|text| text.parse::<u32>().ok());
    let seconds = seconds.unwrap_or(DEFAULT).max(DEFAULT);
    limit.saturating_mul(seconds) / DEFAULT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_grow_with_that_of_a_test_and_never_shrink() {
        let limit = Duration::from_secs(120);
        for (of_a_test, expected) in [
            (None, 120),
            (Some("600"), 120),
            (Some("3600"), 720),
            (Some("900"), 180),
            (Some("60"), 120),
            (Some("long"), 120),
        ] {
            assert_eq!(
                scaled(limit, of_a_test).as_secs(),
                expected,
                "{of_a_test:?}"
            );
        }
    }
}
