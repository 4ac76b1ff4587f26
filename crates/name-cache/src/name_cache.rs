//! The cache: a table for short names and one for long ones.

use extant_units::Ino;

use crate::key::KeyMaker;
use crate::step::Omitted;
use crate::table::{Entry, Set, Stored, Table};

/// The longest name of the first table in bytes: with what stands beside it, a cache line.
const SHORT: usize = 48;
/// The longest name of ext4.
const LONGEST: usize = 255;
/// The part of the memory that long names have: one in so many.
const LONG_SHARE: usize = 8;

/// A cache of names. See the crate.
pub struct NameCache {
    keys: KeyMaker,
    short: Table,
    long: Table,
}

/// The state of the cache when an entry was read, to be asked about later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    long: bool,
    set: Set,
    sequence: u64,
}

impl NameCache {
    /// A cache of at most `bytes`. One without room for a name is empty for good.
    pub fn new(bytes: usize) -> Self {
        Self::with(bytes, Omitted::default())
    }

    /// As [`NameCache::new`], with one step of the protocol left out.
    #[cfg(extant_shuttle)]
    pub fn omitting(bytes: usize, step: Option<crate::Step>) -> Self {
        Self::with(bytes, step.map_or_else(Omitted::default, Omitted::only))
    }

    fn with(bytes: usize, omitted: Omitted) -> Self {
        let long = bytes / LONG_SHARE;
        Self {
            keys: KeyMaker::default(),
            short: Table::new(bytes - long, SHORT, omitted),
            long: Table::new(long, LONGEST, omitted),
        }
    }

    /// The entry of `name` in `dir`, if known: true at a moment of this call, if the user keeps the
    /// rules of the crate. The ticket is for [`NameCache::holds`].
    #[inline]
    pub fn get(&self, dir: Ino, name: &[u8]) -> Option<(Entry, Ticket)> {
        let long = name.len() > SHORT;
        let (entry, set, sequence) = self.table(long).get(self.keys.key(dir, name))?;
        let ticket = Ticket {
            long,
            set,
            sequence,
        };
        Some((entry, ticket))
    }

    /// Returns whether the entry that came with `ticket` has held until now. The answer may be no
    /// although it has: another name of its set was entered or forgotten.
    #[inline]
    pub fn holds(&self, ticket: &Ticket) -> bool {
        self.table(ticket.long).is_at(ticket.set, ticket.sequence)
    }

    /// Enters what `dir` says of `name`, at most 255 bytes long. The caller holds the directory's
    /// lock. Returns whether another name had to leave.
    pub fn put(&self, dir: Ino, name: &[u8], entry: Entry) -> bool {
        debug_assert!(name.len() <= LONGEST, "a name of {} bytes", name.len());
        let table = self.table(name.len() > SHORT);
        table.put(self.keys.key(dir, name), entry) == Stored::Evicted
    }

    /// Forgets what is known of `name` in `dir`. The caller holds the directory's lock exclusively,
    /// and has not changed the directory yet.
    pub fn forget(&self, dir: Ino, name: &[u8]) {
        let table = self.table(name.len() > SHORT);
        table.remove(self.keys.key(dir, name));
    }

    #[inline]
    fn table(&self, long: bool) -> &Table {
        if long { &self.long } else { &self.short }
    }
}

#[cfg(all(test, not(extant_shuttle)))]
mod tests {
    use super::*;
    use crate::table::Target;

    fn dir(number: u32) -> Ino {
        Ino::new(number).unwrap()
    }

    fn present(number: u32) -> Entry {
        Entry::Present(Target {
            ino: dir(number),
            generation: !number,
            kind: 7,
        })
    }

    fn known(cache: &NameCache, at: u32, name: &[u8]) -> Option<Entry> {
        cache.get(dir(at), name).map(|(entry, _)| entry)
    }

    #[test]
    fn what_was_put_is_found_and_what_was_forgotten_is_not() {
        let cache = NameCache::new(1 << 20);
        // Every length: one word more or less, short and long.
        let names: Vec<Vec<u8>> = (1..=LONGEST)
            .map(|len| vec![u8::try_from(len).unwrap(); len])
            .collect();
        for (number, name) in (10..).zip(&names) {
            assert_eq!(known(&cache, 2, name), None);
            cache.put(dir(2), name, present(number));
            assert_eq!(known(&cache, 2, name), Some(present(number)));
            assert_eq!(known(&cache, 3, name), None, "another directory");
            cache.put(dir(2), name, Entry::Absent);
            assert_eq!(known(&cache, 2, name), Some(Entry::Absent));
            cache.forget(dir(2), name);
            assert_eq!(known(&cache, 2, name), None);
        }
    }

    #[test]
    fn a_ticket_ends_with_its_entry() {
        let cache = NameCache::new(1 << 20);
        for name in [&b"short"[..], &[b'l'; 200]] {
            cache.put(dir(2), name, present(12));
            let (_, ticket) = cache.get(dir(2), name).unwrap();
            cache.put(dir(2), name, present(12));
            assert!(cache.holds(&ticket), "nothing changed");
            cache.forget(dir(2), name);
            assert!(!cache.holds(&ticket));
            cache.put(dir(2), name, present(12));
            assert!(!cache.holds(&ticket), "it was gone for a moment");
        }
    }

    #[test]
    fn a_full_cache_lets_others_go_and_stays_right() {
        let cache = NameCache::new(64 << 10);
        let mut evicted = 0;
        for number in 1..5000 {
            let name = format!("file{number}");
            evicted += u32::from(cache.put(dir(2), name.as_bytes(), present(number)));
        }
        let left = (1..5000_u32).filter(|&number| {
            let name = format!("file{number}");
            let found = known(&cache, 2, name.as_bytes());
            found.is_some_and(|entry| {
                assert_eq!(entry, present(number));
                true
            })
        });
        let left = u32::try_from(left.count()).unwrap();
        assert_eq!(left + evicted, 4999);
        assert!((600..800).contains(&left), "{left} names in 56 KiB");
    }

    #[test]
    fn a_name_in_use_outlasts_others() {
        let cache = NameCache::new(64 << 10);
        cache.put(dir(2), b"used", present(1));
        let mut found = 0;
        for number in 1..5000_u32 {
            let name = format!("file{number}");
            cache.put(dir(3), name.as_bytes(), Entry::Absent);
            found += u32::from(known(&cache, 2, b"used").is_some());
        }
        assert!(found > 4900, "found {found} times");
    }

    /// Pages of this process in memory.
    fn resident() -> u64 {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn memory_is_backed_when_a_name_falls_there() {
        let before = resident();
        let cache = NameCache::new(1 << 28);
        cache.put(dir(2), b"name", present(1));
        assert_eq!(known(&cache, 2, b"name"), Some(present(1)));
        let grown = resident().saturating_sub(before);
        assert!(grown < 4 << 10, "{grown} pages of 2^16");
    }

    #[test]
    fn without_room_nothing_is_known() {
        for bytes in [0, 1, 400] {
            let cache = NameCache::new(bytes);
            assert!(!cache.put(dir(2), b"name", present(1)));
            cache.forget(dir(2), b"name");
            assert_eq!(known(&cache, 2, b"name"), None);
        }
    }
}
