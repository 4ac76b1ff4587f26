//! The targets of the fuzzer, by name.

/// A target of the fuzzer, by what it does with the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Every parser of `extant-disk`, and what is parsed written back.
    Structures,
    /// Mounted read-only, walked, everything read.
    Walk,
    /// Mounted read-write, operations, sync, unmount.
    Operations,
    /// A damaged journal replayed.
    Replay,
    /// Damaged directories: looked up in, listed, changed.
    Htree,
    /// Damaged attributes: listed, read, changed.
    Xattrs,
    /// Damaged maps: read, written, cut.
    Extents,
    /// Fast-commit areas: which commits count, and what their records say.
    FastCommit,
    /// The checker.
    Check,
    /// Paths, mount options and names of attributes.
    Names,
    /// Requests of a hostile kernel, by `/dev/fuse` and in entries of rings.
    Requests,
    /// Calls, a power cut, and the next mount.
    Crash,
    /// A repair or a resize, a power cut, and the repair after it.
    CutRepair,
    /// Requests by both ways at once, interruptions, and forgotten nodes.
    Wire,
}

impl Target {
    /// All of them.
    pub const ALL: [Target; 14] = [
        Target::Structures,
        Target::Walk,
        Target::Operations,
        Target::Replay,
        Target::Htree,
        Target::Xattrs,
        Target::Extents,
        Target::FastCommit,
        Target::Check,
        Target::Names,
        Target::Requests,
        Target::Crash,
        Target::CutRepair,
        Target::Wire,
    ];

    /// Returns whether a run takes long: it mounts several times, or has threads of its own.
    pub const fn is_long(self) -> bool {
        matches!(self, Target::Crash | Target::CutRepair | Target::Wire)
    }

    /// The name of the fuzz target.
    pub const fn name(self) -> &'static str {
        match self {
            Target::Structures => "structures",
            Target::Walk => "walk",
            Target::Operations => "operations",
            Target::Replay => "replay",
            Target::Htree => "htree",
            Target::Xattrs => "xattrs",
            Target::Extents => "extents",
            Target::FastCommit => "fast_commit",
            Target::Check => "check",
            Target::Names => "names",
            Target::Requests => "requests",
            Target::Crash => "crash",
            Target::CutRepair => "cut_repair",
            Target::Wire => "wire",
        }
    }
}
