//! Amounts that are measured once, and how often the others are.

/// The most rounds: each takes seconds, and counts differ little.
pub(super) const ROUNDS: u32 = 5;

/// Bytes in MiB.
#[expect(clippy::cast_precision_loss, reason = "a figure with three digits")]
pub(super) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
