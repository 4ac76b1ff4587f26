//! A power cut: from the log of a device to the bytes that are left.

use extant_testkit::{Event, Rng};

const SECTOR: usize = 512;

/// Returns the medium after the power went behind `events`, of which the drive wrote what a flush
/// covers and some of the rest, sector by sector, in any order.
pub(crate) fn left_over(mut bytes: Vec<u8>, events: &[Event], seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let flush = events.iter().rev().find_map(|event| match event {
        Event::Flush { covers } => Some(*covers),
        _ => None,
    });
    let durable = flush.unwrap_or(0);
    // Nearly all and nearly none are as likely as half.
    let keep = rng.below(9);
    for (index, event) in events.iter().enumerate() {
        let Event::Write { offset, data } = event else {
            continue;
        };
        let at = usize::try_from(offset.get()).unwrap();
        let kept = index < durable || rng.below(8) < keep;
        if kept {
            bytes[at..at + data.len()].copy_from_slice(data);
        } else if rng.chance(10) {
            for (nth, sector) in data.chunks(SECTOR).enumerate() {
                if rng.chance(50) {
                    let at = at + nth * SECTOR;
                    bytes[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
    }
    bytes
}
