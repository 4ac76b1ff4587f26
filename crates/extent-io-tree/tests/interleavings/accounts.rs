//! The hooks' accounts while three threads set, clear, split and merge the same records.
//!
//! The account is that of delayed allocation: bytes with the bit, records that have it, and what
//! was paid for the bytes. Each model has a twin that keeps one of the three beside the tree, as
//! the change of a number that is read before and after, or pays in a step of its own.

use std::sync::Arc;

use extant_extent_io_tree::{Bits, ByteRange, Hooks, IoTree, TreeTuning};
use extant_testkit::schedules::check_fails;
use shuttle::sync::Mutex;
use shuttle::thread;

use super::{check, range};

/// The owner's account of delayed bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Account {
    /// Bytes that were paid for, and are delayed still.
    paid: u64,
    bytes: u64,
    records: u64,
    /// Bytes that ended by allocation.
    allocated: u64,
    /// Bytes whose price was given back.
    given_back: u64,
}

impl Hooks for Account {
    fn set(&mut self, range: ByteRange, had: Bits, _: Bits, _: Bits) {
        assert!(had.is_empty(), "delayed twice");
        self.bytes += range.bytes();
        self.records += 1;
        assert!(self.bytes <= self.paid, "delayed before it was paid for");
    }

    fn clear(&mut self, range: ByteRange, _: Bits, _: Bits, control: Bits) {
        self.bytes -= range.bytes();
        self.records -= 1;
        self.paid -= range.bytes();
        if control.contains(Bits::ADD_INODE_BYTES) {
            self.allocated += range.bytes();
        } else {
            self.given_back += range.bytes();
        }
    }

    fn split(&mut self, _: ByteRange, _: Bits, _: u64) {
        self.records += 1;
    }

    fn merge(&mut self, _: ByteRange, _: ByteRange, _: Bits) {
        self.records -= 1;
    }
}

const ALLOCATED: Bits = Bits::DELALLOC.union(Bits::ADD_INODE_BYTES);
const GIVEN_BACK: Bits = Bits::DELALLOC.union(Bits::CLEAR_DATA_RESV);

/// A tree, and numbers about it that the twins keep beside it.
#[derive(Clone)]
struct Shared {
    tree: Arc<IoTree<Account>>,
    /// The number that a twin keeps; also the lock around more than one step.
    beside: Arc<Mutex<i64>>,
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap()
}

impl Shared {
    fn new(trim_on_clear: bool) -> Self {
        let tuning = TreeTuning {
            trim_on_clear,
            ..TreeTuning::default()
        };
        Self {
            tree: Arc::new(IoTree::with_hooks(tuning, Account::default())),
            beside: Arc::default(),
        }
    }

    fn delay(&self, range: ByteRange) {
        self.tree.set_accounted(range, Bits::DELALLOC, |account| {
            account.paid += range.bytes();
        });
    }

    /// Runs `change`, and adds what it did to the number `of` the tree to the one beside it.
    fn noting(&self, of: impl Fn(&Self) -> u64, change: impl FnOnce(&Self)) {
        let before = of(self);
        change(self);
        let after = of(self);
        *self.beside.lock().unwrap() += signed(after) - signed(before);
    }

    fn bytes(&self) -> u64 {
        self.tree.count(ByteRange::ALL, Bits::DELALLOC)
    }

    fn records(&self) -> u64 {
        self.tree.records() as u64
    }

    /// The account is what the records add up to.
    fn audit(&self) -> Account {
        self.tree.verify();
        let records = self.tree.dump();
        let bytes = records.iter().map(|(range, _)| range.bytes()).sum();
        let account = self.tree.hooks(|account| *account);
        let found = (account.paid, account.bytes, account.records);
        assert_eq!(found, (bytes, bytes, records.len() as u64), "{records:?}");
        account
    }
}

/// Runs each of `work` in a thread of its own.
fn run(shared: &Shared, work: [fn(&Shared); 3]) {
    let running = work.map(|work| {
        let shared = shared.clone();
        thread::spawn(move || work(&shared))
    });
    running.into_iter().for_each(|t| t.join().unwrap());
}

/// Clears from the front, from the end and out of the middle, of one record.
fn cleared(trim_on_clear: bool) {
    let shared = Shared::new(trim_on_clear);
    shared.delay(range(0, 11));
    run(
        &shared,
        [
            |shared| {
                shared.tree.clear(range(0, 2), ALLOCATED);
                shared.tree.clear(range(3, 5), ALLOCATED);
            },
            |shared| shared.tree.clear(range(8, 11), GIVEN_BACK),
            |shared| shared.tree.clear(range(5, 8), GIVEN_BACK),
        ],
    );
    let account = shared.audit();
    assert_eq!(account.bytes, 0);
    assert_eq!(account.allocated + account.given_back, 12);
    assert!(account.allocated >= 5, "{account:?}");
}

