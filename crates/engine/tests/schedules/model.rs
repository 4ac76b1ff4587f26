//! The reference: files as rows of cells, names, and attributes.
//!
//! A cell is 512 bytes with one value. A call changes the state in parts, each at one moment: a
//! write block by block, as its mappings may end anywhere; a punch or a direct write by cells, in
//! any order. A part that shows something (a read's page, a size) is possible in some states only.

use crate::program::Protection;

/// Bytes of a cell.
pub(crate) const CELL: usize = 512;
/// Cells of a page.
pub(crate) const PAGE: usize = 4096 / CELL;

/// A cell's value: 0 is a hole, others name the call that wrote it and its number there.
pub(crate) type Value = u16;

/// A cell of a file.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Cell {
    value: Value,
    /// The value that a call under way gives it: both may be seen.
    next: Option<Value>,
}

/// All that the calls of a program can see.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    /// Of each file its cells up to its end.
    files: Vec<Vec<Cell>>,
    /// Of each name its file.
    names: Vec<Option<usize>>,
    /// Of each file the value of its attribute, 0 for none.
    attrs: Vec<Value>,
    /// Of each file its protection.
    protections: Vec<Protection>,
    /// Cells that copies under way have read, each with its target.
    loads: Vec<(Piece, Vec<Cell>)>,
    /// Of each copy the pieces that it has read, begun to clear, and written.
    copies: Vec<(usize, [usize; 3])>,
}

/// A piece of a copy: its call, and its number there.
pub(crate) type Piece = (usize, usize);

/// A step of a call, at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Cells get values at one moment; the file gets longer if they lie behind its end.
    Write(usize, usize, Vec<Value>),
    /// The same, of cells that the file has.
    Store(usize, usize, Vec<Value>),
    /// The same, where the file ends.
    Append(usize, usize, Vec<Value>),
    /// Cells begin to become zeros, one by one.
    Fade(usize, usize, usize),
    /// They are zeros.
    Zero(usize, usize, usize),
    /// Cells begin to get values, one by one.
    Change(usize, usize, Vec<Value>),
    /// A file that is shorter gets longer.
    Extend(usize, usize),
    /// A file gets a size.
    Resize(usize, usize),
    /// Cells leave, and those behind move to the front.
    Collapse(usize, usize, usize),
    /// Zeros come in between.
    Insert(usize, usize, usize),
    /// A copy reads cells of a file.
    Load(Piece, usize, usize, usize),
    /// A copy begins to make zeros of cells where it has read zeros, one by one.
    Clear(Piece, usize, usize),
    /// A copy writes a piece, which comes after those before it.
    Save(Piece, usize, usize),
    /// A file gets a protection.
    Protect(usize, Protection),
    /// A file's protection is not above this.
    Free(usize, Protection),
    /// A file has a protection.
    Barred(usize),
    /// A file that has a name, or had it, has a protection: one of all.
    SomeBarred,
    /// Cells have been seen.
    Show(usize, usize, Vec<Value>),
    /// The end of a file has been seen: there, or before.
    End(usize, usize),
    /// A size has been seen.
    Size(usize, usize),
    /// A search found data there, from a cell on.
    Data(usize, usize, Option<usize>),
    /// A name leads to a file, or to none.
    Name(usize, Option<usize>),
    /// One name goes to another.
    Rename(usize, usize),
    /// Two names change places.
    Exchange(usize, usize),
    /// A file that has a name gets a new one.
    Link(usize, usize),
    /// A name goes.
    Unlink(usize),
    /// The number of names of a file has been seen.
    Links(usize, usize),
    /// An attribute changes.
    SetAttr(usize, Value),
    /// An attribute has been seen.
    Attr(usize, Value),
}

impl Part {
    /// The value that a cell may be seen to have from this step on.
    pub(crate) fn begins_to_give(&self, file: usize, cell: usize) -> Option<Value> {
        match *self {
            Part::Change(of, at, ref values) if of == file => {
                values.get(cell.checked_sub(at)?).copied()
            }
            _ => self.gives(file, cell).flatten(),
        }
    }

    /// The value that a cell has for certain after this step, or some value; none if the step does
    /// not touch it.
    pub(crate) fn gives(&self, file: usize, cell: usize) -> Option<Option<Value>> {
        let value = |at: usize, values: &[Value]| {
            let number = cell.checked_sub(at)?;
            values.get(number).map(|value| Some(*value))
        };
        match *self {
            Part::Write(of, at, ref values)
            | Part::Store(of, at, ref values)
            | Part::Append(of, at, ref values)
                if of == file =>
            {
                value(at, values)
            }
            Part::Zero(of, at, len) if of == file => (at..at + len).contains(&cell).then_some(None),
            Part::Resize(of, to) if of == file => (cell >= to).then_some(None),
            _ => None,
        }
    }
}

