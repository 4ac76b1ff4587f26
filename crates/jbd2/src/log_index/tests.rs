use super::*;

fn index() -> LogIndex {
    LogIndex::new(Ring { first: 1, end: 101 }, Tid::new(u32::MAX))
}

fn blocks(numbers: &[u64]) -> Vec<Block> {
    numbers
        .iter()
        .map(|&p| Block::unloaded(Pblk::new(p)))
        .collect()
}

fn commit(index: &mut LogIndex, len: u32, logs: &[u64], frees: &[u64]) {
    let blocks = blocks(logs);
    let tid = index.next();
    index.note_logging(tid, &blocks);
    let snapshots = blocks
        .into_iter()
        .map(|block| Snapshot {
            block,
            data: Arc::default(),
        })
        .collect();
    index.committed(
        len,
        logs.to_vec(),
        snapshots,
        &frees.iter().copied().collect(),
    );
}

fn home(index: &mut LogIndex, free: u32) -> Vec<u64> {
    let blocks = index.blocks_to_free(free);
    let batch = index.take_off(&blocks);
    index.landed(&batch);
    batch.iter().map(|home| home.pblk.get()).collect()
}

#[test]
fn the_ring_wraps() {
    let ring = Ring { first: 5, end: 10 };
    assert_eq!(ring.advance(5, 4), 9);
    assert_eq!(ring.advance(9, 1), 5);
    assert_eq!(ring.advance(7, 13), 5);
}

#[test]
fn the_tail_follows_what_was_written_home() {
    let mut index = index();
    commit(&mut index, 30, &[1, 2], &[]);
    commit(&mut index, 30, &[3], &[]);
    assert_eq!((index.free(), index.next_tail()), (40, None));
    assert_eq!(home(&mut index, 70), [1, 2]);
    let tail = index.next_tail().unwrap();
    assert_eq!((tail.start, tail.tid), (31, Tid::new(0)));
    // Until the superblock says so, the blocks are in the log.
    assert!(index.is_resident(Pblk::new(1)));
    assert_eq!(index.free(), 40);
    index.set_tail(tail);
    assert!(!index.is_resident(Pblk::new(1)));
    assert!(index.is_resident(Pblk::new(3)));
    assert_eq!(index.free(), 70);
    assert_eq!(home(&mut index, 100), [3]);
    let tail = index.next_tail().unwrap();
    assert_eq!((tail.start, tail.tid), (61, Tid::new(1)));
    index.set_tail(tail);
    assert!(index.is_settled());
    assert_eq!((index.used, index.head()), (0, 61));
}

#[test]
fn a_later_commit_takes_a_block_over() {
    let mut index = index();
    commit(&mut index, 10, &[1, 2], &[]);
    commit(&mut index, 10, &[1], &[]);
    assert_eq!(home(&mut index, 81), [1, 2], "newest versions go home");
    let tail = index.next_tail().unwrap();
    assert_eq!(tail.leaving, 2);
    commit(&mut index, 10, &[1], &[]);
    index.set_tail(tail);
    assert!(index.is_resident(Pblk::new(1)));
    assert!(!index.is_resident(Pblk::new(2)));
}

#[test]
fn a_block_committed_again_in_flight_stays_pending() {
    let mut index = index();
    commit(&mut index, 10, &[1], &[]);
    let batch = index.take_off(&[1]);
    commit(&mut index, 10, &[1], &[]);
    index.landed(&batch);
    let tail = index.next_tail().unwrap();
    assert_eq!(tail.leaving, 1);
    index.set_tail(tail);
    assert_eq!(home(&mut index, 100), [1]);
}

#[test]
fn freed_blocks_do_not_go_home_but_stay_resident() {
    let mut index = index();
    commit(&mut index, 10, &[1, 2], &[]);
    let batch = index.take_off(&[1]);
    let freed: PblkSet = [1u64].into_iter().collect();
    commit(&mut index, 10, &[5], &[1]);
    assert!(index.is_in_flight(&freed));
    index.landed(&batch);
    assert!(!index.is_in_flight(&freed));
    assert_eq!(home(&mut index, 100), [2, 5]);
    assert!(index.is_resident(Pblk::new(1)));
    let tail = index.next_tail().unwrap();
    assert_eq!(tail.leaving, 2);
    index.set_tail(tail);
    assert!(!index.is_resident(Pblk::new(1)));
    assert!(index.blocks.is_empty());
}

#[test]
fn the_thread_is_wanted_for_a_full_log_and_for_full_memory() {
    let mut index = index();
    assert_eq!(index.wanted(0), None);
    commit(&mut index, 10, &[1, 2, 3, 4], &[]);
    assert_eq!(index.wanted(4), None);
    assert_eq!(index.wanted(3), Some(95));
    // Logged again, or freed, a block waits once, or not at all.
    commit(&mut index, 10, &[1, 2, 5], &[4]);
    assert_eq!(index.wanted(4), None);
    assert_eq!(index.wanted(3), Some(90));
    assert_eq!(home(&mut index, 90), [1, 2, 3]);
    assert_eq!(index.wanted(1), None);
    assert_eq!(index.wanted(0), Some(90));
    commit(&mut index, 31, &[7], &[]);
    assert_eq!(index.wanted(100), Some(75));
}
