//! Descriptors of the process as numbers: what was inherited, and what a thread keeps.
#![allow(unsafe_code, reason = "numbers become descriptors, or are closed")]

use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::thread::UnshareFlags;
use tracing::debug;

/// Descriptors below this one are the standard streams.
const FIRST: RawFd = 3;

/// Takes the descriptors over that the parent process has handed over by number, and closes all
/// others that it has left open, but for the standard streams (without `/proc` these stay). Call it
/// as the first thing that the process does with descriptors.
///
/// # Errors
/// A number is not that of an open descriptor, is a standard stream's, or is given twice.
pub fn take_inherited_and_close_rest<const N: usize>(
    wanted: [Option<RawFd>; N],
) -> io::Result<[Option<OwnedFd>; N]> {
    let mut taken: [Option<OwnedFd>; N] = [const { None }; N];
    let open = match listed() {
        Ok(open) => open,
        Err(error) if wanted.iter().all(Option::is_none) => {
            debug!("descriptors that were left open are not closed: {error}");
            return Ok(taken);
        }
        Err(error) => {
            let what = format!("/proc does not list the descriptors: {error}");
            return Err(io::Error::new(error.kind(), what));
        }
    };
    for (i, (place, number)) in taken.iter_mut().zip(wanted).enumerate() {
        let Some(number) = number else { continue };
        let twice = wanted.iter().take(i).any(|&other| other == Some(number));
        if number < FIRST || twice || !open.contains(&number) {
            let what = format!("{number} is not a descriptor that was handed over");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        // SAFETY: the descriptor is open, and each number is taken once. The process has opened
        // nothing yet (see above), so nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(number) };
        fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
        *place = Some(fd);
    }
    for number in open {
        if !wanted.contains(&Some(number)) {
            // SAFETY: as above: nothing owns it.
            unsafe { rustix::io::close(number) };
        }
    }
    Ok(taken)
}

/// Unshares the descriptor table of this thread, and closes all in it but the standard streams.
pub(crate) fn unshare_and_close_descriptors() -> io::Result<()> {
    // SAFETY: the thread uses no descriptor of another thread afterwards, and hands none of its own
    // out.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FILES) }?;
    for number in listed()? {
        // SAFETY: the table is this thread's alone, and nothing in the thread owns a descriptor of
        // it: what other threads own are numbers in their table.
        unsafe { rustix::io::close(number) };
    }
    Ok(())
}

/// The descriptors of this thread's table that are open, without the standard streams.
fn listed() -> io::Result<Vec<RawFd>> {
    let entries = fs::read_dir("/proc/thread-self/fd")?;
    let numbers: Vec<RawFd> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    let open = |&number: &RawFd| number >= FIRST && is_open(number);
    // The listing's own is closed by now.
    Ok(numbers.into_iter().filter(open).collect())
}

fn is_open(number: RawFd) -> bool {
    // SAFETY: the number is not -1; it is used for one call, which fails if it is not open.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_getfd(fd) != Err(Errno::BADF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_was_not_handed_over_is_refused() {
        let (one, _other) = rustix::pipe::pipe().unwrap();
        let number = one.as_raw_fd();
        assert!(is_open(number) && listed().unwrap().contains(&number));
        // Refused before anything is closed: the test's process owns what is open.
        for wanted in [[Some(1), None], [Some(100_000), None]] {
            let error = take_inherited_and_close_rest(wanted)
                .unwrap_err()
                .to_string();
            assert!(error.contains("not a descriptor"), "{error}");
        }
    }

    #[test]
    fn a_thread_keeps_none_but_the_standard_streams() {
        let (one, other) = rustix::pipe::pipe().unwrap();
        let left = std::thread::spawn(|| {
            unshare_and_close_descriptors().unwrap();
            listed().unwrap()
        });
        assert_eq!(left.join().unwrap(), Vec::<RawFd>::new());
        rustix::io::write(&other, b"x").unwrap();
        assert_eq!(rustix::io::read(&one, &mut [0; 2]), Ok(1));
    }
}
