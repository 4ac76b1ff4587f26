//! Multiple mount protection: only one host at a time uses a volume that several can reach.
//!
//! # Responsibility
//! [`Mmp::take`] waits until the volume is known to be free, and marks it as in use. A thread then
//! updates the sequence number; the end of the mount marks the volume clean. Only a device that is
//! written is protected: as in Linux, a volume that is only read is not.
//!
//! # Concurrency
//! A volume that was unmounted is taken at once. Otherwise its sequence number is watched for twice
//! the interval in which its user must change it, and once more after this host has written its
//! own: at most [`LONGEST_WAIT`] each time. One mutex guards the block that was written last; it is
//! held over the I/O of one update. The thread ends before [`Mmp::release`] returns.
//!
//! # Errors
//! [`Error::InUse`] names the host. A volume that another host has taken from this one is shut
//! down, and so is one whose update failed for so long that another host may take it.

use extant_sync::OnceLock;
use extant_sync::thread::{self, JoinHandle};
use extant_sync::time::Instant;
use std::sync::Arc;
use std::time::Duration;

use extant_blockdev::BlockDevice;
use extant_disk::csum::Crc32c;
use extant_disk::damage::{BlockDamage, SuperblockDamage};
use extant_disk::features::Incompat;
use extant_disk::mmp::{MMP_SIZE, Mmp as Block, MmpState};
use extant_disk::superblock::Superblock;
use extant_sync::{Condvar, Mutex};
use extant_units::{DevOff, Pblk, exact_u32};
use zerocopy::IntoBytes;

use crate::state::volume::Zone;
use crate::state::volume::mounted_superblock::now;
use crate::types::error::{Error, Location, Result};

/// Seconds between two updates where the superblock does not say.
const UPDATE_INTERVAL: u16 = 5;
/// The least seconds that count as the check interval, as in Linux.
const LEAST_CHECK: u16 = 5;
/// Upper bound of a check interval that is believed: five minutes is the most that Linux writes.
const MOST_CHECK: u16 = 300;
/// The longest of the two waits: a check interval and a minute.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(MOST_CHECK as u64 + 60);

/// The protection of a mounted volume.
pub(crate) struct Mmp {
    shared: Arc<MmpShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct MmpShared {
    dev: Arc<dyn BlockDevice>,
    at: DevOff,
    block: Pblk,
    seed: Option<Crc32c>,
    interval: Duration,
    /// Called with the reason once the volume is lost.
    on_loss: OnceLock<OnLoss>,
    state: Mutex<LastWritten>,
    wake: Condvar,
}

/// Ends the use of a volume that another host has taken.
type OnLoss = Box<dyn Fn(&str) + Send + Sync>;

struct LastWritten {
    written: Block,
    since: Instant,
    ended: bool,
    lost: Option<String>,
}

/// The block of the protection as a system zone; `None` without the feature.
pub(crate) fn zone(sb: &Superblock) -> Option<Zone> {
    let block = block_of(sb).ok()??;
    Some(Zone {
        start: block,
        end: block.saturating_add(1),
        owner: None,
    })
}

/// The location of the block; `None` without the feature.
fn block_of(sb: &Superblock) -> Result<Option<Pblk>> {
    if !sb.features().has_incompat(Incompat::MMP) {
        return Ok(None);
    }
    let block = Pblk::new(sb.raw().mmp_block.get());
    if block <= sb.first_data_block() || block.get() >= sb.blocks_count().get() {
        let damage = SuperblockDamage::MmpOutside { block };
        return Err(Error::corrupt(Location::Superblock, damage));
    }
    Ok(Some(block))
}

/// The host that uses the volume, or left it without an unmount, as far as one look shows.
pub(crate) fn user(dev: &Arc<dyn BlockDevice>, sb: &Superblock) -> Option<String> {
    let block = block_of(sb).ok()??;
    let at = sb.block_size().dev_off(block)?;
    let mut bytes = [0; MMP_SIZE];
    dev.read_fresh_at(at, &mut bytes).ok()?;
    let mmp = Block::parse(&bytes, seed(sb)).ok()?;
    (mmp.state() != MmpState::Clean).then(|| host_of(&mmp))
}

fn seed(sb: &Superblock) -> Option<Crc32c> {
    sb.features().metadata_csum().then(|| sb.checksum_seed())
}

impl Mmp {
    /// Takes the volume of `sb` on `dev`, which is about to be written; `None` without the feature.
    ///
    /// # Errors
    /// [`Error::InUse`]; the block is damaged; the device failed; the thread cannot be started.
    pub(crate) fn take(dev: &Arc<dyn BlockDevice>, sb: &Superblock) -> Result<Option<Self>> {
        let Some(block) = block_of(sb)? else {
            return Ok(None);
        };
        let at = sb.block_size().dev_off(block);
        let at = at.ok_or_else(|| Error::corrupt(Location::Block(block), BlockDamage::Missing))?;
        let reader = BlockAccess {
            dev,
            at,
            block,
            seed: seed(sb),
        };
        let interval = match sb.raw().mmp_interval.get() {
            0 => UPDATE_INTERVAL,
            seconds => seconds.min(MOST_CHECK),
        };
        debug_assert!((1..=MOST_CHECK).contains(&interval), "{interval} seconds");
        let mut mmp = reader.wait_until_free(interval)?;
        mmp.set_state(MmpState::InUse(random()));
        reader.take(&mut mmp, interval)?;
        let shared = Arc::new(MmpShared {
            dev: Arc::clone(dev),
            at,
            block,
            seed: reader.seed,
            interval: Duration::from_secs(interval.into()),
            on_loss: OnceLock::new(),
            state: Mutex::new(LastWritten {
                written: mmp,
                since: Instant::now(),
                ended: false,
                lost: None,
            }),
            wake: Condvar::new(),
        });
        let protection = Self {
            shared: Arc::clone(&shared),
            thread: Mutex::default(),
        };
        let spawned = thread::Builder::new()
            .name("mmp".into())
            .spawn(move || shared.keep_alive())
            .map_err(|error| Error::io_while("starting a thread", error))?;
        *protection.thread.lock() = Some(spawned);
        Ok(Some(protection))
    }

