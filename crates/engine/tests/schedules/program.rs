//! Programs: what the threads of a schedule call, and on which volume, drawn from a seed.

use std::fmt;

use extant_engine::{BufferedPath, Tuning};
use extant_failpoint::{ActiveFailpoint, Failpoint};
use extant_testkit::Rng;

use crate::drawer::Drawer;
use crate::mixes::Mix;
use crate::model::CELL;

/// Files of a volume.
pub(crate) const FILES: usize = 2;
/// Names of its root, of which the first have a file in the beginning.
pub(crate) const NAMES: usize = 3;

/// A file's protection, from none to all.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Protection {
    #[default]
    None,
    /// It may only grow (`chattr +a`).
    AppendOnly,
    /// It may not change (`chattr +i`).
    Immutable,
}

/// A call. Positions and lengths are in cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Write(usize, usize, usize),
    /// A write of several buffers, which end anywhere.
    Vectored(usize, usize, usize),
    /// Stores through an edit view.
    Edit(usize, usize, usize),
    Direct(usize, usize, usize),
    /// The same, by a queue of direct requests.
    Queued(usize, usize, usize),
    Append(usize, usize),
    Read(usize, usize, usize),
    ReadPast(usize, usize, usize),
    ReadDirect(usize, usize, usize),
    View(usize, usize, usize),
    Punch(usize, usize, usize),
    Zero(usize, usize, usize, bool),
    Allocate(usize, usize, usize, bool),
    Collapse(usize, usize, usize),
    Insert(usize, usize, usize),
    /// The source and its cells, and where they go.
    Copy(usize, (usize, usize), (usize, usize)),
    Truncate(usize, usize),
    Size(usize),
    Seek(usize, usize),
    Fsync(usize, bool),
    Sync,
    Drop(usize),
    DropAll,
    /// Writes the file's data back and drops it, as memory pressure does.
    Evict(usize),
    /// From now on a file may be changed as far as this allows.
    Protect(usize, Protection),
    Defragment(usize),
    Switch(usize, bool),
    Trim,
    Grow,
    Lookup(usize),
    Rename(usize, usize),
    Exchange(usize, usize),
    Link(usize, usize),
    Unlink(usize),
    Links(usize),
    SetAttr(usize),
    /// An attribute that needs a block of its own.
    BigAttr(usize),
    RemoveAttr(usize),
    GetAttr(usize),
}

/// The volume and how it is mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Setup {
    pub(crate) block: u32,
    pub(crate) path: BufferedPath,
    pub(crate) options: &'static str,
    /// Freed blocks are discarded.
    pub(crate) discards: bool,
    pub(crate) order: u8,
    pub(crate) flushers: u8,
    /// Requests of a direct queue complete in threads.
    pub(crate) threads: bool,
    /// Blocks that are left free before the threads begin; all if none is said.
    pub(crate) left: Option<u64>,
    /// The files are durable before the calls begin.
    pub(crate) synced: bool,
    /// Bytes of the page cache.
    pub(crate) cache: u64,
    /// The read of the device that fails, counted from the begin of the threads.
    pub(crate) bad_read: Option<u64>,
    /// The write of the device that fails, counted likewise.
    pub(crate) bad_write: Option<u64>,
    /// Draws the moments at which the power goes.
    pub(crate) cuts: Option<u64>,
    /// Draws the switches of the engine that a program has.
    pub(crate) switches: u64,
    pub(crate) failpoint: Option<Failpoint>,
}

/// A program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Program {
    pub(crate) setup: Setup,
    /// Calls of one thread before the others begin.
    pub(crate) first: Vec<Op>,
    pub(crate) threads: Vec<Vec<Op>>,
    /// Steps that a schedule of it had, if one was made: moments to switch at are drawn from these.
    pub(crate) steps: u64,
}

const OPTIONS: &[&str] = &[
    "",
    "",
    "nodelalloc",
    "dioread_lock",
    "nodelalloc,dioread_lock",
    "data=journal",
    "lazytime",
];

impl Setup {
    fn draw(rng: &mut Rng, failpoint: Option<Failpoint>) -> Self {
        let bad_write = rng.chance(6).then(|| rng.below(12));
        let is_sound = bad_write.is_none();
        Self {
            block: if rng.chance(60) { 1024 } else { 4096 },
            path: if rng.chance(65) {
                BufferedPath::Iomap
            } else {
                BufferedPath::BufferHead
            },
            options: OPTIONS[rng.index(OPTIONS.len())],
            discards: rng.chance(25),
            order: [0, 2, 9][rng.index(3)],
            flushers: u8::from(rng.chance(35)),
            threads: rng.chance(50),
            left: rng.chance(25).then(|| rng.below(40)),
            synced: rng.chance(70),
            cache: if rng.chance(80) { 4 << 20 } else { 64 << 10 },
            bad_read: (is_sound && rng.chance(6)).then(|| rng.below(6)),
            bad_write,
            cuts: (is_sound && rng.chance(35)).then(|| rng.next_u64()),
            switches: rng.next_u64(),
            failpoint,
        }
    }

