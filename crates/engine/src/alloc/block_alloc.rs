//! The block allocator: turns a request into a run of marked blocks, and frees runs.

use extant_sync::atomic::Ordering::Relaxed;
use std::ops::Range;
use std::sync::Arc;

use extant_disk::damage::BlockDamage;
use extant_jbd2::{Block, Handle};
use extant_units::{Blocks, Group, Pblk, exact_u32};

use crate::state::alloc::{AllocRequest, AllocatorCore, Claimant, Run, Stream};
use crate::state::group::{FreeMap, LockedGroup};
use crate::types::error::{Error, Location, Result};
use crate::volume::all_or_abort;

/// Groups whose bitmaps one pass may load while it looks for a long run. After that, shorter runs
/// do.
const LOADS_PER_PASS: u32 = 8;

/// The sizes of a request in clusters, cut to what one group can hold.
#[derive(Clone, Copy, Debug)]
struct SizedRequest {
    goal: Pblk,
    /// Fewest clusters.
    min: u32,
    /// Most clusters to allocate.
    want: u32,
    /// Clusters to look for in one piece. What is found beyond `want` becomes the stream's window.
    target: u32,
    /// Number of groups to search, from group 0 on.
    groups: u32,
}

/// Blocks that one group gave.
#[derive(Debug)]
struct Granted {
    run: Run,
    /// Those behind them that are held.
    window_len: u64,
}

/// Takes a run that was found in a group whose map is loaded.
type TakeRun<'a> = dyn FnMut(&mut LockedGroup<'_>, Range<u32>) -> Result<Granted> + 'a;

impl AllocatorCore {
    /// See [`super::allocate_blocks`].
    pub(super) fn allocate(
        self: &Arc<Self>,
        h: &mut Handle,
        request: &AllocRequest,
    ) -> Result<Run> {
        self.stats.alloc_calls.bump();
        let most = u64::from(self.layout.blocks_per_group);
        let min = self.layout.in_whole_clusters(request.min.get().max(1));
        let want = self.layout.in_whole_clusters(request.want.get());
        let want = want.clamp(min, most.max(min));
        if min > most {
            return Err(Error::NoSpace);
        }
        let claimed = if request.reserved {
            want
        } else {
            self.counts
                .claim(claimant(request), min, want)
                .ok_or(Error::NoSpace)?
        };
        let found = self.find_and_mark(h, request, min, claimed);
        let used = found.as_ref().map_or(0, |run| run.len.get());
        debug_assert!(used <= claimed, "{used} blocks of {claimed} claimed (J12)");
        self.counts.used(used);
        if !request.reserved {
            self.counts.unclaim(claimed - used);
        }
        let run = found?;
        self.stats.alloc_blocks.add(used);
        if run.start == request.goal {
            self.stats.alloc_goal_hits.bump();
        }
        self.groups.shrink_maps();
        Ok(run)
    }

    /// Finds and marks between `min` and `want` blocks: in the stream's window first, then in the
    /// groups.
    fn find_and_mark(
        &self,
        h: &mut Handle,
        request: &AllocRequest,
        min: u64,
        want: u64,
    ) -> Result<Run> {
        let mut contiguous = 0;
        let streaming = request
            .stream
            .and_then(|ino| Some((ino, self.streams.try_check_out(ino)?)));
        if let Some((ino, checkout)) = &streaming
            && let Some(stream) = checkout.take_stream(*ino)
        {
            let continues = stream.next == request.goal;
            match stream.window() {
                Some(window) if continues && stream.window_len >= min => {
                    let run = Run {
                        start: window.start,
                        len: Blocks::new(want.min(stream.window_len)),
                    };
                    let marked = self.mark_held(h, run);
                    let mut after = stream;
                    if marked.is_ok() {
                        after = Stream::advanced(run, stream.contiguous);
                        after.window_len = stream.window_len - run.len.get();
                    }
                    self.remember(checkout, *ino, after);
                    return marked.map(|()| run);
                }
                Some(window) => self.release_held(window),
                None => {}
            }
            contiguous = if continues { stream.contiguous } else { 0 };
        }
        let narrow = |n: u64| self.clusters_in_group(n);
        let target = match streaming {
            Some(_) => self.window_target(want, contiguous),
            None => want,
        };
        let sized = SizedRequest {
            goal: request.goal,
            min: narrow(min),
            want: narrow(want),
            target: narrow(target),
            groups: self.groups_for(request),
        };
        let mut mark =
            |group: &mut LockedGroup<'_>, run| self.mark_found(h, group, run, sized.want);
        let granted = match self.search(sized, &mut mark)? {
            Some(granted) => granted,
            // Windows of other files are given up before a request is refused.
            None if self.release_all_windows() => {
                self.search(sized, &mut mark)?.ok_or(Error::NoSpace)?
            }
            None => return Err(Error::NoSpace),
        };
        if let Some((ino, checkout)) = &streaming {
            let mut stream = Stream::advanced(granted.run, contiguous);
            stream.window_len = granted.window_len;
            self.remember(checkout, *ino, stream);
        }
        debug_assert!(
            (min..=want).contains(&granted.run.len.get()),
            "{granted:?} for {sized:?}"
        );
        Ok(granted.run)
    }