impl State {
    /// Empty files, of which each has the name with its number; the other names have none.
    pub(crate) fn new(files: usize, names: usize) -> Self {
        Self {
            files: vec![Vec::new(); files],
            names: (0..names)
                .map(|name| (name < files).then_some(name))
                .collect(),
            attrs: vec![0; files],
            protections: vec![Protection::None; files],
            loads: Vec::new(),
            copies: Vec::new(),
        }
    }

    /// The values of a file's cells.
    pub(crate) fn values(&self, file: usize) -> Vec<Value> {
        self.files[file].iter().map(|cell| cell.value).collect()
    }

    /// The number of a file's cells.
    pub(crate) fn size(&self, file: usize) -> usize {
        self.files[file].len()
    }

    /// Returns whether a cell of a file may be seen to have that value.
    pub(crate) fn may_show(&self, file: usize, cell: usize, value: Value) -> bool {
        let cell = self.files[file].get(cell);
        cell.is_some_and(|cell| cell.value == value || cell.next == Some(value))
    }

    /// The files of the names.
    pub(crate) fn names(&self) -> &[Option<usize>] {
        &self.names
    }

    /// The value of a file's attribute.
    pub(crate) fn attr(&self, file: usize) -> Value {
        self.attrs[file]
    }

    fn links(&self, file: usize) -> usize {
        self.names
            .iter()
            .filter(|name| **name == Some(file))
            .count()
    }

    fn write(&mut self, file: usize, at: usize, values: &[Value]) {
        let cells = &mut self.files[file];
        if cells.len() < at + values.len() {
            cells.resize(at + values.len(), Cell::default());
        }
        for (cell, value) in cells[at..].iter_mut().zip(values) {
            *cell = Cell {
                value: *value,
                next: None,
            };
        }
    }

    fn within(&mut self, file: usize, at: usize, len: usize) -> &mut [Cell] {
        let cells = &mut self.files[file];
        let size = cells.len();
        &mut cells[at.min(size)..(at + len).min(size)]
    }

    /// Returns whether the values can be seen. What was seen to have changed stays so.
    fn show(&mut self, file: usize, at: usize, values: &[Value]) -> bool {
        let cells = self.within(file, at, values.len());
        if cells.len() < values.len() {
            return false;
        }
        let fits =
            |(cell, value): (&Cell, &Value)| cell.value == *value || cell.next == Some(*value);
        if !cells.iter().zip(values).all(fits) {
            return false;
        }
        for (cell, value) in cells.iter_mut().zip(values) {
            if cell.value != *value {
                *cell = Cell {
                    value: *value,
                    next: None,
                };
            }
        }
        true
    }

    /// Returns whether a search from `from` on may come to `found`: what it passes has no data, and
    /// what it finds is in the file.
    fn passes(&self, file: usize, from: usize, found: Option<usize>) -> bool {
        let cells = &self.files[file];
        let end = found.unwrap_or(cells.len());
        let empty = |cell: &Cell| cell.value == 0 || cell.next == Some(0);
        end <= cells.len() && cells[from.min(end)..end].iter().all(empty)
    }

    /// Takes a step, if it is possible.
    pub(crate) fn apply(&mut self, part: &Part) -> bool {
        match *part {
            Part::Write(file, at, ref values) => self.write(file, at, values),
            Part::Store(file, at, ref values) => {
                if self.files[file].len() < at + values.len() {
                    return false;
                }
                self.write(file, at, values);
            }
            Part::Append(file, at, ref values) => {
                if self.files[file].len() != at {
                    return false;
                }
                self.write(file, at, values);
            }
            Part::Fade(file, at, len) => {
                let cells = self.within(file, at, len);
                let fade = |cell: &mut Cell| cell.next = (cell.value != 0).then_some(0);
                cells.iter_mut().for_each(fade);
            }
            Part::Change(file, at, ref values) => {
                let cells = self.within(file, at, values.len());
                let pairs = cells.iter_mut().zip(values);
                pairs.for_each(|(cell, value)| cell.next = Some(*value));
            }
            Part::Zero(file, at, len) => self.within(file, at, len).fill(Cell::default()),
            Part::Extend(file, to) => {
                let cells = &mut self.files[file];
                let to = cells.len().max(to);
                cells.resize(to, Cell::default());
            }
            Part::Resize(file, to) => self.files[file].resize(to, Cell::default()),
            Part::Collapse(file, at, len) => {
                let cells = &mut self.files[file];
                if at + len >= cells.len() {
                    return false;
                }
                cells.drain(at..at + len);
            }
            Part::Insert(file, at, len) => {
                let cells = &mut self.files[file];
                if at >= cells.len() {
                    return false;
                }
                cells.splice(at..at, vec![Cell::default(); len]);
            }
            Part::Show(file, at, ref values) => return self.show(file, at, values),
            Part::End(file, at) => return self.files[file].len() <= at,
            Part::Size(file, size) => return self.files[file].len() == size,
            Part::Data(file, from, found) => return self.passes(file, from, found),
            ref other => return self.apply_copy(other),
        }
        true
    }

