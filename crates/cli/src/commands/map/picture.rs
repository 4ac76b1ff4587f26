//! `extant map --plot`: where files lie on the device, as a picture (SVG).
//!
//! The picture of a file has its content from left to right and the device from bottom to top: a
//! file in one piece is one line. That of a directory shows the device as cells, darker the more of
//! a cell the files below the directory have, with a red edge where their later pieces begin.
//!
//! # Invariants
//! A picture takes bounded memory, whatever the image says: a file draws at most one mark for each
//! pixel, and a cell stands for more of the device the further a file reaches.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;

use extant::{Extent, FileKind, Filesystem, Node, Result, Volume};

use crate::output::size_word;
use crate::printable::harmless;

/// Pixels: the width of the picture, the height of a file's field, the edge of a cell.
const WIDTH: u64 = 1100;
const HEIGHT: u64 = 260;
const CELL: u64 = 10;
/// Room to the left of a field, to the right of it, and above it.
const LEFT: u64 = 90;
const RIGHT: u64 = 10;
const ABOVE: u64 = 56;
/// Room below a field.
const BELOW: u64 = 50;
/// Pixels of a field from left to right; cells in a row, and all of them.
const ACROSS: u64 = WIDTH - LEFT - RIGHT;
const ROW: usize = 100;
const CELLS: usize = 40 * ROW;

/// A picture that grows downwards, a panel for each operand.
#[derive(Default)]
pub(super) struct Picture {
    body: String,
    height: u64,
}

impl Picture {
    /// Adds the panel of what is at `path`.
    pub(super) fn add(&mut self, fs: &Filesystem, node: &Node, path: &Path) -> Result<()> {
        let name = escaped(&harmless(&path.to_string_lossy()));
        match node.kind() {
            FileKind::Directory => self.add_tree(fs, node, path, &name),
            _ => self.add_file(fs.volume(), node, &name),
        }
    }

    fn add_file(&mut self, volume: &Volume, node: &Node, name: &str) -> Result<()> {
        let placed = || {
            let extents = volume.map(node, 0);
            extents.filter(|extent| extent.as_ref().map_or(true, |e| e.physical.is_some()))
        };
        // The bounds first: extents are more than memory may hold.
        let (mut low, mut high, mut end, mut pieces) = (u64::MAX, 0, 1, Pieces::default());
        for extent in placed() {
            let extent = extent?;
            let start = extent.physical.expect("placed");
            low = low.min(start);
            high = high.max(start.saturating_add(extent.len));
            end = end.max(extent.logical.saturating_add(extent.len));
            pieces.add(&extent);
        }
        let top = self.begin(
            &format!("{name}: {}", pieces.words()),
            "The content from left to right, the device from bottom to top: one line is best.",
        );
        let bottom = top + HEIGHT;
        let mut marks = HashSet::new();
        for extent in placed() {
            let extent = extent?;
            let start = extent.physical.expect("placed");
            let along = |pos: u64| LEFT + part(pos, end, ACROSS);
            let up = |at: u64| bottom - part(at - low.min(at), (high - low).max(1), HEIGHT);
            let from = (along(extent.logical), up(start));
            let to = (
                along(extent.logical + extent.len),
                up(start.saturating_add(extent.len)),
            );
            // What comes to the same pixels is drawn once, so pixels bound the picture.
            if marks.insert((from, to)) {
                let colour = match extent.state.name() {
                    "unwritten" => "#e15a1e",
                    _ => "#1f77b4",
                };
                let _ = writeln!(
                    self.body,
                    "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{colour}\"/>",
                    from.0,
                    from.1,
                    to.0.max(from.0 + 1),
                    to.1
                );
            }
        }
        self.frame(top, HEIGHT);
        let low = low.min(high);
        self.text(LEFT - 8, top + 12, "end", &size_word(high));
        self.text(LEFT - 8, bottom, "end", &size_word(low));
        self.text(LEFT, bottom + 18, "start", "0");
        self.text(WIDTH - RIGHT, bottom + 18, "end", &size_word(end));
        self.height = bottom + BELOW;
        Ok(())
    }

