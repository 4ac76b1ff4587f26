//! INIT: what kernel and file system agree on, once, before anything else.

use std::io;
use std::time::{Duration, Instant};

use crate::abi::{self, InitFlags, InitOut, MAJOR, MINOR, MINOR_OLDEST};
use crate::device::{Device, MAX_ZEROS, Received};
use crate::errno::Errno;
use crate::reply::{ReplyBuf, ReplyMemory};
use crate::request::Request;

/// The most data in one READ or WRITE, in bytes.
pub(crate) const MAX_IO: u32 = 1 << 20;
const _: () = assert!(MAX_IO as usize <= MAX_ZEROS, "a hole is sent whole");
/// Bytes of a request at most.
pub(crate) const REQUEST_LEN: usize = MAX_IO as usize + abi::REQUEST_OVERHEAD;
/// Bytes behind the header of a reply at most: a READ; directory listings and attributes are
/// smaller.
pub(crate) const REPLY_LEN: usize = MAX_IO as usize;
/// Pages of a request at most, as INIT has it.
const MAX_PAGES: u32 = MAX_IO / 4096;
/// Background requests (readahead, write-back, asynchronous RELEASE) that may be in flight. Over
/// rings it is as many as there can be: where the kernel holds some back, Linux 6.18 gives those
/// that it lets go to one entry of the queue, one after the other, while others are free. To a
/// process without privileges, such as a confined daemon, it grants no more than
/// `/sys/module/fuse/parameters/max_user_bgreq`.
const MAX_BACKGROUND: u16 = 128;
/// From how many on the kernel calls the device congested.
const CONGESTION: u16 = 96;
/// The minor version of Linux 6.1. Since 6.0, which has no version of its own, the check is made
/// above the file systems.
const CHECKS_SET_GID: u32 = 37;
/// How long the kernel may take to send INIT. It does so as part of the mount.
const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes that a ring's entry needs for what is behind the headers: the most that the kernel may put
/// there, by bytes or by pages.
pub(crate) fn payload_len() -> usize {
    let by_pages = MAX_PAGES as usize * rustix::param::page_size();
    by_pages.max(MAX_IO as usize)
}

/// What was agreed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    /// SETXATTR carries flags of its own.
    pub(crate) setxattr_ext: bool,
    /// The kernel keeps dirty pages.
    pub(crate) writeback: bool,
    /// The kernel can do without OPEN.
    pub(crate) no_open: bool,
    /// The kernel can do without OPENDIR.
    pub(crate) no_opendir: bool,
    /// The kernel waits for rings before it sends requests.
    pub(crate) rings: bool,
    /// The kernel takes the set-group-id bit from the mode of what is made in a set-group-id
    /// directory, unless the caller may give it: it knows all groups of the caller.
    pub(crate) checks_set_gid: bool,
    /// The kernel checks permissions, not the server.
    pub(crate) kernel_checks: bool,
}

/// Features that the mount asks for, where it has a choice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestedFeatures {
    /// Let the kernel keep dirty pages.
    pub(crate) writeback: bool,
    /// Requests are to come over rings, if the kernel has that.
    pub(crate) rings: bool,
    /// The kernel is to check permissions.
    pub(crate) kernel_checks: bool,
    /// The finest time an inode can hold, in nanoseconds: the kernel's own times are no finer.
    pub(crate) time_gran: u32,
}