    /// Takes a step of a copy. Each kind of steps comes in the order of the pieces.
    fn apply_copy(&mut self, part: &Part) -> bool {
        match *part {
            Part::Load(piece, file, at, len) => {
                let cells = self.within(file, at, len).to_vec();
                let is_whole = cells.len() == len;
                self.loads.push((piece, cells));
                self.loads.sort_unstable_by_key(|(piece, _)| *piece);
                is_whole && self.is_next(piece, 0)
            }
            Part::Clear(piece, file, at) => {
                let Some(cells) = self.loaded(piece) else {
                    return false;
                };
                let pairs = self.within(file, at, cells.len()).iter_mut().zip(cells);
                let zeros = |(_, from): &(&mut Cell, Cell)| from.value == 0 || from.next == Some(0);
                for (to, _) in pairs.filter(zeros) {
                    to.next = (to.value != 0).then_some(0);
                }
                self.is_next(piece, 1)
            }
            Part::Save(piece, file, at) => {
                let Some(cells) = self.loaded(piece) else {
                    return false;
                };
                self.loads.retain(|(of, _)| *of != piece);
                let end = self.files[file].len().max(at + cells.len());
                self.files[file].resize(end, Cell::default());
                self.files[file][at..at + cells.len()].copy_from_slice(&cells);
                self.is_next(piece, 2)
            }
            ref named => self.apply_named(named),
        }
    }

    /// Counts a step of a copy. Returns whether it is the next one of its kind.
    fn is_next(&mut self, (call, number): Piece, kind: usize) -> bool {
        let found = self.copies.iter().position(|(of, _)| *of == call);
        let at = found.unwrap_or_else(|| {
            self.copies.push((call, [0; 3]));
            self.copies.sort_unstable();
            let of = |(of, _): &(usize, [usize; 3])| *of == call;
            self.copies.iter().position(of).unwrap_or_default()
        });
        let count = &mut self.copies[at].1[kind];
        *count += 1;
        *count == number + 1
    }

    /// The cells that a piece of a copy has read.
    fn loaded(&self, piece: Piece) -> Option<Vec<Cell>> {
        let found = self.loads.iter().find(|(of, _)| *of == piece);
        found.map(|(_, cells)| cells.clone())
    }

    fn apply_named(&mut self, part: &Part) -> bool {
        match *part {
            Part::Name(name, file) => self.names[name] == file,
            Part::Rename(from, to) => {
                let Some(file) = self.names[from] else {
                    return false;
                };
                // Two names of one file stay, as POSIX says.
                if self.names[to] != Some(file) {
                    self.names[to] = Some(file);
                    self.names[from] = None;
                }
                true
            }
            Part::Exchange(one, other) => {
                self.names.swap(one, other);
                self.names[one].is_some() && self.names[other].is_some()
            }
            Part::Link(file, name) => {
                let can = self.links(file) > 0 && self.names[name].is_none();
                self.names[name] = self.names[name].or(Some(file));
                can
            }
            Part::Unlink(name) => self.names[name].take().is_some(),
            Part::Links(file, count) => self.links(file) == count,
            Part::SetAttr(file, value) => {
                self.attrs[file] = value;
                true
            }
            Part::Attr(file, value) => self.attrs[file] == value,
            Part::Protect(file, to) => {
                self.protections[file] = to;
                true
            }
            Part::Free(file, most) => self.protections[file] <= most,
            Part::Barred(file) => self.protections[file] > Protection::None,
            Part::SomeBarred => self.protections.iter().any(|one| *one > Protection::None),
            _ => false,
        }
    }
}
