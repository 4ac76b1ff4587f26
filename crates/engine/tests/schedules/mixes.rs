//! Mixes: which kinds of calls a program has, and what its volume is like.
//!
//! Calls that have nothing to do with each other disturb each other never, so a program has few
//! kinds of calls. A wide mix has those of a row that meet in one mechanism, some of them, or a
//! swarm, which is a few kinds of each of some classes. A narrow one has two or three kinds, so
//! that each of them runs in another thread:
//!
//! - a pair, of one row, on a region whose pages are in different states;
//! - reuse: blocks are taken and given back, little else is free, and the power goes;
//! - ends: what is cut or removed is on its way to the device, and the power goes.

use extant_testkit::Rng;

use crate::program::Setup;

/// A kind of calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Write,
    Vectored,
    Edit,
    Long,
    Flood,
    Append,
    Copy,
    Direct,
    Queued,
    Read,
    ReadPast,
    ReadDirect,
    View,
    Punch,
    Zero,
    Allocate,
    Collapse,
    Insert,
    Truncate,
    Size,
    Seek,
    Fsync,
    Sync,
    Drop,
    DropAll,
    Evict,
    Protect,
    Defragment,
    Switch,
    Trim,
    Grow,
    Lookup,
    LookupAll,
    Rename,
    Exchange,
    Link,
    Unlink,
    Links,
    SetAttr,
    BigAttr,
    RemoveAttr,
    GetAttr,
}

use Kind::*;

/// All kinds.
pub(crate) const ALL: &[Kind] = &[
    Write, Vectored, Edit, Long, Append, Copy, Direct, Queued, Read, ReadPast, ReadDirect, View,
    Punch, Zero, Allocate, Collapse, Insert, Truncate, Size, Seek, Fsync, Sync, Drop, DropAll,
    Evict, Protect, Defragment, Switch, Trim, Grow, Lookup, LookupAll, Rename, Exchange, Link,
    Unlink, Links, SetAttr, BigAttr, RemoveAttr, GetAttr,
];

/// Kinds that meet in one mechanism.
const MEETING: &[&[Kind]] = &[
    // Data that leaves the cache, and what looks at the map and at the cache.
    &[Write, Punch, Zero, Evict, Evict],
    &[Write, Write, Edit, Evict, Read, View],
    &[Seek, Read, Write, Punch, Evict, Fsync, DropAll],
    // The end of a file.
    &[
        Write, Append, Read, Size, Direct, Insert, Truncate, Truncate,
    ],
    // Past the cache, and through it.
    &[Write, Read, Direct, Queued, ReadDirect, ReadPast, Evict],
    // Data that moves within the file, or on the device.
    &[Write, Read, Collapse, Insert, Evict],
    &[Write, Read, Seek, Insert, Collapse, Punch],
    &[Direct, Queued, Read, Collapse, Insert, Punch],
    &[Write, Read, Direct, Defragment, Switch, Fsync],
    // Overwrites beside what has the file alone.
    &[
        Write, Write, Read, Collapse, Punch, Truncate, Direct, Switch,
    ],
    // Names.
    &[
        LookupAll, LookupAll, LookupAll, Rename, Rename, Exchange, Link, Unlink,
    ],
];

/// Kinds that meet where space is short.
const TIGHT: &[&[Kind]] = &[
    &[
        Write, Append, Allocate, Direct, Punch, Fsync, Sync, Truncate, Grow,
    ],
    &[Write, Write, Allocate, Allocate, Evict, Fsync, Sync],
    // Writes that let go of their front.
    &[Long, Long, Long, Write, Read],
    // More than there is, with what only writeback may take.
    &[Flood, Flood, Write, Allocate, Punch, Evict, Fsync],
];

/// Kinds that meet in what a power cut leaves.
const DURABLE: &[&[Kind]] = &[
    // Delayed blocks: where they are allocated, and what drops them.
    &[Write, Fsync, Allocate, Truncate, Punch, Sync],
    &[Write, Append, Vectored, Long, Fsync, Sync, Truncate],
    // Data that is written while another thread commits.
    &[Write, Append, Direct, Fsync, SetAttr, Sync],
    // Names, attributes and what makes them durable.
    &[
        Rename, Link, Unlink, Unlink, Sync, Fsync, SetAttr, Write, Truncate,
    ],
    // Blocks of metadata that become blocks of data.
    &[BigAttr, RemoveAttr, Write, Fsync, Sync],
    &[Write, Punch, Truncate, Fsync, Sync, Trim, Grow],
];