    fn add_tree(&mut self, fs: &Filesystem, dir: &Node, path: &Path, name: &str) -> Result<()> {
        let volume = fs.volume();
        let mut cells = Cells::new(u64::from(volume.block_size()));
        let (mut pieces, mut files, mut seen) = (Pieces::default(), 0_u64, HashSet::new());
        let mut one = |node: &Node| -> Result<()> {
            use FileKind::{Directory, Regular, Symlink};
            if !matches!(node.kind(), Regular | Directory | Symlink) || !seen.insert(node.ino()) {
                return Ok(());
            }
            files += 1;
            pieces.next_file();
            for extent in volume.map(node, 0) {
                let extent = extent?;
                let later = pieces.add(&extent);
                if let Some(start) = extent.physical {
                    cells.add(start, extent.len, later);
                }
            }
            Ok(())
        };
        one(dir)?;
        for entry in fs.walk_dir(path)? {
            one(&volume.node(entry?.ino())?)?;
        }
        let shown = cells.shown();
        let top = self.begin(
            &format!("{name}: {files} files, {}", pieces.words()),
            &format!(
                "A cell is {} of the device: darker, the more of it they have; red, where a later \
                 piece of a file begins.",
                size_word(cells.bytes)
            ),
        );
        for (at, (used, begun)) in cells.used.iter().zip(&cells.begun).take(shown).enumerate() {
            let (x, y) = ((at % ROW) as u64 * CELL, (at / ROW) as u64 * CELL);
            let dark = 240 - part(*used, cells.bytes, 200);
            let edge = if *begun { "#c2272d" } else { "#ffffff" };
            let _ = writeln!(
                self.body,
                "<rect x=\"{}\" y=\"{}\" width=\"{edge_len}\" height=\"{edge_len}\" \
                 fill=\"rgb({dark},{dark},240)\" stroke=\"{edge}\"/>",
                LEFT + x,
                top + y,
                edge_len = CELL - 1
            );
        }
        let height = shown.div_ceil(ROW) as u64 * CELL;
        self.text(LEFT - 8, top + 10, "end", "0");
        self.text(
            LEFT - 8,
            top + height,
            "end",
            &size_word(cells.bytes * shown as u64),
        );
        self.height = top + height + BELOW;
        Ok(())
    }

    /// Writes a title and a line below it; returns where the field begins.
    fn begin(&mut self, title: &str, about: &str) -> u64 {
        let top = self.height;
        let _ = writeln!(
            self.body,
            "<text x=\"{RIGHT}\" y=\"{}\" font-size=\"18\">{title}</text>",
            top + 22
        );
        self.text(RIGHT, top + 44, "start", about);
        top + ABOVE
    }

    fn text(&mut self, x: u64, y: u64, anchor: &str, text: &str) {
        let _ = writeln!(
            self.body,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" font-size=\"13\">{text}</text>"
        );
    }

    fn frame(&mut self, top: u64, height: u64) {
        let _ = writeln!(
            self.body,
            "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{ACROSS}\" height=\"{height}\" fill=\"none\" \
             stroke=\"#999999\"/>"
        );
    }

    /// The whole picture.
    pub(super) fn end(self) -> String {
        let (width, height) = (WIDTH, self.height);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n{}</svg>\n",
            self.body
        )
    }
}

/// `of` of `whole`, where the whole is `scale` long.
fn part(of: u64, whole: u64, scale: u64) -> u64 {
    let part = u128::from(of.min(whole)) * u128::from(scale) / u128::from(whole.max(1));
    u64::try_from(part).expect("at most the scale")
}

/// A name as text of a picture.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// Counts extents, and the pieces that neighbours on the device make of them.
#[derive(Default)]
struct Pieces {
    extents: u64,
    pieces: u64,
    bytes: u64,
    /// The end of the last piece of the file on the device.
    end: Option<u64>,
}

