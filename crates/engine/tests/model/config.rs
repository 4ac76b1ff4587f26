//! Parameters of an episode, and the line that says them.

use std::fmt;
use std::str::FromStr;

use extant_engine::{BufferedPath, Tuning};
use extant_failpoint::{ActiveFailpoint, Failpoint};
use extant_testkit::Rng;

/// The data paths that the model is compared with.
pub(crate) const PATHS: &[(&str, BufferedPath, &str)] = &[
    ("iomap", BufferedPath::Iomap, ""),
    ("bufferhead", BufferedPath::BufferHead, ""),
    ("journalled", BufferedPath::BufferHead, "data=journal"),
];
/// How space is allocated: reserved first or at once, unwritten or, on the buffer-head path,
/// written with commits that wait.
pub(crate) const SPACE: &[&str] = &["", "nodelalloc", "dioread_lock", "nodelalloc,dioread_lock"];
const ORDERS: &[u8] = &[0, 3, 9];
/// Bytes of the page cache: everything fits, or hardly anything does.
const CACHES: &[u64] = &[64 << 20, 1 << 20];
/// The highest position that operations aim at.
const SPANS: &[u64] = &[60_000, 300_000, 300_000, 1_000_000, 5_000_000];
/// A part of them is inside of an inode of 512 bytes.
const SHORT_SPAN: u64 = 600;

/// How large the volume is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Size {
    /// Everything fits.
    Roomy,
    /// Space runs out.
    Tight,
}

/// Everything that an episode follows from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Config {
    pub(crate) block: u32,
    pub(crate) order: u8,
    /// Index in [`PATHS`].
    pub(crate) path: usize,
    /// Files have block maps, as on ext3, not extents: then they are on the buffer-head path
    /// whatever `path` says.
    pub(crate) block_maps: bool,
    /// Files begin inside of their inodes (`inline_data`).
    pub(crate) inside: bool,
    pub(crate) cache: u64,
    pub(crate) flushers: u8,
    pub(crate) size: Size,
    /// Index in [`SPACE`].
    pub(crate) space: usize,
    pub(crate) span: u64,
    /// The failpoint that is switched on.
    pub(crate) failpoint: Option<Failpoint>,
    pub(crate) steps: usize,
    pub(crate) seed: u64,
}

impl Config {
    /// Every combination of a block size.
    pub(crate) fn all(block: u32) -> Vec<Config> {
        let of = |path, block_maps| {
            ORDERS.iter().map(move |&order| Config {
                block,
                order,
                path,
                block_maps,
                inside: false,
                cache: CACHES[0],
                flushers: 0,
                size: Size::Roomy,
                space: 0,
                span: SPANS[1],
                failpoint: None,
                steps: 0,
                seed: 0,
            })
        };
        let extents = (0..PATHS.len()).map(|path| (path, false));
        let ways = extents.chain((1..PATHS.len()).map(|path| (path, true)));
        ways.flat_map(|(path, block_maps)| of(path, block_maps))
            .collect()
    }

    /// The same with the rest drawn.
    pub(crate) fn vary(self, rng: &mut Rng, steps: usize) -> Config {
        let tight = rng.chance(20);
        let inside = rng.chance(20);
        let span = SPANS[rng.index(SPANS.len())];
        let span = if inside && rng.chance(50) {
            SHORT_SPAN
        } else {
            span
        };
        Config {
            inside,
            span,
            cache: CACHES[rng.index(CACHES.len())],
            flushers: if rng.chance(40) { 2 } else { 0 },
            size: if tight { Size::Tight } else { Size::Roomy },
            steps,
            seed: rng.next_u64(),
            space: if rng.chance(50) {
                rng.index(SPACE.len())
            } else {
                0
            },
            ..self
        }
    }

    /// Returns whether the path promises that a size covers no data that has not arrived.
    pub(crate) fn sizes_move_last(&self) -> bool {
        PATHS[self.path].1 == BufferedPath::Iomap && !self.block_maps
    }

    /// The same with the next path.
    pub(crate) fn switched(self) -> Config {
        let path = (self.path + 1) % PATHS.len();
        Config { path, ..self }
    }