/// Answers INIT.
///
/// # Errors
/// If the kernel is older than Linux 5.4, or goes away.
pub(crate) fn handshake(device: &Device, requested: RequestedFeatures) -> io::Result<Agreed> {
    let mut bytes = vec![0; REQUEST_LEN];
    let mut space = ReplyMemory::new(size_of::<InitOut>());
    let mut reply = space.start();
    let patience = Instant::now() + PATIENCE;
    loop {
        // INIT is no WRITE: its guard goes at once.
        let len = match device.receive(&mut bytes)? {
            Received::Request(len, _) => len,
            Received::Gone => return Err(io::Error::other("unmounted before it was mounted")),
            Received::Nothing => {
                let left = patience.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the kernel sent no INIT",
                    ));
                }
                device.wait(Some(left))?;
                continue;
            }
        };
        let request = bytes.get(..len).and_then(Request::new);
        let Some((request, (init, upper))) = request.and_then(|r| r.init().map(|i| (r, i))) else {
            return Err(io::Error::other("the kernel's first request is not INIT"));
        };
        let unique = request.header.unique;
        if is_too_old(init) {
            device.send(reply.finish(unique, Err(Errno::OPNOTSUPP)))?;
            let what = format!(
                "the kernel speaks FUSE {}.{}, but {MAJOR}.{MINOR_OLDEST} (Linux 5.4) is needed",
                init.major, init.minor
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        let (out, agreed) = negotiate(init, upper, requested);
        let put = reply.put(&out);
        device.send(reply.finish(unique, put))?;
        reply.clear();
        // A newer major version is answered with ours, and the kernel asks again in it.
        if init.major == MAJOR {
            return Ok(agreed);
        }
    }
}

/// Returns whether a kernel is older than those that are spoken with.
fn is_too_old(init: &abi::InitIn) -> bool {
    init.major < MAJOR || (init.major == MAJOR && init.minor < MINOR_OLDEST)
}

/// Answers INIT, which came by another way than the device. Returns the agreement; without one the
/// reply says so, and a kernel of a newer major version asks again.
pub(crate) fn answer(
    request: &Request<'_>,
    requested: RequestedFeatures,
    reply: &mut ReplyBuf<'_>,
) -> Option<Agreed> {
    let (init, upper) = request.init()?;
    let unique = request.header.unique;
    if is_too_old(init) {
        reply.finish(unique, Err(Errno::OPNOTSUPP));
        return None;
    }
    let (out, agreed) = negotiate(init, upper, requested);
    let put = reply.put(&out);
    reply.finish(unique, put);
    (init.major == MAJOR).then_some(agreed)
}

