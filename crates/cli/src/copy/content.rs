//! Moving the content of one file; holes are skipped.

use super::tree::{Source, Target, UNKNOWN};
use crate::failure::Failure;
use crate::progress::Progress;

/// Bytes moved at once.
pub(super) const CHUNK: usize = 1 << 20;

/// Copies `len` bytes, or all there are if that is [`UNKNOWN`]. A file that shrinks meanwhile gives a shorter copy.
pub(super) fn copy(
    from: &dyn Source,
    to: &dyn Target,
    len: u64,
    buf: &mut [u8],
    progress: &Progress,
) -> Result<(), Failure> {
    let mut pos = 0;
    let mut ended = None;
    while let Some((start, end)) = from.next_data(pos)?.filter(|&(start, _)| start < len) {
        progress.add(start.saturating_sub(pos));
        pos = start;
        let end = end.min(len);
        while pos < end {
            let want = usize::try_from(end - pos)
                .unwrap_or(usize::MAX)
                .min(buf.len());
            let Some(piece) = buf.get_mut(..want) else {
                break;
            };
            let got = from.read_at(piece, pos)?;
            if got == 0 {
                ended = Some(pos);
                break;
            }
            to.write_at(piece.get(..got).unwrap_or(&[]), pos)?;
            pos += got as u64;
            progress.add(got as u64);
        }
        if ended.is_some() {
            break;
        }
    }
    if len != UNKNOWN {
        progress.add(len.saturating_sub(pos));
    }
    to.set_len(ended.unwrap_or(len))
}
