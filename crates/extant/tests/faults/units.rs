//! File contents that identify themselves: any 16 aligned bytes name their write and their
//! position.

/// How every unit begins. Free space of the images is junk, and metadata never begins with this.
const MAGIC: [u8; 2] = [0xd7, 0xa7];
/// Bytes of a unit.
const UNIT: usize = 16;

/// The bytes of write `id` at `pos .. pos + len`, where `pos` is a multiple of 16.
pub(crate) fn content(id: u16, pos: usize, len: usize) -> Vec<u8> {
    assert_eq!(pos % UNIT, 0, "writes begin at a unit");
    let units = (pos / UNIT..).flat_map(|number| unit(id, number));
    units.take(len).collect()
}

fn unit(id: u16, number: usize) -> [u8; UNIT] {
    let number = u32::try_from(number).unwrap();
    let mixed = (u64::from(id) << 32 | u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut unit = [0; UNIT];
    unit[..2].copy_from_slice(&MAGIC);
    unit[2..4].copy_from_slice(&id.to_le_bytes());
    unit[4..8].copy_from_slice(&number.to_le_bytes());
    unit[8..].copy_from_slice(&mixed.to_le_bytes());
    unit
}

/// Which write the data at the beginning of `bytes` belongs to, if it is data.
fn id_of(bytes: &[u8]) -> Option<u16> {
    let unit = bytes.get(..UNIT)?;
    let id = u16::from_le_bytes([unit[2], unit[3]]);
    (unit[..2] == MAGIC).then_some(id)
}

/// Position at which the unit at the beginning of `bytes` was written, in units.
fn number_of(bytes: &[u8]) -> Option<usize> {
    let number = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
    usize::try_from(number).ok()
}

/// Which write some of the data in `bytes` belongs to, if there is data.
pub(crate) fn id_in(bytes: &[u8]) -> Option<u16> {
    bytes.chunks(UNIT).find_map(id_of)
}

/// The first position where the bytes of a file are neither zero nor those of a write; the last
/// unit may be cut, and the cut zeroed. In a file that had ranges taken out or put in, units may
/// have `moved`.
pub(crate) fn first_foreign(
    bytes: &[u8],
    known: impl Fn(u16) -> bool,
    moved: bool,
) -> Option<usize> {
    bytes.chunks(UNIT).enumerate().find_map(|(number, got)| {
        let fine = match id_of(got) {
            Some(id) if known(id) => {
                let home = number_of(got).filter(|_| moved).unwrap_or(number);
                same_or_cut(got, &unit(id, home))
            }
            // Too short, or begun with zeros: its write is unknown.
            _ => got.iter().all(|&b| b == 0) || got.len() < UNIT || cut_early(got, number, &known),
        };
        (!fine).then_some(number * UNIT)
    })
}

/// Returns whether `got` is a beginning of `want`, and then zeros.
fn same_or_cut(got: &[u8], want: &[u8]) -> bool {
    let same = got.iter().zip(want).take_while(|(a, b)| a == b).count();
    got[same..].iter().all(|&b| b == 0)
}

/// Returns whether `got` is a unit cut so early that its number is gone.
fn cut_early(got: &[u8], number: usize, known: &impl Fn(u16) -> bool) -> bool {
    (0..=u16::MAX)
        .filter(|&id| known(id))
        .any(|id| same_or_cut(got, &unit(id, number)))
}