fn negotiate(init: &abi::InitIn, upper: u32, requested: RequestedFeatures) -> (InitOut, Agreed) {
    let mut offered = u64::from(init.flags);
    if InitFlags::from_bits_retain(offered).contains(InitFlags::INIT_EXT) {
        offered |= u64::from(upper) << 32;
    }
    let offered = InitFlags::from_bits_retain(offered);
    // Not wanted: ATOMIC_O_TRUNC, since a truncation must arrive without OPEN; AUTO_INVAL_DATA,
    // since files change through the kernel only; splicing, which cannot beat one copy into a
    // folio; ASYNC_DIO: after an asynchronous direct write the kernel does not drop the pages that
    // buffered readers cached meanwhile, and a short answer to one becomes EIO (no ENOSPC).
    let mut wanted = InitFlags::ASYNC_READ
        | InitFlags::EXPORT_SUPPORT
        | InitFlags::BIG_WRITES
        | InitFlags::DONT_MASK
        | InitFlags::HAS_IOCTL_DIR
        | InitFlags::DO_READDIRPLUS
        | InitFlags::READDIRPLUS_AUTO
        | InitFlags::NO_OPEN_SUPPORT
        | InitFlags::PARALLEL_DIROPS
        | InitFlags::MAX_PAGES
        | InitFlags::CACHE_SYMLINKS
        | InitFlags::NO_OPENDIR_SUPPORT
        | InitFlags::EXPLICIT_INVAL_DATA
        | InitFlags::HANDLE_KILLPRIV_V2
        | InitFlags::SETXATTR_EXT
        | InitFlags::INIT_EXT;
    if requested.kernel_checks {
        // The kernel takes its default_permissions along.
        wanted |= InitFlags::POSIX_ACL;
    }
    if requested.writeback {
        wanted |= InitFlags::WRITEBACK_CACHE;
    }
    if requested.rings {
        wanted |= InitFlags::OVER_IO_URING;
    }
    let flags = offered & wanted;
    let rings = flags.contains(InitFlags::OVER_IO_URING);
    let bits = flags.bits();
    let out = InitOut {
        major: MAJOR,
        minor: MINOR,
        max_readahead: init.max_readahead.max(MAX_IO),
        // Both halves fit: one is masked, one shifted.
        flags: u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0),
        flags2: u32::try_from(bits >> 32).unwrap_or(0),
        max_background: if rings { u16::MAX } else { MAX_BACKGROUND },
        congestion_threshold: CONGESTION,
        max_write: MAX_IO,
        time_gran: requested.time_gran,
        max_pages: u16::try_from(MAX_PAGES).unwrap_or(u16::MAX),
        ..InitOut::default()
    };
    let agreed = Agreed {
        setxattr_ext: flags.contains(InitFlags::SETXATTR_EXT),
        writeback: flags.contains(InitFlags::WRITEBACK_CACHE),
        no_open: flags.contains(InitFlags::NO_OPEN_SUPPORT),
        no_opendir: flags.contains(InitFlags::NO_OPENDIR_SUPPORT),
        rings,
        checks_set_gid: init.minor >= CHECKS_SET_GID,
        kernel_checks: requested.kernel_checks,
    };
    (out, agreed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested(writeback: bool) -> RequestedFeatures {
        RequestedFeatures {
            writeback,
            rings: false,
            kernel_checks: true,
            time_gran: 1,
        }
    }

    #[test]
    fn only_what_is_offered_and_wanted_is_agreed_on() {
        let everything = abi::InitIn {
            major: 7,
            minor: 40,
            max_readahead: 1,
            flags: u32::MAX,
        };
        let (out, agreed) = negotiate(&everything, u32::MAX, requested(true));
        assert!(agreed.writeback && agreed.no_open && agreed.no_opendir && agreed.setxattr_ext);
        let truncate_on_open = u32::try_from(InitFlags::ATOMIC_O_TRUNC.bits()).unwrap();
        assert_eq!(out.flags & truncate_on_open, 0, "truncations would be lost");
        let async_direct = u32::try_from(InitFlags::ASYNC_DIO.bits()).unwrap();
        assert_eq!(out.flags & async_direct, 0, "cached pages would be stale");
        assert_eq!(
            out.flags2, 0,
            "without rings the kernel would wait for them"
        );
        let ringed = RequestedFeatures {
            rings: true,
            ..requested(true)
        };
        let (out, agreed) = negotiate(&everything, u32::MAX, ringed);
        assert!(agreed.rings && u64::from(out.flags2) == InitFlags::OVER_IO_URING.bits() >> 32);
        assert_eq!(out.max_background, u16::MAX, "none is held back");
        assert!(!negotiate(&everything, 0, ringed).1.rings);
        let acls = u32::try_from(InitFlags::POSIX_ACL.bits()).unwrap();
        assert!(out.flags & acls != 0 && agreed.kernel_checks);
        let unchecked = RequestedFeatures {
            kernel_checks: false,
            ..requested(true)
        };
        let (out, agreed) = negotiate(&everything, 0, unchecked);
        assert!(out.flags & acls == 0 && !agreed.kernel_checks);
        let (_, agreed) = negotiate(&everything, 0, requested(false));
        assert!(!agreed.writeback);
        let coarse = RequestedFeatures {
            time_gran: 1_000_000_000,
            ..requested(true)
        };
        let (out, _) = negotiate(&everything, 0, coarse);
        assert_eq!(out.time_gran, 1_000_000_000);
        let (out, agreed) = negotiate(&abi::InitIn::default(), 0, requested(true));
        assert!(out.flags == 0 && !agreed.checks_set_gid);
        let older = abi::InitIn {
            minor: 36,
            ..everything
        };
        assert!(!negotiate(&older, 0, requested(true)).1.checks_set_gid);
        assert!(negotiate(&everything, 0, requested(true)).1.checks_set_gid);
    }
}