/// Classes that a swarm is drawn from: how many kinds of each, at least and at most.
const CLASSES: &[(&[Kind], u64, u64)] = &[
    (
        &[
            Write, Write, Vectored, Edit, Long, Append, Copy, Direct, Queued,
        ],
        1,
        2,
    ),
    (&[Read, Read, ReadPast, ReadDirect, View, Size, Seek], 0, 1),
    (
        &[Punch, Zero, Allocate, Collapse, Insert, Truncate, Truncate],
        0,
        2,
    ),
    (&[Fsync, Sync, Evict, Evict, DropAll], 1, 1),
];
/// Kinds of which a swarm has one now and then.
const OTHERS: &[Kind] = &[
    Drop, Protect, Protect, Defragment, Switch, Trim, Grow, Unlink, Rename, SetAttr, BigAttr,
    RemoveAttr,
];

/// Some kinds of each class.
fn swarm(rng: &mut Rng) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for (class, least, most) in CLASSES {
        let count = rng.between(*least, *most);
        kinds.extend((0..count).map(|_| class[rng.index(class.len())]));
    }
    if rng.chance(20) {
        kinds.push(OTHERS[rng.index(OTHERS.len())]);
    }
    kinds
}

/// A row of kinds that fit the volume.
fn rows(rng: &mut Rng, setup: &Setup) -> &'static [Kind] {
    let rows = if setup.cuts.is_some() && rng.chance(75) {
        DURABLE
    } else if setup.left.is_some() && rng.chance(60) {
        TIGHT
    } else {
        MEETING
    };
    rows[rng.index(rows.len())]
}

/// Such a row, or some of it.
fn row(rng: &mut Rng, setup: &Setup) -> Vec<Kind> {
    let row = rows(rng, setup);
    if rng.chance(50) {
        let count = rng.between(2, 4);
        return (0..count).map(|_| row[rng.index(row.len())]).collect();
    }
    row.to_vec()
}

/// Kinds that take blocks, give them back and use them again.
const REUSE: &[Kind] = &[
    Write, Write, Direct, BigAttr, RemoveAttr, Truncate, Punch, Fsync, Fsync, Sync,
];

/// Kinds that cut or remove what others write.
const ENDS: &[Kind] = &[
    Write, Append, Direct, Truncate, Truncate, Unlink, Punch, Fsync, Fsync, Sync, SetAttr,
];

/// The kind of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mix {
    Wide,
    Pair,
    Reuse,
    Ends,
}

impl Mix {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        match rng.below(20) {
            0..6 => Self::Wide,
            6..14 => Self::Pair,
            14..17 => Self::Reuse,
            _ => Self::Ends,
        }
    }

    /// Returns whether each thread has a kind of its own.
    pub(crate) fn is_narrow(self) -> bool {
        self != Self::Wide
    }

    /// Gives a volume what the mix is about, and takes away what would only cost time.
    pub(crate) fn bind(self, setup: &mut Setup, rng: &mut Rng) {
        match self {
            Self::Wide => return,
            Self::Pair => setup.cuts = None,
            Self::Reuse | Self::Ends => setup.cuts = Some(rng.next_u64()),
        }
        setup.left = match self {
            Self::Reuse => rng.chance(70).then(|| rng.below(6)),
            _ => setup.left.filter(|_| rng.chance(60)),
        };
        if setup.cuts.is_some() || rng.chance(80) {
            setup.bad_read = None;
            setup.bad_write = None;
        }
    }

    /// The kinds of a program of this mix.
    pub(crate) fn kinds(self, rng: &mut Rng, setup: &Setup) -> Vec<Kind> {
        match self {
            Self::Wide if rng.chance(50) => swarm(rng),
            Self::Wide => row(rng, setup),
            Self::Pair => {
                let row = rows(rng, setup);
                some(rng, row)
            }
            Self::Reuse => some(rng, REUSE),
            Self::Ends => some(rng, ENDS),
        }
    }
}

/// Two or three kinds of a row, each another one.
fn some(rng: &mut Rng, row: &[Kind]) -> Vec<Kind> {
    let count = if rng.chance(75) { 2 } else { 3 };
    let mut kinds: Vec<Kind> = Vec::new();
    while kinds.len() < count {
        let kind = row[rng.index(row.len())];
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}
