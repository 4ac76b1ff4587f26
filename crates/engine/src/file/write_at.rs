//! Where a write goes.

/// Where a write goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteAt {
    /// To this byte.
    Pos(u64),
    /// To the end of the file, wherever that is when the write's turn comes (`O_APPEND`).
    End,
    /// To this byte, from a cache above ours (the kernel's, of a mount) that took the write
    /// earlier: what a write asks for was checked then, and the time noted, which the cache reports
    /// by itself.
    Cached(u64),
}

impl WriteAt {
    /// The byte, unless it is the end.
    #[inline]
    pub(in crate::file) fn position(self) -> Option<u64> {
        match self {
            Self::Pos(pos) | Self::Cached(pos) => Some(pos),
            Self::End => None,
        }
    }

    /// The place of what comes `bytes` behind this one. An append has none before its turn.
    pub(in crate::file) fn behind(self, bytes: usize) -> Self {
        let behind = |pos: u64| pos.saturating_add(bytes as u64);
        match self {
            Self::Pos(pos) => Self::Pos(behind(pos)),
            Self::Cached(pos) => Self::Cached(behind(pos)),
            Self::End => Self::End,
        }
    }
}