    /// The clusters of `blocks`, whole ones, as far as one group can hold them.
    fn clusters_in_group(&self, blocks: u64) -> u32 {
        let limit = self.layout.clusters_per_group();
        let clusters = blocks >> self.layout.cluster_bits;
        u32::try_from(clusters).map_or(limit, |clusters| clusters.min(limit))
    }

    /// Number of groups, from group 0 on, whose blocks `request` may use.
    fn groups_for(&self, request: &AllocRequest) -> u32 {
        let groups = self.layout.groups();
        if !request.narrow {
            return groups;
        }
        // The first data block is 0 or 1, and a group has blocks: both were checked at mount.
        let blocks = (1_u64 << 32) - self.layout.first_data_block.get();
        let short = blocks / u64::from(self.layout.blocks_per_group);
        u32::try_from(short).map_or(groups, |short| short.min(groups))
    }

    /// Searches the groups, from the goal's on: for the whole request first, then for shorter and
    /// shorter runs.
    fn search(&self, sized: SizedRequest, take: &mut TakeRun<'_>) -> Result<Option<Granted>> {
        debug_assert!(
            0 < sized.min && sized.min <= sized.want && sized.want <= sized.target,
            "{sized:?}"
        );
        let (goal_group, goal_index) = self
            .layout
            .cluster_of_block(sized.goal)
            .filter(|(group, _)| group.get() < sized.groups)
            .unwrap_or((Group::new(0), 0));
        let groups = sized.groups;
        let mut accept = sized.want;
        loop {
            let last = accept <= sized.min;
            let mut loads = LOADS_PER_PASS;
            for step in 0..groups {
                // Both below 2^32: the sum fits 33 bits.
                let at = (u64::from(goal_group.get()) + u64::from(step)) % u64::from(groups);
                let group = Group::new(exact_u32(at));
                let Some(hints) = self.groups.hints(group) else {
                    continue;
                };
                if hints.usable.load(Relaxed) < accept || hints.longest.load(Relaxed) < accept {
                    // A shorter run right at the goal is worth more than a longer one in another
                    // group.
                    if step != 0 || hints.usable.load(Relaxed) < sized.min {
                        continue;
                    }
                }
                if !hints.loaded.load(Relaxed) && !last && step != 0 {
                    if loads == 0 {
                        continue;
                    }
                    loads -= 1;
                }
                let from = if step == 0 { goal_index } else { 0 };
                if let Some(granted) = self.try_group((group, from), sized, accept, take)? {
                    return Ok(Some(granted));
                }
            }
            if last {
                return Ok(None);
            }
            accept = (accept / 4).max(sized.min);
        }
    }

    /// See [`super::room_for`]. Looks into a few groups only.
    pub(super) fn room_for(&self, goal: Pblk, len: u64) -> Result<Option<Pblk>> {
        let most = self.layout.clusters_per_group();
        let clusters = self.layout.in_whole_clusters(len) >> self.layout.cluster_bits;
        let len = u32::try_from(clusters).ok().filter(|&len| len <= most);
        let (Some(len), Some((first, index))) = (len, self.layout.cluster_of_block(goal)) else {
            return Ok(None);
        };
        let disk = self.disk();
        for step in 0..self.layout.groups().min(LOADS_PER_PASS) {
            let at = (u64::from(first.get()) + u64::from(step)) % u64::from(self.layout.groups());
            let group = Group::new(exact_u32(at));
            let mut locked = self.groups.lock(group)?;
            if locked.state.broken {
                continue;
            }
            let from = if step == 0 { index } else { 0 };
            let found = locked.map(&disk)?.find(from, len, len, len);
            if let Some(run) = found.run {
                return Ok(Some(self.layout.cluster_start(group, run.start)));
            }
        }
        Ok(None)
    }