#[test]
fn j38_clears_of_one_record_end_each_byte_once() {
    check(|| cleared(true));
    check(|| cleared(false));
}

/// Two threads that clear the same bytes both see them go.
#[test]
fn counting_before_and_after_a_clear_is_no_account() {
    check_fails(|| {
        let shared = Shared::new(true);
        shared.delay(range(0, 11));
        run(
            &shared,
            [
                |s| s.noting(Shared::bytes, |s| s.tree.clear(range(0, 7), ALLOCATED)),
                |s| s.noting(Shared::bytes, |s| s.tree.clear(range(4, 11), GIVEN_BACK)),
                |_| {},
            ],
        );
        assert_eq!(*shared.beside.lock().unwrap(), -12);
    });
}

/// A thread delays what joins two records, one cuts them apart, one ends a part of both.
fn joined_and_cut(work: [fn(&Shared); 3]) -> Shared {
    let shared = Shared::new(true);
    shared.delay(range(0, 3));
    shared.delay(range(8, 11));
    run(&shared, work);
    shared
}

#[test]
fn j38_splits_and_merges_leave_as_many_records_as_are_accounted() {
    check(|| {
        let shared = joined_and_cut([
            |shared| shared.delay(range(4, 7)),
            |shared| shared.tree.clear(range(1, 2), GIVEN_BACK),
            |shared| shared.tree.clear(range(3, 8), ALLOCATED),
        ]);
        let account = shared.audit();
        let delayed = account.bytes + account.allocated + account.given_back;
        assert_eq!(delayed, 12);
    });
}

#[test]
fn counting_records_before_and_after_a_merge_is_no_account() {
    check_fails(|| {
        let shared = joined_and_cut([
            |s| s.noting(Shared::records, |s| s.delay(range(4, 7))),
            |s| s.noting(Shared::records, |s| s.tree.clear(range(1, 2), GIVEN_BACK)),
            |s| s.noting(Shared::records, |s| s.tree.clear(range(9, 10), GIVEN_BACK)),
        ]);
        let records = signed(shared.records());
        assert_eq!(*shared.beside.lock().unwrap() + 2, records);
    });
}

/// Delays what is not delayed of `part`, and pays for that: in one step, or after a look that is a
/// step of its own.
fn reserve(shared: &Shared, part: ByteRange, one_step: bool) {
    let lock = one_step.then(|| shared.beside.lock().unwrap());
    let missing = part.bytes() - shared.tree.count(part, Bits::DELALLOC);
    shared.tree.set_accounted(part, Bits::DELALLOC, |account| {
        account.paid += missing;
    });
    drop(lock);
}

#[test]
fn j9_what_pays_for_bytes_comes_with_them() {
    check(|| {
        let shared = Shared::new(true);
        run(
            &shared,
            [
                |shared| reserve(shared, range(0, 4), true),
                |shared| reserve(shared, range(3, 8), true),
                |shared| reserve(shared, range(2, 3), true),
            ],
        );
        assert_eq!(shared.audit().bytes, 9);
    });
}

#[test]
fn a_look_before_the_step_pays_twice() {
    check_fails(|| {
        let shared = Shared::new(true);
        run(
            &shared,
            [
                |shared| reserve(shared, range(0, 4), false),
                |shared| reserve(shared, range(3, 8), false),
                |shared| reserve(shared, range(2, 3), false),
            ],
        );
        shared.audit();
    });
}

/// A block of a file: the disk may have it, or it may be delayed.
struct Block {
    on_disk: Mutex<bool>,
    delayed: IoTree<Account>,
}

/// Allocates a delayed block while two threads look where it is: the lock of what is known of the
/// disk covers both (`one_step`), or each part is changed by itself.
fn allocated(one_step: bool) {
    let block = Arc::new(Block {
        on_disk: Mutex::new(false),
        delayed: IoTree::with_hooks(TreeTuning::default(), Account::default()),
    });
    block
        .delayed
        .set_accounted(range(0, 3), Bits::DELALLOC, |account| account.paid += 4);
    let readers = [(); 2].map(|()| {
        let block = Arc::clone(&block);
        thread::spawn(move || {
            let on_disk = block.on_disk.lock().unwrap();
            let delayed = block.delayed.count(range(0, 3), Bits::DELALLOC) == 4;
            assert!(*on_disk != delayed, "neither, or both");
        })
    });
    let mut on_disk = block.on_disk.lock().unwrap();
    if one_step {
        *on_disk = true;
        block.delayed.clear(range(0, 3), ALLOCATED);
        drop(on_disk);
    } else {
        drop(on_disk);
        block.delayed.clear(range(0, 3), ALLOCATED);
        *block.on_disk.lock().unwrap() = true;
    }
    readers.into_iter().for_each(|t| t.join().unwrap());
}

#[test]
fn j14_a_block_is_delayed_or_on_disk() {
    check(|| allocated(true));
}

#[test]
fn an_allocation_in_two_steps_shows_a_hole() {
    check_fails(|| allocated(false));
}
