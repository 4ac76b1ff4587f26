//! Counters of the per-block path.

use extant_counter::Counter;

macro_rules! stats {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// Live counters; one per file system.
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

stats! {
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
    /// Records visited to clean up after a write that failed or came out short.
    cleanup_visits,
    /// Blocks that the file system was asked about.
    block_maps,
    /// Blocks read because a write covers them only partly.
    edge_reads,
    /// Rings made.
    rings,
    /// Extents that writeback had mapped.
    extent_maps,
    /// Times that writeback ran out of credits in the middle of a folio and began a new handle.
    restarts,
}