    /// Takes a run of at least `accept` clusters from `group`, or a shorter one that starts at the
    /// goal, cluster `from` of it, and covers a good part of the request.
    fn try_group(
        &self,
        (group, from): (Group, u32),
        sized: SizedRequest,
        accept: u32,
        take: &mut TakeRun<'_>,
    ) -> Result<Option<Granted>> {
        let disk = self.disk();
        let mut locked = self.groups.lock(group)?;
        if locked.state.broken {
            return Ok(None);
        }
        self.stats.alloc_groups_searched.bump();
        let at_goal = sized.min.max(sized.want.div_ceil(4)).min(accept);
        let found = locked
            .map(&disk)?
            .find(from, at_goal, sized.target.max(accept), accept);
        let Some(run) = found.run else {
            locked.publish(Some(found.longest));
            return Ok(None);
        };
        let granted = take(&mut locked, run)?;
        let longest = locked.hints.longest.load(Relaxed);
        locked.publish(Some(longest.min(found.longest)));
        Ok(Some(granted))
    }

    /// Marks the first `want` clusters of a run that was found as in use, and holds the rest.
    fn mark_found(
        &self,
        h: &mut Handle,
        locked: &mut LockedGroup<'_>,
        run: Range<u32>,
        want: u32,
    ) -> Result<Granted> {
        let used = run.start..run.end.min(run.start + want);
        let window = used.end..run.end;
        debug_assert!(!used.is_empty(), "the run {run:?} for {want} clusters");
        let disk = self.disk();
        disk.mark_used(h, locked.group, &mut locked.state, used.clone())?;
        locked.store_desc(&self.layout, &self.cache, h)?;
        let granted = Granted {
            run: self.run_of(locked.group, &used),
            window_len: self.run_of(locked.group, &window).len.get(),
        };
        if let Some(map) = locked.state.map.as_mut() {
            map.take(used);
            map.hold(window);
        }
        Ok(granted)
    }