impl Pieces {
    /// Adds an extent of a file; returns whether a piece of it begins that is not its first.
    /// Extents may overlap, and a damaged map's may end anywhere: sums and ends saturate.
    fn add(&mut self, extent: &Extent) -> bool {
        let Some(start) = extent.physical else {
            return false;
        };
        self.extents += 1;
        self.bytes = self.bytes.saturating_add(extent.len);
        let later = self.end.is_some_and(|end| end != start);
        self.pieces += u64::from(later || self.end.is_none());
        self.end = Some(start.saturating_add(extent.len));
        later
    }

    fn next_file(&mut self) {
        self.end = None;
    }

    fn words(&self) -> String {
        let plural = |count: u64, word: &str| match count {
            1 => format!("1 {word}"),
            count => format!("{count} {word}s"),
        };
        format!(
            "{} in {}, {}",
            size_word(self.bytes),
            plural(self.extents, "extent"),
            plural(self.pieces, "piece")
        )
    }
}

/// The device in cells of equal size. Extents may overlap, and a damaged map's may end anywhere:
/// sums and ends saturate.
struct Cells {
    /// Bytes of a cell.
    bytes: u64,
    /// Bytes of each that files have.
    used: Vec<u64>,
    /// A later piece of a file begins in it.
    begun: Vec<bool>,
}

impl Cells {
    fn new(bytes: u64) -> Cells {
        Cells {
            bytes,
            used: vec![0; CELLS],
            begun: vec![false; CELLS],
        }
    }

    /// The cell of a byte; cells become larger until there is one.
    fn at(&mut self, byte: u64) -> usize {
        loop {
            match usize::try_from(byte / self.bytes) {
                Ok(at) if at < CELLS => return at,
                _ => self.double(),
            }
        }
    }

    fn double(&mut self) {
        self.bytes = self.bytes.saturating_mul(2);
        for at in 0..CELLS / 2 {
            self.used[at] = self.used[2 * at].saturating_add(self.used[2 * at + 1]);
            self.begun[at] = self.begun[2 * at] || self.begun[2 * at + 1];
        }
        self.used[CELLS / 2..].fill(0);
        self.begun[CELLS / 2..].fill(false);
    }

    fn add(&mut self, start: u64, len: u64, later: bool) {
        let end = start.saturating_add(len);
        self.at(end.saturating_sub(1));
        let first = self.at(start);
        self.begun[first] |= later;
        let mut pos = start;
        while pos < end {
            let at = self.at(pos);
            let stop = end.min((at as u64 + 1).saturating_mul(self.bytes));
            self.used[at] = self.used[at].saturating_add(stop - pos);
            pos = stop;
        }
    }

    /// How many cells there are up to the last that is used.
    fn shown(&self) -> usize {
        let last = self.used.iter().rposition(|&used| used > 0);
        last.map_or(1, |last| last + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_grow_and_keep_what_they_hold() {
        let mut cells = Cells::new(1024);
        cells.add(0, 1024, false);
        cells.add(3 * 1024, 512, true);
        assert_eq!((cells.bytes, cells.shown()), (1024, 4));
        // Far behind: cells stand for more.
        let far = 1024 * CELLS as u64 * 4 - 1;
        cells.add(far, 1, false);
        assert_eq!((cells.bytes, cells.shown()), (4096, CELLS));
        assert_eq!((cells.used[0], cells.used[CELLS - 1]), (1536, 1));
        assert!(cells.begun[0] && !cells.begun[1]);
        // As far as a number reaches.
        cells.add(u64::MAX - 10, 100, false);
        assert_eq!(cells.used.iter().sum::<u64>(), 1537 + 10);
    }

    #[test]
    fn neighbours_on_the_device_are_one_piece() {
        let extent = |logical, physical| Extent {
            logical,
            physical,
            len: 4096,
            state: extant::ExtentState::Written,
        };
        let mut pieces = Pieces::default();
        assert!(!pieces.add(&extent(0, Some(8192))));
        assert!(!pieces.add(&extent(4096, Some(12288))));
        assert!(!pieces.add(&extent(8192, None)));
        assert!(pieces.add(&extent(12288, Some(0))));
        assert_eq!(pieces.words(), "12 KiB in 3 extents, 2 pieces");
        pieces.next_file();
        assert!(!pieces.add(&extent(0, Some(0))));
    }
}
