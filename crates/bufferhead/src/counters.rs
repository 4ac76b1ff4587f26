//! Counters of the buffer-head path.

use extant_counter::Counter;

macro_rules! counters {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// Live counters; one set per file system.
        #[derive(Default, Debug)]
        pub struct BufferCounters {
            $($(#[$meta])* pub $name: Counter,)*
        }

        /// A snapshot of [`BufferCounters`]; the fields have the same meaning.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct BufferStats {
            $($(#[$meta])* pub $name: u64,)*
        }

        impl BufferCounters {
            /// The counters as of now.
            pub fn snapshot(&self) -> BufferStats {
                BufferStats { $($name: self.$name.get()),* }
            }
        }
    };
}

counters! {
    /// Folio writes prepared.
    begins,
    /// Records visited while preparing.
    begin_visits,
    /// Records visited while publishing.
    commit_visits,
    /// Records visited to find the one of a write's last byte.
    last_block_visits,
    /// Records visited by writeback.
    writeback_visits,
    /// Records visited to clean up after a write that failed or was short.
    cleanup_visits,
    /// Blocks that the file system was asked to map.
    block_maps,
    /// Blocks read because a write covers them only partly.
    edge_reads,
    /// Rings made.
    rings,
    /// Extents that writeback asked the file system for.
    extent_maps,
    /// Times that writeback could not map all of its blocks under one handle and started another.
    restarts,
}