    /// Returns whether the descriptors of groups lie in meta groups.
    pub(crate) fn spread(&self) -> bool {
        self.seed & 128 == 0
    }

    /// Returns whether the volume has fast commits; it writes some if nothing else speaks against
    /// it.
    pub(crate) fn fast(&self) -> bool {
        !self.block_maps && self.seed >> 13 & 1 == 0
    }

    /// Returns whether usage is counted in quotas.
    pub(crate) fn counted(&self) -> bool {
        self.seed & 0x300 == 0
    }

    /// Blocks of a cluster (`bigalloc`): one, on most volumes. Those with large blocks are cut down
    /// by resize2fs, which miscounts clusters.
    pub(crate) fn cluster(&self) -> u32 {
        match self.seed >> 10 & 7 {
            _ if self.block_maps || self.block > 4096 => 1,
            0 => 16,
            1 => 4,
            _ => 1,
        }
    }

    /// The options of a mount.
    pub(crate) fn options(&self) -> String {
        format!("commit=300,{},{}", PATHS[self.path].2, SPACE[self.space])
    }

    pub(crate) fn tuning(&self) -> Tuning {
        let mut tuning = Tuning::default();
        tuning.max_folio_order = self.order;
        tuning.buffered_path = PATHS[self.path].1;
        tuning.page_cache_bytes = Some(self.cache);
        tuning.flushers = self.flushers;
        tuning.stop_at_range_end = self.seed & 1 == 0;
        tuning.dirty_inode_on_append = self.seed & 6 == 0;
        tuning.trim_on_clear = self.seed & 8 == 0;
        tuning.lock_slots = self.seed & 16 == 0;
        tuning.joint_writeback = self.seed & 32 == 0;
        tuning.release_fronts = self.seed & 64 == 0;
        tuning.failpoint = self
            .failpoint
            .map_or_else(ActiveFailpoint::default, ActiveFailpoint::only);
        tuning
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = PATHS[self.path].0;
        let size = match self.size {
            Size::Roomy => "roomy",
            Size::Tight => "tight",
        };
        let space = SPACE[self.space];
        let maps = if self.block_maps { "blocks" } else { "extents" };
        let data = if self.inside { "inside" } else { "outside" };
        let Config {
            block,
            order,
            cache,
            flushers,
            span,
            steps,
            seed,
            ..
        } = self;
        write!(
            f,
            "block={block} order={order} path={path} cache={cache} flushers={flushers} size={size} \
             maps={maps} data={data} space={space} \
             span={span} steps={steps} seed={seed}"
        )?;
        self.failpoint.map_or(Ok(()), |failpoint| {
            write!(f, " failpoint={}", failpoint.name())
        })
    }
}

impl FromStr for Config {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut config = Config::all(1024)[0];
        for word in line.split_whitespace() {
            let (name, value) = word.split_once('=').ok_or(word)?;
            let bad = |_| format!("{word}: not a number");
            let number: Result<u64, _> = value.parse().map_err(bad);
            let small = |n: u64| u8::try_from(n).map_err(|e| e.to_string());
            match name {
                "block" => config.block = u32::try_from(number?).map_err(|e| e.to_string())?,
                "order" => config.order = small(number?)?,
                "path" => {
                    let path = PATHS.iter().position(|path| path.0 == value);
                    config.path = path.ok_or(word)?;
                }
                "space" => {
                    let space = SPACE.iter().position(|space| *space == value);
                    config.space = space.ok_or(word)?;
                }
                "maps" => config.block_maps = value == "blocks",
                "data" => config.inside = value == "inside",
                "cache" => config.cache = number?,
                "flushers" => config.flushers = small(number?)?,
                "size" if value == "tight" => config.size = Size::Tight,
                "size" => config.size = Size::Roomy,
                "failpoint" => config.failpoint = Failpoint::named(value),
                "span" => config.span = number?,
                "steps" => config.steps = usize::try_from(number?).map_err(|e| e.to_string())?,
                "seed" => config.seed = number?,
                _ => return Err(word.into()),
            }
        }
        Ok(config)
    }
}