    /// Sets the function that ends the use of the volume when it is lost.
    ///
    /// # Errors
    /// It is lost already.
    pub(crate) fn protect(&self, on_loss: OnLoss) -> Result<()> {
        let state = self.shared.state.lock();
        // Only the first function that is set counts.
        let _ = self.shared.on_loss.set(on_loss);
        match &state.lost {
            None => Ok(()),
            Some(why) => Err(Error::InUse {
                by: why.as_str().into(),
            }),
        }
    }

    /// Ends the updates and marks the volume as not in use, unless another host has taken it.
    /// Idempotent.
    pub(crate) fn release(&self) {
        let Some(thread) = self.thread.lock().take() else {
            return;
        };
        self.shared.state.lock().ended = true;
        self.shared.wake.notify_all();
        // The end of a lost volume's use may drop its last user on this thread.
        if thread.thread().id() != thread::current().id() {
            // The panic hook has reported a panic of the thread; the volume is released all the
            // same.
            let _ = thread.join();
        }
        let mut state = self.shared.state.lock();
        if state.lost.is_some() {
            return;
        }
        state.written.set_state(MmpState::Clean);
        if let Err(error) = self.shared.reader().write(&mut state.written) {
            tracing::warn!(%error, "the volume stays marked as in use");
        }
    }
}

impl Drop for Mmp {
    fn drop(&mut self) {
        self.release();
    }
}

impl MmpShared {
    fn reader(&self) -> BlockAccess<'_> {
        BlockAccess {
            dev: &self.dev,
            at: self.at,
            block: self.block,
            seed: self.seed,
        }
    }

    /// The thread: updates the number until the end, or until the volume is lost.
    fn keep_alive(&self) {
        let mut state = self.state.lock();
        while !state.ended {
            let until = Instant::now() + self.interval;
            while !state.ended && Instant::now() < until {
                let _ = self.wake.wait_until(&mut state, until);
            }
            if state.ended {
                return;
            }
            if let Some(why) = self.update(&mut state) {
                state.lost = Some(why.clone());
                drop(state);
                if let Some(on_loss) = self.on_loss.get() {
                    on_loss(&format!("in use by {why}"));
                }
                return;
            }
        }
    }

    /// Writes the next number. Returns why the volume is lost, if it is.
    fn update(&self, state: &mut LastWritten) -> Option<String> {
        let reader = self.reader();
        let begun = Instant::now();
        let check = Duration::from_secs(state.written.check_interval.get().into());
        // A host that watches waits longer than this.
        let stale = 2 * check;
        let result = reader.read().and_then(|found| {
            let Some(seq) = ours(&found, &state.written) else {
                return Ok(Some(host_of(&found)));
            };
            let mut next = state.written.clone();
            next.set_state(MmpState::InUse(seq + 1));
            reader.write(&mut next)?;
            state.written = next;
            if begun.elapsed() < check {
                return Ok(None);
            }
            // The write may have come too late, over another host's: that host writes again.
            thread::sleep(self.interval);
            let again = reader.read()?;
            Ok(ours(&again, &state.written)
                .is_none()
                .then(|| host_of(&again)))
        });
        match result {
            Ok(None) => {
                state.since = Instant::now();
                None
            }
            Ok(Some(host)) => Some(host),
            Err(error) if state.since.elapsed() < stale => {
                tracing::warn!(%error, "no sign of life in the volume's multiple mount protection");
                None
            }
            Err(error) => Some(format!("another host, perhaps: {error}")),
        }
    }
}

