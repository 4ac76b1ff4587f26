//! Counters of a tree's work for proofs, under the tree's lock.

macro_rules! counters {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// Counters of a tree's work so far.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[non_exhaustive]
        pub struct TreeStats {
            $($(#[$meta])* pub $name: u64,)*
        }

        impl std::ops::AddAssign for TreeStats {
            fn add_assign(&mut self, more: Self) {
                $(self.$name += more.$name;)*
            }
        }

        impl TreeStats {
            /// Every counter by name.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

/// Counters of trees that are gone: each adds its own when it is dropped.
#[derive(Default)]
pub struct Totals(extant_sync::Mutex<TreeStats>);

impl Totals {
    /// The sum.
    pub fn get(&self) -> TreeStats {
        *self.0.lock()
    }

    pub(crate) fn add(&self, more: TreeStats) {
        *self.0.lock() += more;
    }
}

counters! {
    /// Calls that set bits, those that lock included.
    sets,
    /// Calls that cleared bits, those that unlock included.
    clears,
    /// Clears that shortened a record from behind, where it began before the range.
    trim_first,
    /// Clears that shortened a record from the front, where it ended behind the range.
    trim_last,
    /// Records that were cut in two.
    splits,
    /// Records that became one with a neighbour.
    merges,
    /// Records taken from the free ones to cut another in two.
    prealloc_allocs,
    /// Times memory was taken from the allocator, outside of the tree's lock.
    grows,
    /// Times that had to happen inside.
    grows_inside,
    /// Calls that had to sleep.
    lock_waits,
    /// Threads woken.
    wakes,
    /// Records unlocked without a waiter to wake.
    wakes_skipped,
}