    /// Finds `min` to `want` blocks in one run near `goal`, and holds them: no request gets them.
    pub(super) fn find_and_hold(&self, goal: Pblk, (min, want): (u64, u64)) -> Result<Option<Run>> {
        if min > u64::from(self.layout.blocks_per_group) {
            // No run is longer than a group, which an image may have as short as eight blocks.
            return Ok(None);
        }
        let [min, want] = [min, want].map(|blocks| {
            let blocks = self.layout.in_whole_clusters(blocks);
            self.clusters_in_group(blocks)
        });
        let sized = SizedRequest {
            goal,
            min,
            want,
            target: want,
            groups: self.layout.groups(),
        };
        let mut hold = |locked: &mut LockedGroup<'_>, run: Range<u32>| {
            let granted = Granted {
                run: self.run_of(locked.group, &run),
                window_len: 0,
            };
            if let Some(map) = locked.state.map.as_mut() {
                map.hold(run);
            }
            Ok(granted)
        };
        let granted = self.search(sized, &mut hold)?;
        Ok(granted.map(|granted| granted.run))
    }

    /// Clusters of a group as a run.
    pub(super) fn run_of(&self, group: Group, clusters: &Range<u32>) -> Run {
        let len = u64::from(clusters.end - clusters.start);
        Run {
            start: self.layout.cluster_start(group, clusters.start),
            len: Blocks::new(len << self.layout.cluster_bits),
        }
    }

    /// Marks blocks that are held as in use on disk. The run lies in one group.
    pub(super) fn mark_held(&self, h: &mut Handle, run: Run) -> Result<()> {
        let (group, range) = self.range_in_group(run).ok_or(Error::Invalid)?;
        let disk = self.disk();
        let mut locked = self.groups.lock(group)?;
        all_or_abort(h, |h| {
            disk.mark_used(h, group, &mut locked.state, range.clone())?;
            locked.store_desc(&self.layout, &self.cache, h)
        })?;
        if let Some(map) = locked.state.map.as_mut() {
            map.take_held(range);
        }
        if locked.state.broken {
            // They were lost with their group. The caller counts them as used.
            self.counts.freed(run.len.get());
        }
        Ok(())
    }

    /// Takes the free space of groups that were taken out of use off the counts. Returns `result`,
    /// which may be a success all the same.
    pub(super) fn counted<R>(&self, result: Result<R>) -> Result<R> {
        let lost = &self.groups.lost;
        if lost.clusters.load(Relaxed) != 0 || lost.inodes.load(Relaxed) != 0 {
            self.count_lost();
        }
        result
    }

    /// Takes the free space of groups that were taken out of use off the counts.
    pub(super) fn count_lost(&self) {
        let lost = &self.groups.lost;
        match lost.clusters.swap(0, Relaxed) {
            0 => {}
            clusters => self.counts.lost(clusters << self.layout.cluster_bits),
        }
        self.counts.inodes_lost(lost.inodes.swap(0, Relaxed));
    }

    /// See [`super::hold_block_bitmaps`].
    pub(super) fn hold_block_bitmaps(&self, run: Run) -> Result<Vec<Block>> {
        let last = run.start.plus(run.len.get().saturating_sub(1));
        let [first, last] = [run.start, last].map(|block| self.layout.group_of_block(block));
        let ((first, _), (last, _)) = first.zip(last).ok_or(Error::Invalid)?;
        let hold = |group| {
            let locked = self.groups.lock(group)?;
            let disk = self.disk();
            disk.read_block_bitmap(group, &locked.state.desc)
        };
        (first.get()..=last.get())
            .map(Group::new)
            .map(hold)
            .collect()
    }

    /// See [`super::free_blocks`].
    pub(super) fn free(self: &Arc<Self>, h: &mut Handle, run: Run, metadata: bool) -> Result<()> {
        let whole = self.clusters_to_free(run)?;
        if metadata {
            forget(h, run)?;
        }
        let run = whole;
        let mut at = run.start;
        let mut left = run.len.get();
        while left > 0 {
            let Some((group, index)) = self.layout.group_of_block(at) else {
                break;
            };
            let room = u64::from(self.layout.group_blocks(group) - index);
            let piece = Run {
                start: at,
                len: Blocks::new(left.min(room)),
            };
            self.free_in_group(h, group, piece)?;
            left -= piece.len.get();
            at = at.plus(piece.len.get());
        }
        debug_assert_eq!(left, 0, "all of a run within the volume is freed");
        self.stats.freed_blocks.add(run.len.get());
        self.groups.shrink_maps();
        Ok(())
    }

    /// The clusters of `run`, if a file may have them.
    fn clusters_to_free(&self, run: Run) -> Result<Run> {
        let refused = |damage| Err(Error::corrupt(Location::Block(run.start), damage));
        let blocks = run.len;
        if !self.layout.contains(run.start, run.len) {
            return refused(BlockDamage::FreesOutside { blocks });
        }
        let whole = self.whole_clusters(run);
        if !self.zones.may_map(None, whole.start, whole.len) {
            return refused(BlockDamage::FreesFormat { blocks });
        }
        Ok(whole)
    }

    /// Frees a cluster. Whether it counts as free is the caller's; see [`AllocatorCore::unmark`].
    pub(super) fn free_uncounted(self: &Arc<Self>, h: &mut Handle, run: Run) -> Result<bool> {
        let run = self.clusters_to_free(run)?;
        let (group, _) = self.range_in_group(run).ok_or(Error::Invalid)?;
        let freed = self.unmark(h, group, run);
        self.stats.freed_blocks.add(run.len.get());
        self.groups.shrink_maps();
        freed
    }

    fn free_in_group(self: &Arc<Self>, h: &mut Handle, group: Group, run: Run) -> Result<()> {
        if self.unmark(h, group, run)? {
            self.counts.freed(run.len.get());
        }
        Ok(())
    }

    /// Marks blocks of one group as free on disk. They are handed out again when `h`'s transaction
    /// is durable. Whether they count as free is the caller's, but not if this returns false: their
    /// group is out of use.
    pub(super) fn unmark(self: &Arc<Self>, h: &mut Handle, group: Group, run: Run) -> Result<bool> {
        let (owner, range) = self.range_in_group(run).ok_or(Error::Invalid)?;
        debug_assert_eq!(owner, group, "the run lies in the group that is locked");
        let disk = self.disk();
        let mut locked = self.groups.lock(group)?;
        locked.map(&disk)?;
        all_or_abort(h, |h| {
            disk.mark_free(h, group, &mut locked.state, range.clone())?;
            locked.store_desc(&self.layout, &self.cache, h)
        })?;
        if let Some(map) = locked.state.map.as_mut() {
            FreeMap::hold_freed(map, range);
        }
        let counts = !locked.state.broken;
        drop(locked);
        self.release_on_commit(h, run);
        Ok(counts)
    }
}

/// Has the journal forget the blocks of `run`, each with a revoke.
pub(super) fn forget(h: &mut Handle, run: Run) -> Result<()> {
    for i in 0..run.len.get() {
        h.forget(run.start.plus(i))?;
    }
    Ok(())
}

fn claimant(request: &AllocRequest) -> Claimant {
    if request.pool {
        Claimant::Pool
    } else if request.privileged {
        Claimant::Privileged
    } else {
        Claimant::User
    }
}
