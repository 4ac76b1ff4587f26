//! The counters of a mount, live, from outside of its daemon.
//!
//! They are the value of the extended attribute [`STATS_ATTRIBUTE`] of any file of the mount, which
//! is not stored and not listed. Root and the daemon's user may read it. It has a line per counter,
//! its name and its number: the counters of the engine, what the mount was begun with
//! (`sandbox_seccomp`), the number of requests of each kind (`requests_lookup`), and how many of
//! them took how long (`latency_lookup_8us`: from 8 µs on, and below the double).
//! `transport_uring` is 1 where rings carry them; where there are rings, their counters follow
//! (`transport_requests`).

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use extant_counter::lower_bound;
use extant_engine::Volume;
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::counters::Counters;
use crate::traffic::Traffic;

/// The extended attribute, of any file of a mount, whose value is the list of counters.
pub const STATS_ATTRIBUTE: &str = "extant.stats";
/// The largest value that an extended attribute can have.
const MOST: usize = 64 << 10;

/// The list.
pub(crate) fn list(
    volume: &Volume,
    facts: &[(&'static str, u64)],
    (requests, rings): (&Counters, Option<&Traffic>),
    [drains, failed_drains]: [u64; 2],
) -> String {
    let mut lines = String::new();
    for (name, value) in volume.stats().into_iter().chain(facts.iter().copied()) {
        let _ = writeln!(lines, "{name} {value}");
    }
    let latencies: Vec<_> = requests.latencies().collect();
    for (name, counts) in &latencies {
        let _ = writeln!(lines, "requests_{name} {}", counts.iter().sum::<u64>());
    }
    for (name, counts) in latencies {
        for (bucket, count) in counts.into_iter().enumerate().filter(|(_, n)| *n > 0) {
            let from = lower_bound(bucket);
            let _ = writeln!(lines, "latency_{name}_{from}us {count}");
        }
    }
    let _ = writeln!(lines, "space_drains {drains}");
    let _ = writeln!(lines, "space_drains_failed {failed_drains}");
    let carried = u64::from(rings.is_some_and(Traffic::carries));
    let _ = writeln!(lines, "transport_uring {carried}");
    for (name, value) in rings.iter().flat_map(|rings| rings.list()) {
        let _ = writeln!(lines, "{name} {value}");
    }
    lines
}

/// Whether the user `uid` may have it.
pub(crate) fn allowed(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}

/// The counters of the Extant mount at `dir`, by name, as of now.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] if it is not a mount of Extant;
/// [`io::ErrorKind::PermissionDenied`] if the mount is another user's; those of reaching `dir`.
pub fn stats(dir: &Path) -> io::Result<Vec<(String, u64)>> {
    let mut value = vec![0; MOST];
    let len = match rustix::fs::getxattr(dir, STATS_ATTRIBUTE, &mut value) {
        Ok(len) => len,
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "not a mount of Extant",
            ));
        }
        Err(error) => return Err(error.into()),
    };
    value.truncate(len);
    parse(&value).ok_or_else(|| io::Error::other("not a list of counters"))
}

fn parse(value: &[u8]) -> Option<Vec<(String, u64)>> {
    let lines = std::str::from_utf8(value).ok()?.lines();
    lines
        .map(|line| {
            let (name, number) = line.split_once(' ')?;
            Some((name.to_owned(), number.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_names_and_numbers() {
        let two = parse(b"handles 12\nrequests_lookup 0\n").unwrap();
        assert_eq!(two, [("handles".into(), 12), ("requests_lookup".into(), 0)]);
        assert_eq!(parse(b""), Some(Vec::new()));
        assert!(parse(b"handles").is_none() && parse(b"handles x\n").is_none());
        assert!(parse(b"\xff 1\n").is_none());
    }

    #[test]
    fn others_may_not() {
        assert!(allowed(0) && allowed(geteuid().as_raw()));
        assert!(!allowed(geteuid().as_raw().wrapping_add(1)));
    }
}
