//! Amounts that are measured once, and how often the others are.

use crate::rows::Unit;

/// The most rounds: each takes seconds, and counts differ little.
pub(super) const ROUNDS: u32 = 5;

/// Figures of the chunks of two versions, and of a push and a pull.
pub(super) const OTHERS: [(&str, Unit); 6] = [
    ("chunks/image", Unit::Chunks),
    ("chunks/changed", Unit::Chunks),
    ("bytes/image", Unit::Mebibytes),
    ("bytes/changed", Unit::Mebibytes),
    ("push", Unit::MibPerSecond),
    ("pull", Unit::MibPerSecond),
];

/// Bytes in MiB.
#[expect(clippy::cast_precision_loss, reason = "a figure with three digits")]
pub(super) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