/// The number in `found` if this host wrote it: the last one that was `written`, or the next one,
/// of a write whose success was not reported.
fn ours(found: &Block, written: &Block) -> Option<u32> {
    let (MmpState::InUse(seq), MmpState::InUse(last)) = (found.state(), written.state()) else {
        return None;
    };
    let known = seq == last || seq == last.saturating_add(1);
    (known && found.node == written.node).then_some(seq)
}

/// Reads and writes the block past all caches.
struct BlockAccess<'a> {
    dev: &'a Arc<dyn BlockDevice>,
    at: DevOff,
    block: Pblk,
    seed: Option<Crc32c>,
}

impl BlockAccess<'_> {
    fn read(&self) -> Result<Block> {
        let mut bytes = [0; MMP_SIZE];
        self.dev.read_fresh_at(self.at, &mut bytes)?;
        let parsed = Block::parse(&bytes, self.seed);
        parsed.map_err(|error| Error::corrupt(Location::Block(self.block), error))
    }

    fn write(&self, mmp: &mut Block) -> Result<()> {
        mmp.time.set(now());
        mmp.seal(self.seed);
        // An update orders nothing: nothing before it has to be durable first. It goes on after a
        // failed flush, when changes are refused and the volume is still in use.
        Ok(self.dev.write_note(self.at, mmp.as_bytes())?)
    }

    /// Watches the block until no host changes it, and returns it. Returns at once if the last user
    /// marked it clean.
    fn wait_until_free(&self, interval: u16) -> Result<Block> {
        let mmp = self.read()?;
        match mmp.state() {
            MmpState::Clean => return Ok(mmp),
            MmpState::Fsck => return Err(used_by_fsck()),
            MmpState::InUse(_) => {}
        }
        let wait = wait_of(mmp.check_interval.get().max(interval));
        let seconds = wait.as_secs();
        tracing::warn!(
            "not unmounted, or in use by {}: watched for {seconds} s, twice",
            host_of(&mmp)
        );
        thread::sleep(wait);
        let again = self.read()?;
        match again.state() {
            state if state == mmp.state() => Ok(mmp),
            MmpState::Clean => Ok(again),
            MmpState::Fsck => Err(used_by_fsck()),
            MmpState::InUse(_) => Err(in_use(&again)),
        }
    }

    /// Writes `mmp` and, where the volume was not clean, waits once more: another host may be
    /// taking it at the same time.
    fn take(&self, mmp: &mut Block, interval: u16) -> Result<()> {
        let old = self.read()?;
        let check = old.check_interval.get().max(interval).max(LEAST_CHECK);
        mmp.check_interval.set(check.min(MOST_CHECK));
        mmp.node = [0; 64];
        mmp.device = [0; 32];
        copy_name(&mut mmp.node, host_name().as_bytes());
        copy_name(&mut mmp.device, b"extant");
        self.write(mmp)?;
        if old.state() != MmpState::Clean {
            thread::sleep(wait_of(check));
        }
        let now = self.read()?;
        if now.state() == mmp.state() && now.node == mmp.node {
            return Ok(());
        }
        Err(in_use(&now))
    }
}

fn wait_of(check: u16) -> Duration {
    let check = u64::from(check.clamp(LEAST_CHECK, MOST_CHECK));
    Duration::from_secs((check * 2 + 1).min(check + 60)).min(LONGEST_WAIT)
}

fn in_use(mmp: &Block) -> Error {
    Error::InUse {
        by: host_of(mmp).into(),
    }
}

fn used_by_fsck() -> Error {
    Error::InUse {
        by: "e2fsck, or one that was broken off (tune2fs -f -E clear_mmp, if it was)".into(),
    }
}

/// The host and its device, as the block names them.
fn host_of(mmp: &Block) -> String {
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|&byte| byte == 0);
        let name = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    };
    format!("host '{}' as '{}'", text(&mmp.node), text(&mmp.device))
}

fn host_name() -> String {
    // A system call, which a confined process makes as well.
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

fn copy_name(to: &mut [u8], name: &[u8]) {
    // The last byte stays zero: the field is a C string.
    let room = to.len().saturating_sub(1);
    for (to, from) in to.iter_mut().zip(name.iter().take(room)) {
        *to = *from;
    }
}

/// A number that two hosts do not choose at the same time.
fn random() -> u32 {
    use extant_sync::hash::RandomState;
    use std::hash::BuildHasher;
    let hash = RandomState::new().hash_one(std::process::id());
    exact_u32(hash >> 33).max(1)
}
