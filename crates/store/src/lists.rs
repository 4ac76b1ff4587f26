//! The lists of the doomed as a push has read them: which objects it may rely on, and how long.
//!
//! # Concurrency
//! gc removes what a list has once the list is [`GRACE`] old, and looks at all versions before. So
//! a push that did not see the list is safe if its version is there by then. It has half of that
//! time from reading the lists to making the version; the rest is for requests under way.

use std::collections::HashSet;
use std::time::Duration;

use crate::doomed::{self, Content};
use crate::error::{Error, Result};
use crate::hash::ObjectHash;
use crate::object_name::ObjectName;
use crate::store::Store;

/// The age from which objects of a list are removed: a constant of the format.
pub const GRACE: Duration = Duration::from_secs(24 * 3600);

/// A push relies on lists that it has read for so long, and gc on the versions.
pub(crate) const HALF: Duration = Duration::from_secs(12 * 3600);

/// A request that was begun is over by then: it is repeated for minutes only.
const REQUEST: Duration = Duration::from_secs(6 * 3600);

/// Lists that were read, all together.
#[derive(Debug)]
pub(crate) struct Lists {
    doomed: HashSet<Content>,
    /// When the last reading began, in time since the boot.
    read: Duration,
    /// A list may have come and gone unseen.
    gap: bool,
}

impl Lists {
    /// Reads the lists of a store.
    pub(crate) fn read(store: &Store) -> Result<Self> {
        let read = store.host.uptime();
        Ok(Self {
            doomed: doomed::read_all(store)?,
            read,
            gap: false,
        })
    }

    fn age(&self, store: &Store) -> Duration {
        store.host.uptime().saturating_sub(self.read)
    }

    /// Returns whether a version may be made by these lists.
    pub(crate) fn is_fresh(&self, store: &Store) -> bool {
        self.age(store) <= HALF
    }

    /// Returns whether a version that was made just now was made in time. It was not if the machine
    /// slept between looking at the clock and the request.
    pub(crate) fn was_in_time(&self, store: &Store) -> bool {
        self.age(store) <= HALF + REQUEST
    }

    /// Reads the lists again if they are not fresh.
    pub(crate) fn renew(&mut self, store: &Store) -> Result<()> {
        while !self.is_fresh(store) {
            let began = store.host.uptime();
            self.doomed.extend(doomed::read_all(store)?);
            // A list stays for twice `GRACE`. One of before this time was seen, unless it took
            // nearly as long until the lists were read.
            self.gap |= self.age(store) > GRACE + HALF;
            self.read = began;
        }
        Ok(())
    }

    /// Returns whether what was relied on so far may be gone, and forgets that.
    pub(crate) fn take_gap(&mut self) -> bool {
        std::mem::take(&mut self.gap)
    }

    pub(crate) fn has(&self, content: &Content) -> bool {
        self.doomed.contains(content)
    }

    /// The first generation that is in no list.
    ///
    /// # Errors
    /// [`Error::Damaged`] if there is none left.
    pub(crate) fn free(
        &self,
        content: fn(ObjectName) -> Content,
        hash: ObjectHash,
    ) -> Result<ObjectName> {
        let names = (0..=u8::MAX).map(|generation| ObjectName { hash, generation });
        let mut free = names.filter(|&name| !self.has(&content(name)));
        free.next()
            .ok_or_else(|| Error::damaged(hash, "all its 256 generations are to be removed"))
    }
}
