//! Counters of the buffered path.

use extant_counter::Counter;

/// Live counters; one per file system.
#[derive(Default, Debug)]
pub struct IomapCounters {
    /// Calls of `begin`.
    pub begins: Counter,
    /// Folio writes that needed no mapping.
    pub overwrites: Counter,
    /// Mappings that were stale by the time a folio was locked.
    pub stale_retries: Counter,
    /// Reads of single blocks around a partial write.
    pub edge_reads: Counter,
    /// Device reads that filled the cache.
    pub fill_reads: Counter,
    /// Bytes read to fill the cache.
    pub fill_bytes: Counter,
    /// Device reads past the cache.
    pub uncached_reads: Counter,
    /// Device writes past the cache.
    pub uncached_writes: Counter,
    /// Calls of `map_blocks`.
    pub map_calls: Counter,
    /// Device writes of file data.
    pub ioends: Counter,
    /// Bytes of file data written to the device.
    pub written_bytes: Counter,
    /// Dirty runs that joined the ioend before them.
    pub merges: Counter,
    /// Ioends that failed.
    pub failed_ioends: Counter,
}

/// A snapshot of [`IomapCounters`]; the fields have the same meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "documented at IomapCounters")]
pub struct IomapStats {
    pub begins: u64,
    pub overwrites: u64,
    pub stale_retries: u64,
    pub edge_reads: u64,
    pub fill_reads: u64,
    pub fill_bytes: u64,
    pub uncached_reads: u64,
    pub uncached_writes: u64,
    pub map_calls: u64,
    pub ioends: u64,
    pub written_bytes: u64,
    pub merges: u64,
    pub failed_ioends: u64,
}

impl IomapCounters {
    /// The counters as of now.
    pub fn snapshot(&self) -> IomapStats {
        IomapStats {
            begins: self.begins.get(),
            overwrites: self.overwrites.get(),
            stale_retries: self.stale_retries.get(),
            edge_reads: self.edge_reads.get(),
            fill_reads: self.fill_reads.get(),
            fill_bytes: self.fill_bytes.get(),
            uncached_reads: self.uncached_reads.get(),
            uncached_writes: self.uncached_writes.get(),
            map_calls: self.map_calls.get(),
            ioends: self.ioends.get(),
            written_bytes: self.written_bytes.get(),
            merges: self.merges.get(),
            failed_ioends: self.failed_ioends.get(),
        }
    }
}