    /// A volume with room, mounted without options.
    pub(crate) const fn plain(block: u32) -> Self {
        Self {
            block,
            path: BufferedPath::Iomap,
            options: "",
            discards: false,
            order: 2,
            flushers: 0,
            threads: false,
            left: None,
            synced: false,
            cache: 4 << 20,
            bad_read: None,
            bad_write: None,
            cuts: None,
            switches: 0,
            failpoint: None,
        }
    }

    /// Returns whether blocks are taken only after the first calls: what these have written and not
    /// yet allocated has its space then, and little else.
    pub(crate) fn fills_late(&self) -> bool {
        self.left.is_some() && self.cuts.is_none() && self.switches & 128 != 0
    }

    /// Cells of a block.
    pub(crate) fn block_cells(&self) -> usize {
        self.block as usize / CELL
    }

    /// The options of the mount.
    pub(crate) fn options(&self) -> String {
        let discard = if self.discards { ",discard" } else { "" };
        format!("commit=300,{}{discard}", self.options)
    }

    pub(crate) fn tuning(&self) -> Tuning {
        let mut tuning = Tuning::default();
        tuning.buffered_path = self.path;
        tuning.max_folio_order = self.order;
        tuning.page_cache_bytes = Some(self.cache);
        tuning.block_cache_bytes = 1 << 20;
        tuning.name_cache_bytes = 1 << 14;
        tuning.replay_bytes = Some(1 << 20);
        tuning.flushers = self.flushers;
        tuning.stop_at_range_end = self.switches & 1 == 0;
        tuning.dirty_inode_on_append = self.switches & 6 == 0;
        tuning.trim_on_clear = self.switches & 8 == 0;
        tuning.lock_slots = self.switches & 16 == 0;
        tuning.joint_writeback = self.switches & 32 == 0;
        tuning.release_fronts = self.switches & 64 == 0;
        tuning.failpoint = self
            .failpoint
            .map_or_else(ActiveFailpoint::default, ActiveFailpoint::only);
        tuning
    }
}

impl Program {
    /// The program of `seed`.
    pub(crate) fn draw(seed: u64, failpoint: Option<Failpoint>) -> Self {
        let mut rng = Rng::new(seed ^ 0x7363_6865_6475_6c65);
        let mix = Mix::draw(&mut rng);
        let mut setup = Setup::draw(&mut rng, failpoint);
        mix.bind(&mut setup, &mut rng);
        let mut drawer = Drawer::new(&mut rng, mix, &setup);
        Self {
            setup,
            first: drawer.first(),
            threads: drawer.threads(),
            steps: 0,
        }
    }

    /// A program of the given calls.
    pub(crate) fn of(setup: Setup, first: &[Op], threads: &[&[Op]]) -> Self {
        Self {
            setup,
            first: first.to_vec(),
            threads: threads.iter().map(|ops| ops.to_vec()).collect(),
            steps: 0,
        }
    }

    /// Returns whether the size on disk of a file may move before its data, as on the buffer-head
    /// path.
    pub(crate) fn moves_size_first(&self) -> bool {
        let setup = &self.setup;
        let mut all = self.first.iter().chain(self.threads.iter().flatten());
        setup.path == BufferedPath::BufferHead
            || setup.options.contains("journal")
            || all.any(|op| matches!(op, Op::Switch(_, false)))
    }

    /// Calls in all.
    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.threads.iter().map(Vec::len).sum::<usize>()
    }

    /// The program without one of its calls.
    pub(crate) fn without(&self, call: usize) -> Self {
        let mut shorter = self.clone();
        let mut left = call;
        for list in std::iter::once(&mut shorter.first).chain(&mut shorter.threads) {
            if left < list.len() {
                list.remove(left);
                break;
            }
            left -= list.len();
        }
        shorter.threads.retain(|thread| !thread.is_empty());
        shorter
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup {
            block,
            path,
            order,
            flushers,
            left,
            cuts,
            cache,
            bad_read,
            bad_write,
            ..
        } = self.setup;
        let options = self.setup.options();
        let cuts = if cuts.is_some() {
            "power cuts"
        } else {
            "no power cut"
        };
        let late = if self.setup.fills_late() {
            " at the end"
        } else {
            ""
        };
        let left = left.map_or("all".to_owned(), |left| format!("{left}{late}"));
        writeln!(
            f,
            "  {path:?}, blocks of {block}, folios up to {order}, {flushers} flushers, \
             {left} left, {cache} bytes of cache, {cuts}, \
             bad read {bad_read:?}, bad write {bad_write:?}, {options}"
        )?;
        writeln!(f, "  first: {:?}", self.first)?;
        for (number, thread) in self.threads.iter().enumerate() {
            writeln!(f, "  thread {}: {thread:?}", number + 1)?;
        }
        Ok(())
    }
}
