//! Counters of buffered I/O.

use extant_counter::Counter;

macro_rules! counters {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// Live counters; one set per file system.
        #[derive(Default, Debug)]
        pub struct IomapCounters {
            $($(#[$meta])* pub $name: Counter,)*
        }

        /// A snapshot of [`IomapCounters`]; the fields have the same meaning.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct IomapStats {
            $($(#[$meta])* pub $name: u64,)*
        }

        impl IomapCounters {
            /// The counters as of now.
            pub fn snapshot(&self) -> IomapStats {
                IomapStats { $($name: self.$name.get()),* }
            }
        }
    };
}

counters! {
    /// Calls of `begin`.
    begins,
    /// Folios written without a mapping. A write to several folios counts each of them, and a write
    /// that makes the file longer within a cached block counts as well.
    overwrites,
    /// Mappings that were stale by the time a folio was locked.
    stale_retries,
    /// Device reads of single blocks that a write covers only partly.
    edge_reads,
    /// Device reads that filled the cache.
    fill_reads,
    /// Bytes read to fill the cache.
    fill_bytes,
    /// Device reads straight into the buffer of a caller that has a cache of its own.
    uncached_reads,
    /// Device writes straight from the buffer of a buffered write (write-through of large writes).
    uncached_writes,
    /// Calls of `map_blocks`.
    map_calls,
    /// Device writes of file data.
    ioends,
    /// Bytes of file data written to the device.
    written_bytes,
    /// Dirty runs that joined the ioend before them.
    merges,
    /// Files whose data went to the device together with that of others.
    joint_files,
    /// Ioends that failed.
    failed_ioends,
}
