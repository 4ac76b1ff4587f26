//! Sealing files by fs-verity.
//!
//! The kernel keeps pages of its own, which the engine does not see. Dirty ones belong to open
//! files: the kernel writes them back before it tells of the close of a file that may write, or of
//! the end of a mapping that does. So a file without an open writer is known as it is, and opens
//! for writing are refused until it is sealed or the attempt has failed. Where opens send no
//! message nothing is sealed.
//!
//! Clean pages that the kernel read before stay there unverified. The thread of the gates has the
//! kernel drop them: a worker must not wait for it, as the kernel waits for READs that only workers
//! serve. So the reply waits for that thread for a moment ([`DROP_PATIENCE`]), and not longer.

use std::thread;
use std::time::{Duration, Instant};

use extant_engine::{Error, Node, VerityParams};
use tracing::error;

use super::Server;
use super::permissions::WRITE;
use crate::abi::InHeader;
use crate::errno::Errno;
use crate::sealing;

/// `FS_VERITY_FL`.
const SEALED: u32 = 0x10_0000;
/// How long a caller waits for writers that are closing their files: the kernel does not wait until
/// it has told of a close.
const CLOSE_PATIENCE: Duration = Duration::from_millis(250);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(2);
/// How long a caller waits until the kernel has dropped its pages.
const DROP_PATIENCE: Duration = Duration::from_secs(1);
/// Time until the kernel is told again of pages that it could not be told of.
const TELL_AGAIN: Duration = Duration::from_millis(100);

impl Server<'_> {
    /// `FS_IOC_ENABLE_VERITY`, for callers that may write the file.
    pub(super) fn enable_verity(
        &self,
        header: &InHeader,
        node: &Node,
        data: &[u8],
    ) -> Result<(), Errno> {
        let params = sealing::asked(data)?;
        self.check(header, node, WRITE)?;
        if !self.kernel_sends_open() {
            return Err(Errno::OPNOTSUPP);
        }
        let sealed = self.seal_without_writers(header, node, &params);
        // It may be sealed, and not be durable.
        let is_sealed = |flags: u32| flags & SEALED != 0;
        if sealed.is_ok() || self.volume.flags(node).is_ok_and(is_sealed) {
            self.have_pages_dropped(header.nodeid);
        }
        Ok(sealed?)
    }

    fn seal_without_writers(
        &self,
        header: &InHeader,
        node: &Node,
        params: &VerityParams,
    ) -> Result<(), Error> {
        let cred = super::cred(header, 0);
        let begun = Instant::now();
        loop {
            match self.volume.enable_verity(node, params, &cred) {
                Err(Error::TextBusy) if begun.elapsed() < CLOSE_PATIENCE => thread::sleep(LOOK),
                done => return done,
            }
        }
    }

    /// `FS_IOC_MEASURE_VERITY`.
    pub(super) fn measure_verity(&self, node: &Node, data: &[u8]) -> Result<Vec<u8>, Errno> {
        let (hash, digest) = self.volume.measure_verity(node)?;
        sealing::answer(data, hash, &digest)
    }

    /// Has the thread of the gates tell the kernel to drop its pages of a file, and waits for that,
    /// but not for long.
    fn have_pages_dropped(&self, node: u64) {
        let end = Instant::now() + DROP_PATIENCE;
        self.writers
            .note_stale(&[node], end, || self.full.parking.wake());
    }

    /// Tells the kernel to drop its pages of files that were sealed. Returns the time after which
    /// it is told again, if it could not be told of one.
    pub(super) fn drop_stale_pages(&self) -> Option<Duration> {
        let all_dropped = self.writers.drop_stale(|node| {
            let told = self.device.invalidate(node, 0);
            if let Err(error) = &told {
                error!("the kernel cannot be told of old pages: {error}");
            }
            if self.volume.may_encrypt() {
                // A file that it knows is in use here, and keeps its key. Kernels before Linux
                // 6.18 do not know this request.
                let _ = self.device.prune(&[node]);
            }
            told.is_ok()
        });
        (!all_dropped && !self.device.is_gone()).then_some(TELL_AGAIN)
    }
}
